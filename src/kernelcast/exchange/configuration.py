"""What a schedule trace decides, as the named parameters that other tuners call a configuration."""

from __future__ import annotations

import json
from typing import Any

from kernelcast.errors import MalformedDataError
from kernelcast.files import json_hash

PARAMETERS = {
    "SamplePerfectTile": "tile",
    "SamplePartitionedTile": "tile",
    "SampleCategorical": "choice",
    "SampleComputeLocation": "location",
}
"""Names of what MetaSchedule's sampling instructions decide; others keep their own name."""


def configuration_of(trace: str) -> dict[str, str | int | float]:
    """The decisions of a trace by name, plain numbers where TVM has them.

    `tile_4_0` is the first factor of the tiling that instruction 4 samples, `choice_13` the value (not the number) that
    instruction 13 picks. Traces that share `sketch`, a hash of the instructions, have the same names.

    Raises:
        MalformedDataError: it is not a trace in TVM's JSON.
    """
    try:
        instructions, decisions = json.loads(trace)
        values: dict[str, str | int | float] = {"sketch": json_hash(instructions)[:8]}
        for number, decision in decisions:
            kind, _, attributes, _ = instructions[number]
            name = f"{PARAMETERS.get(kind, kind)}_{number}"
            if isinstance(decision, list):
                values |= {f"{name}_{place}": _plain(factor) for place, factor in enumerate(decision)}
            else:
                values[name] = _plain(attributes[0][decision] if kind == "SampleCategorical" else decision)
    except (ValueError, TypeError, LookupError) as error:
        raise MalformedDataError(f"not a schedule trace: {type(error).__name__}: {error}") from error
    return values


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, str | int | float) else json.dumps(value)
