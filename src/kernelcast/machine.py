"""The machine that measured, as far as it decides run times. Times are seconds, sizes bytes; names carry the unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelcast.decoding import record_of


@dataclass(frozen=True)
class MemoryLevel:
    """A cache, or the main memory, and how fast it was read.

    Attributes:
        size_bytes: size of one cache; None for the main memory.
        sharing_cores: cores that one of it serves.
        core_bytes_per_second: read by one core alone.
        bytes_per_second: read by all cores of the target together.
    """

    size_bytes: int | None
    sharing_cores: int
    core_bytes_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class Calibration:
    """What one core does at best with code of the target, measured by small kernels; 2 flops a multiply-add, float32.

    Attributes:
        levels: the caches from the innermost on, the main memory last.
        vector_flops_per_second: multiply-adds in vectors.
        scalar_flops_per_second: multiply-adds one by one.
        chained_flops_per_second: additions of which each waits for the last one.
        call_seconds: a call of a program that does nothing.
        parallel_start_seconds: start and end of a parallel loop on all cores of the target.
    """

    levels: tuple[MemoryLevel, ...]
    vector_flops_per_second: float
    scalar_flops_per_second: float
    chained_flops_per_second: float
    call_seconds: float
    parallel_start_seconds: float

    @classmethod
    def from_json(cls, raw: Any) -> Calibration | None:
        """What `dataclasses.asdict` made of one; None of None.

        Raises:
            TypeError: something else, or of another type; so do KeyError and ValueError.
        """
        if raw is None:
            return None
        calibration = record_of(
            cls,
            {**raw, "levels": tuple(record_of(MemoryLevel, level, measured=True) for level in raw["levels"])},
            measured=True,
        )
        if [level.size_bytes is None for level in calibration.levels] != [False] * (len(raw["levels"]) - 1) + [True]:
            raise ValueError("Calibration.levels are not caches and then the main memory")
        return calibration


@dataclass(frozen=True)
class Host:
    """The machine that measured, as far as it decides run times.

    Attributes:
        cpu: model name and instruction sets in one line.
        cores: cores that this process may use.
        memory_bytes: size of the main memory; None where a device does not tell.
        system: operating system and kernel.
        peak_flops_per_second: float32 multiply-adds (2 flops each) reached by a large matrix product on all cores.
        bytes_per_second: bytes read and written by a large copy in main memory.
        vector_lanes: float32 lanes of one vector register of the instruction set that the target compiles for.
        cache_bytes: size of the last cache level that one core has for itself.
        calibration: more about its speeds; None where nobody measured them.
    """

    cpu: str
    cores: int
    memory_bytes: int | None
    system: str
    peak_flops_per_second: float
    bytes_per_second: float
    vector_lanes: int
    cache_bytes: int
    calibration: Calibration | None = None

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Host:
        """What `dataclasses.asdict` made of one; folders of before there was a calibration have none.

        Raises:
            TypeError: something else, or of another type; so do KeyError and ValueError.
        """
        return record_of(cls, {**raw, "calibration": Calibration.from_json(raw.get("calibration"))}, measured=True)
