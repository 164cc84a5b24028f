"""Errors that a user can act on.

Every message says what is wrong, where (file, key, place) and what to do next. A `KernelcastError` reaches the
terminal as that one message, without a traceback, and the process ends with its `exit_code`.
"""

import difflib
from collections.abc import Iterable


def near_name(typed: str, known: Iterable[str]) -> str:
    """The name most like a mistyped one, for a message that asks whether it was meant; empty where none is like it."""
    return next(iter(difflib.get_close_matches(typed, list(known), n=1)), "")


class KernelcastError(Exception):
    """Base of every error that kernelcast explains to its user."""

    exit_code = 1


class ConfigError(KernelcastError):
    """A configuration value that cannot work, found before any work was done."""

    exit_code = 2


class MissingInputError(KernelcastError):
    """A file that an earlier stage should have written is not there."""

    exit_code = 3


class MalformedDataError(KernelcastError):
    """A file is there but is not what it should be: torn, empty, of another schema version."""

    exit_code = 4


class MeasurementError(KernelcastError):
    """Measuring went wrong as a whole: too many failures, another machine, another process at work."""

    exit_code = 5


class StorageError(KernelcastError):
    """The disk refused: no space left, no permission."""

    exit_code = 6
