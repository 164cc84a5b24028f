"""Batches go to devices: loaded by several threads, timed one program at a time on each device.

Where a device leaves cores for building, the next batch is loaded while this one is timed. A device that is lost gives
back what it had not measured, and another one takes it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Protocol

from kernelcast.errors import MeasurementError
from kernelcast.measurement.devices import Device, DeviceLost, Loading, OpenRunner
from kernelcast.measurement.journal import Ending, Try
from kernelcast.measurement.messages import Failed
from kernelcast.measurement.progress import duration
from kernelcast.measurement.settings import TimingSettings
from kernelcast.measurement.timing import (
    BUSY_FACTOR,
    MachineState,
    TimedProgram,
    TimedRepeat,
    disagreement,
    time_programs,
)
from kernelcast.records import Workload

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks for a device that takes the place of a lost one."""

CLOSERS = 4
"""Programs that are closed at the same time."""

PATIENCE_SECONDS = 20.0
"""How long to look when no device is left: servers that are started again need some seconds."""


@dataclass(frozen=True)
class Item:
    """One visit to one candidate.

    Attributes:
        entry: the candidate with what it has so far.
        visit: 0 to measure it, 1 to measure it again.
        check: whether its results are compared with those of the unscheduled workload.
    """

    entry: Try
    visit: int
    check: bool


class Recorder(Protocol):
    """Who is told what happens; each method may be called by the thread of any device."""

    def built(self, item: Item, build_seconds: float) -> None:
        """A program is machine code."""

    def repeated(self, item: Item, repeat: TimedRepeat) -> None:
        """A repeat has ended."""

    def ended(self, item: Item, device: str, failed: Failed | None, checked: bool, cut_short: bool) -> None:
        """A visit is over."""

    def round_ended(self) -> None:
        """All programs of a batch had their turn: now is the time to wait for the disk."""

    def batch_ended(self) -> None:
        """A batch is over."""


@dataclass
class Phases:
    """Seconds spent by kind of work, to name the slowest."""

    seconds: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Adds the time of the body to `name`."""
        started = monotonic()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + monotonic() - started

    def __str__(self) -> str:
        ordered = sorted(self.seconds.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {duration(seconds)}" for name, seconds in ordered)


@dataclass
class Crew:
    """Everything that the threads share while items are measured.

    Attributes:
        runner: the started runner.
        builders: loads programs.
        workloads: by key.
        timing: how programs are timed.
        recorder: hears of everything.
        phases: where the time goes.
        enough: asked after every batch: whether to stop before all is measured.
        fastest: least seconds of a call by workload key.
        references: reference times of earlier runs, by device.
        stopping: set when the campaign ends early.
    """

    runner: OpenRunner
    builders: ThreadPoolExecutor
    workloads: dict[str, Workload]
    timing: TimingSettings
    recorder: Recorder
    phases: Phases
    enough: Callable[[], bool]
    fastest: dict[str, float] = field(default_factory=dict)
    references: dict[str, list[float]] = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)

    def remember(self, workload_key: str, ending: Ending | None, repeat: TimedRepeat) -> None:
        """Takes in what an earlier run of the campaign measured."""
        self.fastest[workload_key] = min(repeat.run_seconds, self.fastest.get(workload_key, repeat.run_seconds))
        if ending is not None:
            self.references.setdefault(ending.device, []).append(repeat.reference_seconds)

    def measure(self, items: Sequence[Item]) -> None:
        """Measures all items, unless `enough` says so before.

        Raises:
            MeasurementError: no device is left.
        """
        queue = _Queue(items, self.timing.batch_size, len(self.runner.devices))
        threads = ThreadPoolExecutor(len(self.runner.devices), thread_name_prefix="device")
        try:
            serving = [threads.submit(_Server(self, queue, device).serve) for device in self.runner.devices]
            # an error of one ends all; Ctrl-C arrives here, in the main thread
            wait(serving, return_when="FIRST_EXCEPTION")
            self.stopping.set()
            for served in serving:
                served.result()
        except BaseException:
            self.stopping.set()
            queue.close()
            threads.shutdown(wait=False, cancel_futures=True)
            raise
        threads.shutdown()
        self.stopping.clear()
        if len(queue) and not self.enough():
            raise MeasurementError(
                f"no device is left, {len(queue)} programs are not measured; start devices and run the same command "
                "again: it goes on from here"
            )


class _Queue:
    """Items that wait for a device; a thread with nothing to do waits until the others cannot give any back."""

    def __init__(self, items: Sequence[Item], batch_size: int, devices: int) -> None:
        self._items = deque(items)
        self._batch_size = batch_size
        self._devices = devices
        self._out = 0
        self._changed = threading.Condition()
        self._closed = False

    def take(self, hold: bool) -> list[Item]:
        """The next batch; empty when there is none now (`hold` false) or never will be (`hold` true)."""
        with self._changed:
            while hold and not self._items and self._out and not self._closed:
                self._changed.wait()
            # the last batches are shared among the devices
            size = min(self._batch_size, -(-len(self._items) // self._devices))
            batch = [] if self._closed else [self._items.popleft() for _ in range(size)]
            self._out += bool(batch)
            return batch

    def done(self, back: Sequence[Item] = ()) -> None:
        """A batch is over; items in `back` are not."""
        with self._changed:
            self._out -= 1
            self._items.extendleft(reversed(back))
            self._changed.notify_all()

    @property
    def is_out(self) -> bool:
        """Whether any thread has a batch."""
        with self._changed:
            return self._out > 0

    def close(self) -> None:
        """Nothing is given out any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._items)


