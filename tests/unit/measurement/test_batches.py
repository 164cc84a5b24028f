"""What devices do at the same time, through the real ones, watched or made to break."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import psutil
import pytest

from kernelcast.measurement.campaign import run_campaign
from kernelcast.measurement.devices import Device, LoadedProgram, Loading
from kernelcast.measurement.host import cores_of_machine
from kernelcast.measurement.journal import JOURNAL_FILE
from kernelcast.measurement.local import LocalDevice, LocalRunner, OpenLocalRunner
from kernelcast.measurement.messages import Failed
from kernelcast.measurement.plan import Plan
from kernelcast.records import read_measurements
from kernelcast.tvm_compat import available_cores

MakePlan = Callable[..., Plan]


class Breaking(LocalDevice):
    """A device whose third load comes upon a fault of kernelcast itself."""

    loads = 0

    def load(self, *arguments: Any) -> Loading:
        self.loads += 1
        if self.loads == 3:
            raise ZeroDivisionError("a fault of its own")
        return super().load(*arguments)


class BreakingRunner(LocalRunner):
    """The machine with that device."""

    @contextmanager
    def open(self, *arguments: Any) -> Iterator[OpenLocalRunner]:
        with super().open(*arguments) as opened:
            opened.devices[0].__class__ = Breaking
            yield opened


@pytest.mark.parametrize("slots", [1, 2])
def test_an_error_in_a_builders_thread_ends_the_campaign_with_it(make_plan: MakePlan, slots: int) -> None:
    others = set(psutil.Process().children(recursive=True))
    # with one slot the first batch is being timed when the second comes upon it; with two the other slot goes on
    plan = make_plan(runner=BreakingRunner(min(slots, available_cores())), batch_size=2, samples_per_workload=8)
    with pytest.raises(ZeroDivisionError, match="a fault of its own"):
        run_campaign(plan)
    assert set(psutil.Process().children(recursive=True)) <= others
    lines = (plan.directory / JOURNAL_FILE).read_text().splitlines()
    outcomes = [event["outcome"] for event in map(json.loads, lines) if event["event"] == "finished"]
    assert set(outcomes) <= {"measured"}


class Watched(LocalDevice):
    """A device that notes when it loads and when it times."""

    def load(self, *arguments: Any) -> Loading:
        started = time.monotonic()
        loading = super().load(*arguments)
        self.loading.append((started, time.monotonic()))
        return loading

    loading: list[tuple[float, float]]


class WatchedRunner(LocalRunner):
    """The machine with that device."""

    seen: ClassVar[list[Device]] = []

    @contextmanager
    def open(self, *arguments: Any) -> Iterator[OpenLocalRunner]:
        with super().open(*arguments) as opened:
            (device,) = opened.devices
            assert isinstance(device, LocalDevice)
            device.__class__ = Watched
            device.loading = []  # type: ignore[attr-defined]
            self.seen.append(device)
            yield opened


@pytest.mark.parametrize("all_cores", [False, True])
def test_the_next_batch_is_loaded_meanwhile_only_where_a_core_is_free(
    make_plan: MakePlan, target: dict[str, Any], all_cores: bool
) -> None:
    threads = len(cores_of_machine()) if all_cores else 1
    plan = make_plan(
        runner=WatchedRunner(),
        target={**target, "num-cores": threads},
        batch_size=2,
        repeat_seconds=0.05,
        least_rounds=4,
        most_rounds=4,
    )
    offset = time.time() - time.monotonic()
    run_campaign(plan)
    (device,) = WatchedRunner.seen[-1:]
    assert isinstance(device, Watched)
    assert device.overlaps == (len(cores_of_machine()) > threads)
    repeats = [
        (ended - (calls + 1) * seconds - offset, ended - offset)
        for row in read_measurements(plan.directory).table.to_pylist()
        for calls, seconds, ended in zip(row["calls"], row["run_seconds"], row["ended_at"], strict=True)
    ]
    both = [1 for started, ended in device.loading for begun, done in repeats if started < done and begun < ended]
    assert bool(both) == device.overlaps


class Interrupted:
    """A loaded program whose every repeat takes longer than the last one, as where others take its core."""

    def __init__(self, program: LoadedProgram) -> None:
        self.program = program
        self.factor = 1.0

    def repeat(self, calls: int) -> Any:
        reply = self.program.repeat(calls)
        self.factor *= 1.5
        return replace(reply, run_seconds=reply.run_seconds * self.factor)

    def close(self) -> None:
        self.program.close()


class Busy(LocalDevice):
    """A device on which programs are interrupted."""

    def load(self, *arguments: Any) -> Loading:
        loading = super().load(*arguments)
        assert not isinstance(loading.program, Failed)
        return replace(loading, program=Interrupted(loading.program))


class BusyRunner(LocalRunner):
    """The machine with that device."""

    @contextmanager
    def open(self, *arguments: Any) -> Iterator[OpenLocalRunner]:
        with super().open(*arguments) as opened:
            opened.devices[0].__class__ = Busy
            yield opened


def test_times_of_a_busy_core_are_said_to_be_none(make_plan: MakePlan, caplog: pytest.LogCaptureFixture) -> None:
    run_campaign(make_plan(runner=BusyRunner(), least_rounds=4, most_rounds=4, remeasure_share=0.0))
    assert re.search(r"device local: .* factor of .* other processes take the core away", caplog.text)
