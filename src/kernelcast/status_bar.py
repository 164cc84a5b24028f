"""The progress bar of long work with a status in words beside it, on a terminal alone."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

REFRESH_SECONDS = 0.5
"""Between two drawings."""

BAR_WIDTH = 20
"""Characters."""


def status_bar(what: str, console: Console) -> Progress | None:
    """A bar that is drawn when it is told to, with the task's field `status`; None where there is no terminal."""
    if not console.is_terminal:
        return None
    # where the terminal is narrow, the status takes two lines
    status = TextColumn("{task.fields[status]}", table_column=Column())
    columns = (TextColumn(what), BarColumn(BAR_WIDTH, table_column=Column(no_wrap=True)), status)
    return Progress(*columns, console=console, auto_refresh=False)
