"""Requests to a model and its responses: frozen values, independent of the provider.

May import: `_internal`.

    parts           images, documents and audio in messages and tool results
    messages        messages, tool calls, tool results, their JSON, and the request that holds them
    responses       the response of one call, and the pieces of a stream
    finish_reasons  why a response ended, and why a run ended
    usage           token counts and costs, with their sources
    pricing         the cost of a call
    conversation    the messages of a run
"""

__all__ = ["parts", "messages", "responses", "finish_reasons", "usage", "pricing", "conversation"]
