"""The wires that several providers share, and how all of them read responses.

May import: `providers.base`, and what is below `providers`.

    chat                chat completions: what a response holds
    chat_provider       its providers and their streams
    responses           the Responses wire: what a response holds
    responses_provider  its providers
    responses_stream    its streams
    stream              the base of all stream parsers
    incoming            bytes to events: server-sent, binary or JSON
    read                values of any shape, read
    finish_rules        from finish reason to TerminationSignal
"""
