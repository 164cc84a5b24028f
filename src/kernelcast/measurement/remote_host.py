"""What a device behind an RPC tracker is and how fast it can be at best, measured by kernels that run there."""

from __future__ import annotations

from kernelcast.errors import MeasurementError
from kernelcast.machine import Host
from kernelcast.measurement.farm import TRANSFER_SECONDS, Farm, LostSession, Session
from kernelcast.measurement.host import PRIVATE_CACHE_BYTES
from kernelcast.measurement.messages import Failed, Repeat, Repeated
from kernelcast.measurement.remote_session import Ready, RepeatOf
from kernelcast.measurement.settings import Cache, RunnerSettings, TimingSettings, Way
from kernelcast.measurement.workloads import from_module, matmul
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, parse_module, vector_bits

REPEATS = 5
MATRIX_SIZE = 768
"""Rows, columns and depth of the product that shows the peak: a multiple of every tile."""

ROWS, VECTORS = 6, 2
"""Rows, and vectors a row, of the tile that stays in registers: AVX2 has 16 of them, others have more."""

COPY_BYTES = 64 * 1024**2
"""More than the caches of common boards hold, and little enough for their memory, twice."""

CALL_SECONDS = 120.0

DESCRIBING = RunnerSettings(
    builders=None,
    build_timeout_seconds=CALL_SECONDS,
    run_timeout_seconds=CALL_SECONDS,
    memory_limit_bytes=4 * 1024**3,
    check_share=0.0,
    remeasure_share=0.0,
    timing=TimingSettings(Way.in_a_row, Cache.warm, 1, 1, 1, 1.0, 1.0, 1e-3),
)
"""Limits while a device is described."""


def describe_device(farm: Farm, identity: str) -> Host:
    """Describes one device, in a few seconds.

    What TVM's own server does not tell is left open (memory, system), and nobody knows the caches.

    Args:
        farm: has the device, and the target, which decides the threads and the width of a vector.
        identity: what the host is to be called.

    Raises:
        MeasurementError: no device is free, or the kernels do not run there.
    """
    target = farm.bench.target
    lanes = max(1, vector_bits(target) // 32)
    session = farm.connect(None)
    try:
        product_seconds = _best_seconds(farm, session, peak_workload(lanes))
        copy_seconds = _best_seconds(farm, session, copy_workload(lanes))
    except LostSession as lost:
        raise MeasurementError(
            f"{session.opened.address} was lost while its speed was measured ({lost}); run the same command again"
        ) from lost
    finally:
        session.close()
        farm.release(session.opened.address)
    description = session.opened.description
    return Host(
        cpu=identity,
        cores=target["num-cores"],
        memory_bytes=description.get("memory_bytes"),
        system=f"{description.get('system', 'an unknown system')}, through TVM's RPC",
        peak_flops_per_second=2.0 * MATRIX_SIZE**3 / product_seconds,
        bytes_per_second=2.0 * COPY_BYTES / copy_seconds,
        vector_lanes=lanes,
        cache_bytes=PRIVATE_CACHE_BYTES,
    )


def peak_workload(lanes: int) -> Workload:
    """A large matrix product, scheduled by hand: a tile of sums in registers, panels in parallel."""
    load_tvm()
    from tvm.s_tir import Schedule

    plain = matmul("peak", MATRIX_SIZE, MATRIX_SIZE, MATRIX_SIZE)
    schedule = Schedule(parse_module(plain.module), seed=1)
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    sums = schedule.cache_write(block, 0, "global")
    row, column, depth = schedule.get_loops(block)
    rows, row_in_tile = schedule.split(row, [None, ROWS])
    columns, column_in_tile = schedule.split(column, [None, VECTORS * lanes])
    schedule.reorder(columns, rows, depth, row_in_tile, column_in_tile)
    schedule.reverse_compute_at(sums, rows)
    tile_row, tile_column = schedule.get_loops(sums)[-2:]
    schedule.vectorize(tile_column)
    schedule.unroll(tile_row)
    schedule.parallel(columns)
    schedule.unroll(row_in_tile)
    schedule.vectorize(column_in_tile)
    start = schedule.decompose_reduction(block, depth)
    schedule.unroll(schedule.get_loops(start)[-2])
    return from_module("peak", "peak", plain.arguments, schedule.mod)


def copy_workload(lanes: int) -> Workload:
    """A large copy, in parallel and in vectors."""
    tvm = load_tvm()
    from tvm.s_tir import Schedule

    count = COPY_BYTES // 4
    source = tvm.te.placeholder((count,), name="source")
    copy = tvm.te.compute((count,), lambda index: source[index] + tvm.tirx.const(0.0, "float32"), name="copy")
    schedule = Schedule(tvm.te.create_prim_func([source, copy]))
    (index,) = schedule.get_loops(schedule.get_sblock("copy"))
    outer, _, vector = schedule.split(index, [64, None, lanes])
    schedule.parallel(outer)
    schedule.vectorize(vector)
    return from_module("copy", "copy", {"bytes": COPY_BYTES}, schedule.mod)


def _best_seconds(farm: Farm, session: Session, workload: Workload) -> float:
    library = farm.build(workload, None)
    if isinstance(library, Failed):
        raise MeasurementError(
            f"the {workload.name} kernel cannot be built for the devices ({library.outcome}: {library.message}); "
            "check `target` and runner.devices.linker"
        )
    what, address = f"the {workload.name} kernel", session.opened.address
    farm.require(session.ask(library.load(None), TRANSFER_SECONDS + CALL_SECONDS), Ready, what, address)
    seconds = []
    for _ in range(REPEATS):
        repeated = session.ask(RepeatOf(library.number, Repeat(1)), CALL_SECONDS)
        seconds.append(farm.require(repeated, Repeated, what, address).run_seconds)
    return min(seconds)
