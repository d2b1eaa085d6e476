"""Redacted logs of the libraries below: httpx logs addresses, httpcore response headers, botocore signed requests."""

from __future__ import annotations

import logging

from agentlab.redaction import without_keys

_LOGGERS = (
    *("agentlab.providers", "agentlab.signals", "agentlab.serving.serve", "httpx"),
    *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")),
    *(
        f"botocore.{part}"
        for part in ("auth", "awsrequest", "credentials", "endpoint", "hooks", "httpsession", "parsers", "utils")
    ),
)


class WithoutKeys(logging.Filter):
    """Passes every record, with its message and its traceback redacted. Also for loggers and handlers of your own."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact this record."""
        try:
            message = record.getMessage()
        except Exception:  # a wrong format: logging reports it
            return True
        redacted = without_keys(message)
        if redacted != message:
            record.msg, record.args = redacted, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = without_keys(record.exc_text)
        return True


_FORMATTER = logging.Formatter()
_FILTER = WithoutKeys()


def hide_keys() -> None:
    """Redact the logs of those libraries from now on."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # adding it twice has no effect
