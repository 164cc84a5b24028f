"""Campaigns on devices behind a real tracker."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.measurement.campaign import run_campaign
from kernelcast.measurement.farm import Farm, Library, LostSession
from kernelcast.measurement.forkserver import ForkServer
from kernelcast.measurement.journal import JOURNAL_FILE
from kernelcast.measurement.local import Bench
from kernelcast.measurement.messages import Repeat, Repeated
from kernelcast.measurement.plan import Plan
from kernelcast.measurement.remote import RemoteDevice, RemoteProgram, RpcRunner
from kernelcast.measurement.remote_host import DESCRIBING, copy_workload, peak_workload
from kernelcast.measurement.remote_session import Call, RepeatOf
from kernelcast.records import read_campaign, read_measurements
from kernelcast.tvm_compat import load_tvm, resolve_target
from tests.unit.measurement.lab import SERVER, STOCK_SERVER, TRACKER, Lab, free_port, kill

PROGRAM = Path(__file__).with_name("measure_remote.py")
MakePlan = Callable[..., Plan]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(stack)


@pytest.fixture
def plan_for(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePlan:
    """A campaign on the devices of a key."""
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    from measure_remote import remote_plan

    def make(key: str, **changes: Any) -> Plan:
        return remote_plan(tmp_path / "measurements", lab.port, key, **changes)

    return make


def rows(plan: Plan) -> list[dict[str, Any]]:
    return list(read_measurements(plan.directory).table.to_pylist())


def repeats(plan: Plan) -> int:
    """Repeats in the journal."""
    path = plan.directory / JOURNAL_FILE
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return sum(json.loads(line)["event"] == "repeat" for line in lines)


def test_devices_measure_a_campaign(lab: Lab, plan_for: MakePlan) -> None:
    # some broke when torch was there before: apache/tvm#9241
    import torch

    torch.ones(4, 4) @ torch.ones(4, 4)
    lab.start("pair", 2)
    plan = plan_for("pair")
    assert len(run_campaign(plan).tries) == 8
    measured = rows(plan)
    assert Counter(row["outcome"] for row in measured) == {"measured": 8}
    assert all(row["checked"] for row in measured)
    assert {row["device"].rpartition(":")[0] for row in measured} == {"pair@127.0.0.1"}
    assert len({row["device"] for row in measured}) == 2, "both have a share"
    for row in measured:
        assert row["visit"][:4] == [0] * 4
        assert all(seconds > 0 for seconds in row["run_seconds"] + row["reference_seconds"])
        assert all(apart >= 0 for apart in np.diff(row["ended_at"]))
    assert any(1 in row["visit"] for row in measured), "some are measured again"

    campaign, _ = read_campaign(plan.directory)
    host = campaign.host
    assert host is not None
    assert host.cpu == plan.runner.identity(plan.target) == f"rpc key pair, {plan.target['mcpu']}"
    assert host.cores == plan.target["num-cores"]
    assert host.memory_bytes == psutil.virtual_memory().total
    assert host.system.startswith("Linux")

    # nothing is left: the tracker is not even asked
    gone = replace(plan, runner=replace(plan.runner, tracker_port=free_port()))  # type: ignore[type-var]
    run_campaign(gone)
    assert rows(plan) == measured
    other = replace(plan, runner=replace(plan.runner, key="other"))  # type: ignore[type-var]
    with pytest.raises(MeasurementError, match=r"host\.cpu = 'rpc key pair"):
        run_campaign(other)


@contextmanager
def killing(server: "subprocess.Popen[bytes]", plan: Plan, after: int) -> Iterator[None]:
    """Kills a server as soon as a campaign has so many repeats."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            if repeats(plan) >= after:
                kill(server)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_a_server_that_dies_half_way_costs_nothing(lab: Lab, plan_for: MakePlan) -> None:
    dying, lasting = lab.start("dying", 2)
    plan = plan_for("dying")
    with killing(dying, plan, after=5):
        run_campaign(plan)
    assert dying.returncode is not None
    assert lasting.poll() is None
    measured = rows(plan)
    assert len(measured) == len({row["program_key"] for row in measured}) == 8
    assert Counter(row["outcome"] for row in measured) == {"measured": 8}
    for row in measured:
        first = [index for index, visit in zip(row["round_index"], row["visit"], strict=True) if visit == 0]
        assert first == [0, 1, 2, 3], "repeats of the lost device are kept, none is there twice"
    assert len({row["device"] for row in measured}) <= 2