@dataclass
class _Batch:
    """Items that are being loaded."""

    items: list[Item]
    loadings: list[Future[Loading]]
    over: set[int] = field(default_factory=set)

    @property
    def left(self) -> list[Item]:
        """The items that have no ending from this batch."""
        return [item for item in self.items if id(item) not in self.over]

    def close(self) -> None:
        """Frees all programs, those that are still being loaded as well."""
        for loading in self.loadings:
            loading.cancel()
        ended = [one.result() for one in self.loadings if not one.cancelled() and one.exception() is None]
        programs = [loading.program for loading in ended if not isinstance(loading.program, Failed)]
        if programs:
            # the system takes milliseconds to free the memory of each
            with ThreadPoolExecutor(min(CLOSERS, len(programs))) as closers:
                list(closers.map(lambda program: program.close(), programs))


@dataclass
class _Observer:
    """Passes on what the timing of one batch says."""

    recorder: Recorder
    device: Device
    items: dict[int, Item]
    batch: _Batch

    def repeated(self, program: TimedProgram, repeat: TimedRepeat) -> None:
        self.recorder.repeated(self.items[id(program)], repeat)

    def ended(self, program: TimedProgram) -> None:
        item = self.items[id(program)]
        self.batch.over.add(id(item))
        self.recorder.ended(item, self.device.name, program.failed, program.checked, program.cut_short)
        if self.device.overlaps:
            # its memory is wanted for the next batch; else it is freed with the others, when no program is timed
            program.program.close()

    def round_ended(self) -> None:
        self.recorder.round_ended()


class _Server:
    """The thread of one device."""

    def __init__(self, crew: Crew, queue: _Queue, device: Device) -> None:
        self._crew = crew
        self._queue = queue
        self._device = device

    def serve(self) -> None:
        """Takes batches until there are none, or no device."""
        ahead: _Batch | None = None
        machine = self._machine()
        try:
            while not self._crew.stopping.is_set():
                batch, ahead = ahead or self._start(hold=True), None
                if batch is None:
                    return
                lost: DeviceLost | None = None
                try:
                    programs = self._loaded(batch)
                    if self._device.overlaps:
                        ahead = self._start(hold=False)
                    self._time(batch, programs, machine)
                except DeviceLost as error:
                    lost = error
                finally:
                    batch.close()
                    self._queue.done(batch.left if lost else ())
                if lost is not None:
                    # what was loaded ahead is lost as well
                    if ahead is not None:
                        ahead.close()
                        self._queue.done(ahead.items)
                        ahead = None
                    logger.warning("%s is lost (%s); its programs go to another device", self._device.name, lost)
                    if not self._replaced():
                        return
                    machine = self._machine()
                    continue
                self._crew.recorder.batch_ended()
                if self._crew.enough():
                    self._queue.close()
                    return
        except BaseException:
            # the others must not wait for what this thread had
            self._queue.close()
            if not self._crew.stopping.is_set():
                raise
        finally:
            if ahead is not None:
                ahead.close()
                self._queue.done(ahead.items)

    def _machine(self) -> MachineState:
        return MachineState(self._device, self._crew.references.get(self._device.name, ()))

    def _start(self, hold: bool) -> _Batch | None:
        """Begins to load the next batch; None when there is none."""
        items = self._queue.take(hold)
        return _Batch(items, [self._crew.builders.submit(self._load, item) for item in items]) if items else None

    def _load(self, item: Item) -> Loading:
        workload = self._crew.workloads[item.entry.workload_key]
        expected: Path | None = self._crew.runner.expected(workload) if item.check else None
        return self._device.load(workload, item.entry.candidate, expected)

    def _loaded(self, batch: _Batch) -> list[tuple[Item, TimedProgram]]:
        """Waits until the batch is loaded; failures are recorded."""
        programs = []
        with self._crew.phases.of("building"):
            for item, future in zip(batch.items, batch.loadings, strict=True):
                loading = future.result()
                if loading.build_seconds is not None:
                    self._crew.recorder.built(item, loading.build_seconds)
                if isinstance(loading.program, Failed):
                    batch.over.add(id(item))
                    self._crew.recorder.ended(item, self._device.name, loading.program, loading.checked, False)
                    continue
                programs.append(
                    (
                        item,
                        TimedProgram(
                            item.entry.candidate,
                            loading.program,
                            item.visit,
                            loading.call_seconds,
                            loading.checked,
                            item.entry.repeats.of_visit(item.visit),
                        ),
                    )
                )
            self._crew.recorder.round_ended()
        return programs

    def _time(self, batch: _Batch, loaded: list[tuple[Item, TimedProgram]], machine: MachineState) -> None:
        observer = _Observer(self._crew.recorder, self._device, {id(program): item for item, program in loaded}, batch)
        programs = [program for _, program in loaded]
        for program in programs:
            key = program.candidate.workload_key
            self._crew.fastest[key] = min(program.call_seconds, self._crew.fastest.get(key, program.call_seconds))
        with self._crew.phases.of("timing"):
            time_programs(programs, machine, self._crew.timing, self._crew.fastest, observer)
        apart = disagreement(programs)
        if apart > BUSY_FACTOR:
            logger.warning(
                "device %s: the fastest repeats of a program of this batch are a factor of %.2f apart (median over %d "
                "programs): other processes take the core away, and such times cannot be learned from. Stop them, or "
                "give this command priority, and measure anew with paths.measurements=FOLDER",
                self._device.name,
                apart,
                len(programs),
            )

    def _replaced(self) -> bool:
        """Looks for another device as long as others work, and a while when none does but there is work."""
        until = monotonic() + PATIENCE_SECONDS
        while self._queue.is_out or (len(self._queue) and monotonic() < until):
            device = self._crew.runner.replace(self._device)
            if device is not None:
                self._device = device
                return True
            if self._crew.stopping.wait(LOOK_SECONDS):
                return False
        return False
