"""The wires that several providers share, and the common rules for reading responses.

May import: `providers.base`, and what is below `providers`.

    chat                chat completions: the content of a response
    chat_provider       the base class of its providers, and its stream parser
    responses           the Responses wire: the content of a response
    responses_provider  the base class of its providers, and its stream parser
    stream              the base of all stream parsers
    incoming            bytes to events: server-sent, binary or JSON
    read                readers for values of any shape
    finish_rules        from finish reason to TerminationSignal
"""
