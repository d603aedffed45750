"""Log lines of the gateway: one record one line, and nothing that looks like a credential."""

from __future__ import annotations

import logging
import sys

from nedura.text import clean, redact

__all__ = ["LineFormatter", "set_up_logging"]


class LineFormatter(logging.Formatter):
    """Redacts and keeps a record on one line; a traceback follows as cleaned lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        text = super().format(record)
        return "\n".join(clean(redact(line), 2000) for line in text.splitlines())


def set_up_logging(*, verbose: bool) -> None:
    """Send log records to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    if not verbose:
        logging.getLogger("httpx").setLevel(
            logging.WARNING
        )  # a line for each poll of a sign-in says nothing to an operator
