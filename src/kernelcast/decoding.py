"""Records from what a JSON file holds, their fields checked."""

from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def record_of(kind: type[Record], raw: dict[str, Any], measured: bool = False) -> Record:
    """The record that `raw` has the fields of.

    Args:
        kind: a dataclass.
        raw: its fields by name.
        measured: whether its numbers were measured, so that they are positive.

    Raises:
        TypeError: a field is missing, of another type, or one too many.
        ValueError: a measured number is none.
    """
    record = kind(**raw)
    for name, wanted in get_type_hints(kind).items():
        value = getattr(record, name)
        if NoneType in get_args(wanted):
            if value is None:
                continue
            wanted = next(part for part in get_args(wanted) if part is not NoneType)
        plain = get_origin(wanted) or wanted
        allowed = (int, float) if plain is float else (plain,)
        if isinstance(value, bool) or not isinstance(value, allowed):
            raise TypeError(f"{kind.__name__}.{name} is {value!r}, not of type {plain.__name__}")
        # a start may be too short to be seen
        zero = value == 0 and name.endswith("_seconds")
        if measured and plain in (int, float) and not (zero or 0 < value < float("inf")):
            raise ValueError(f"{kind.__name__}.{name} is {value!r}")
    return record
