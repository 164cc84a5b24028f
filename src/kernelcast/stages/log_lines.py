"""Lines of the log on a terminal on which a progress bar may be drawn."""

import logging
import sys
from typing import TextIO


class TerminalHandler(logging.StreamHandler[TextIO]):
    """Writes lines of the log above a progress bar, not into it.

    While rich draws a bar on a terminal, it stands in for `sys.stdout` and moves the bar out of the way of what is
    printed. Logging has kept the stream that was there when it began. What goes to a file stays there.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line to what stands for the terminal at the moment."""
        if sys.stdout is self.stream or not self.stream.isatty():
            super().emit(record)
            return
        try:
            print(self.format(record), file=sys.stdout, flush=True)
        except Exception:
            self.handleError(record)
