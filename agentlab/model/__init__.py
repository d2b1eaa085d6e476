"""What goes to a model and what comes back: frozen values, the same for every provider.

May import: `errors` and `_internal`.

    messages        messages, tool calls, tool results, and their JSON
    requests        what one call asks
    responses       what one call returns, and the pieces of a stream
    finish_reasons  why a response ended, why a run ended
    usage           tokens and money, with their sources
    pricing         what a call cost
    conversation    the messages of a run, and the merge of a continued text
"""

__all__ = ["messages", "requests", "responses", "finish_reasons", "usage", "pricing", "conversation"]
