"""What the libraries underneath log is without keys: httpx logs addresses, httpcore response headers, botocore what it signs."""

from __future__ import annotations

import logging

from agentlab.redaction import without_keys

_LOGGERS = (
    *("agentlab.providers", "agentlab.signals", "agentlab.serving.app", "httpx"),
    *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")),
    *(
        f"botocore.{part}"
        for part in ("auth", "awsrequest", "credentials", "endpoint", "hooks", "httpsession", "parsers", "utils")
    ),
)


class WithoutKeys(logging.Filter):
    """Lets every record through, its message and its traceback without keys. For a logger or a handler of your own, too."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace what is a key in this record."""
        try:
            said = record.getMessage()
        except Exception:  # a format that does not fit: logging itself tells of it
            return True
        hidden = without_keys(said)
        if hidden != said:
            record.msg, record.args = hidden, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = without_keys(record.exc_text)
        return True


_FORMATTER = logging.Formatter()
_FILTER = WithoutKeys()


def hide_keys() -> None:
    """Have those libraries' loggers without keys from here on."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # twice is once
