"""The wires that several providers share, and the common rules for reading responses.

May import: `providers.base`, and what is below `providers`.

    chat                chat completions: requests, responses, usage and cost
    chat_provider       chat completions: the base class of providers, and the stream parser
    responses           the Responses wire: reads responses, usage and cost
    responses_provider  the Responses wire: the base class of providers, their requests, and the stream parser
    stream              the base of all stream parsers
    incoming            turns bytes into events: server-sent, binary or JSON
    media               which images, documents and audio a wire takes
    read                reads fields of unchecked JSON; loads and dumps JSON
    finish_rules        turns a finish reason into a TerminationSignal
"""