@pytest.mark.slow
def test_the_last_server_dies_and_the_next_run_goes_on(
    lab: Lab, plan_for: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelcast.measurement.batches.PATIENCE_SECONDS", 3.0)
    (only,) = lab.start("only")
    plan = plan_for("only")
    plan = replace(plan, runner=replace(plan.runner, wait_seconds=3))  # type: ignore[type-var]
    with killing(only, plan, after=5), pytest.raises(MeasurementError, match="no device is left") as failed:
        run_campaign(plan)
    assert "start devices and run the same command again" in str(failed.value)
    before = repeats(plan)
    with pytest.raises(MeasurementError, match="has no device of key 'only'"):
        run_campaign(plan)
    lab.start("only")
    run_campaign(plan)
    assert Counter(row["outcome"] for row in rows(plan)) == {"measured": 8}
    assert repeats(plan) > before


def test_a_crash_and_a_hang_cost_one_candidate_each(lab: Lab, plan_for: MakePlan, faulty: Any) -> None:
    (server,) = lab.start("tough")
    plan = plan_for("tough", run_timeout_seconds=2.0)
    bad = [faulty.calling("crashes", "abort"), faulty.calling("hangs", "pause"), faulty.not_a_number("wrong")]
    plan = replace(
        plan,
        workloads=[bad[0], plan.workloads[0], bad[1], bad[2]],
        samples_per_workload=1,
        settings=replace(plan.settings, check_share=0.0),
    )
    run_campaign(plan)
    outcomes = {row["workload_name"]: (row["outcome"], row["message"]) for row in rows(plan)}
    assert outcomes["matmul"] == ("measured", "")
    assert outcomes["crashes"][0] == "crash"
    assert outcomes["hangs"] == ("run_timeout", "still running after 2 s; stopped")
    assert outcomes["wrong"] == ("wrong_result", "the results in `result` are not all finite numbers")
    assert server.poll() is None


@pytest.mark.slow
def test_a_program_that_kills_every_server_is_found_out(
    lab: Lab, plan_for: MakePlan, faulty: Any, caplog: pytest.LogCaptureFixture
) -> None:
    # TVM's own server never serves again after a program crashed
    lab.start("stock", 3, STOCK_SERVER)
    plan = plan_for("stock")
    plan = replace(
        plan,
        workloads=[faulty.calling("crashes", "abort"), *plan.workloads],
        samples_per_workload=2,
        settings=replace(plan.settings, check_share=0.0, remeasure_share=1.0),
        runner=replace(plan.runner, wait_seconds=3, slots=1),  # type: ignore[type-var]
    )
    run_campaign(plan)
    outcomes = Counter((row["workload_name"], row["outcome"]) for row in rows(plan))
    assert outcomes == {("crashes", "crash"): 1, ("matmul", "measured"): 2, ("conv2d", "measured"): 2}
    # the device that took the place of the lost ones measures again as well
    assert {1 in row["visit"] for row in rows(plan) if row["outcome"] == "measured"} == {True}
    assert "stock@" in caplog.text
    assert "its programs go to another device" in caplog.text
    campaign, _ = read_campaign(plan.directory)
    assert campaign.host is not None
    assert campaign.host.memory_bytes is None, "this server does not tell"


@pytest.mark.slow
def test_servers_outlive_whoever_measures(lab: Lab, plan_for: MakePlan) -> None:
    (server,) = lab.start("lasting")
    plan = plan_for("lasting")
    command = [sys.executable, str(PROGRAM), str(plan.directory), str(lab.port), "lasting"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while repeats(plan) < 4:
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    run_campaign(plan)
    assert Counter(row["outcome"] for row in rows(plan)) == {"measured": 8}
    assert server.poll() is None


def test_a_promised_device_that_nobody_comes_for_is_offered_again(lab: Lab) -> None:
    lab.start("held")
    key, tracker = "held", lab.tracker
    grant = tracker.request(key, 30)
    assert grant is not None
    assert tracker.request(key, 0.2) is None, "it is promised to one"
    again = tracker.request(key, 30)
    assert again is not None
    assert again.address == grant.address
    assert again.match_key != grant.match_key


def test_sessions_end_in_time_and_are_renewed_before(
    lab: Lab, server: ForkServer, target: dict[str, Any], faulty: Any, tmp_path: Path
) -> None:
    lab.start("timed")
    farm = Farm(Bench(server, target, DESCRIBING, 0, tmp_path), lab.tracker, "timed", None, 6, 30)
    session = farm.connect(None)
    hanging, harmless = (
        farm.build(faulty.calling("hangs", "pause"), None),
        farm.build(faulty.large("copies", 64), None),
    )
    assert isinstance(hanging, Library)
    assert isinstance(harmless, Library)
    session.ask(hanging.load(0), 60)
    with pytest.raises(LostSession, match="RPCSessionTimeoutError"):
        session.ask(Call(hanging.number), 60)
    farm.release(session.opened.address)

    farm.session_seconds = 600
    session = farm.connect(None)
    device = RemoteDevice(farm, harmless, session)
    program = RemoteProgram(device, "copies", harmless)
    assert isinstance(program.repeat(1), Repeated)
    # as if it had grown old
    session.opened_at -= farm.session_seconds
    assert isinstance(program.repeat(1), Repeated)
    with pytest.raises(OSError, match="closed"):
        session.ask(Call(harmless.number), 60)
    program.close()
    assert not harmless.path.exists()


def test_the_kernels_that_show_the_best_speeds_compute(
    lab: Lab, server: ForkServer, target: dict[str, Any], tmp_path: Path
) -> None:
    lab.start("speed")
    farm = Farm(Bench(server, target, DESCRIBING, 0, tmp_path), lab.tracker, "speed", None, 600, 30)
    session = farm.connect(None)
    try:
        for workload in (peak_workload(8), copy_workload(8)):
            library = farm.build(workload, None)
            assert isinstance(library, Library)
            session.ask(library.load(0), 60)
            again = session.ask(RepeatOf(library.number, Repeat(2)), 60)
            assert again.run_seconds > 0
    finally:
        session.close()


def test_what_is_missing_is_said(lab: Lab, plan_for: MakePlan, tmp_path: Path) -> None:
    lab.start("there")
    runner = plan_for("absent").runner
    assert isinstance(runner, RpcRunner)
    target = resolve_target({"kind": "llvm", "num-cores": 1})
    with pytest.raises(MeasurementError) as absent:
        runner.host(target)
    assert "has no device of key 'absent'; its keys: " in str(absent.value)
    assert "there (1)" in str(absent.value)
    assert f"{SERVER} --tracker 127.0.0.1:{lab.port} --key absent" in str(absent.value)

    many = replace(runner, key="there", slots=2)
    with pytest.raises(MeasurementError, match=r"slots: 2 devices of key 'there' are wanted, the tracker .* has 1"):
        many.host(target)

    port = free_port()
    with pytest.raises(MeasurementError) as unreachable:
        replace(runner, tracker_port=port).host(target)
    assert f"no RPC tracker at 127.0.0.1:{port} (" in str(unreachable.value)
    assert f"python -m {TRACKER} --host 127.0.0.1 --port {port}" in str(unreachable.value)

    there = replace(runner, key="there")
    with pytest.raises(ConfigError, match=r"target\.num-cores: .* runs 2 threads, got 512"):
        there.host({**target, "num-cores": 512})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_tvm(), "__version__", "0.1.0")
        with pytest.raises(ConfigError, match=r"127\.0\.0\.1:\d+ runs TVM .*, programs are built by 0\.1\.0 here"):
            there.host(target)
    with pytest.raises(ConfigError, match=r"target\.mcpu: .* does not have instructions .*avx10"):
        there.host({**target, "mcpu": "diamondrapids"})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"key": None}, "runner.devices.key must be a word, got None; it is what the servers were started with"),
        ({"tracker_host": ""}, "runner.devices.tracker_host must be a name or an address"),
        ({"tracker_port": 0}, "runner.devices.tracker_port must be a positive integer"),
        ({"tracker_port": 70000}, "runner.devices.tracker_port must be 65535 at most"),
        ({"slots": 0}, "runner.devices.slots must be a positive integer"),
        ({"session_timeout_seconds": 0}, "runner.devices.session_timeout_seconds must be a positive number"),
        ({"wait_seconds": -1}, "runner.devices.wait_seconds must be a positive number"),
    ],
)
def test_values_that_cannot_work_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RpcRunner(**{**values(), **changes})


def values() -> dict[str, Any]:
    return {
        "tracker_host": "127.0.0.1",
        "tracker_port": 9190,
        "key": "board",
        "slots": None,
        "session_timeout_seconds": 600,
        "wait_seconds": 20,
        "linker": None,
    }


def test_targets_that_cannot_work_are_refused() -> None:
    board = {"kind": "llvm", "mtriple": "riscv64-linux-gnu", "num-cores": 4}
    runner = RpcRunner(**values())
    with pytest.raises(ConfigError, match="runner=rpc measures programs of kind llvm alone"):
        runner.check({"kind": "cuda", "arch": "sm_80"})
    with pytest.raises(ConfigError, match="linker: programs for riscv64-linux-gnu need a compiler"):
        runner.check(board)
    with pytest.raises(ConfigError, match="linker: there is no program 'no-such-compiler' here"):
        replace(runner, linker="no-such-compiler").check(board)
    replace(runner, linker=sys.executable).check(board)
    with pytest.raises(ConfigError, match=r"target\.num-cores: the threads of programs for riscv64-linux-gnu"):
        resolve_target({"kind": "llvm", "mtriple": "riscv64-linux-gnu"})
    assert runner.identity(board) == "rpc key board, riscv64-linux-gnu"
