"""A small network of a user's: saved, compiled with schedules, checked against torch, run with TVM alone, timed."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelcast.errors import ConfigError, MalformedDataError, MeasurementError
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.networks import own
from kernelcast.networks.extract import workloads_of
from kernelcast.networks.fusion_groups import FusionSpace, fusion_space, read_fusion_space
from kernelcast.networks.isolation import save_network
from kernelcast.networks.saved import EXAMPLE_FILE, NETWORK_FILE, SavedNetwork, read_network
from kernelcast.tuning.deployment import Deployment, deploy, read_deployment
from kernelcast.tuning.fusion import decide_fusion, fusion_tasks, sampled_traces
from kernelcast.tuning.fusion_table import fusion_json, fusion_tables
from kernelcast.tuning.latency import Contender, LatencySettings, deployed_contender, time_networks
from kernelcast.tuning.network import FUSED, STOCK, latencies_json, latency_table, network_latencies, network_tasks
from kernelcast.tuning.output_check import check_outputs
from kernelcast.tuning.schedules import ChosenSchedule, best_schedules, winning_schedules
from kernelcast.tuning.tasks import Task
from kernelcast.tuning.winners import Winner
from kernelcast.tvm_compat import resolve_target

NETWORK = """
import torch
from torch import nn

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.layer = nn.Conv2d(3, 8, 3), nn.Linear(8 * 14 * 14, 5)

    def forward(self, image, shift):
        hidden = torch.relu(self.convolution(image))
        return {"scores": self.layer(hidden.flatten(1)) + shift, "mean": hidden.mean((2, 3))}

def example():
    return torch.rand(1, 3, 16, 16), torch.rand(5)
"""

SECONDS = 1e-3


@pytest.fixture(scope="module")
def target() -> dict[str, Any]:
    return resolve_target({"kind": "llvm", "num-cores": 1})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedNetwork:
    folder = tmp_path_factory.mktemp("network")
    (folder / "mine.py").write_text(NETWORK)
    request = own.own_network("mine", str(folder / "mine.py"), "Network", "example")
    return save_network(request, folder / "saved")


@pytest.fixture(scope="module")
def schedules(saved: SavedNetwork, target: dict[str, Any]) -> dict[str, ChosenSchedule]:
    """A random schedule for each kernel but the last."""
    winners = []
    for workload in saved.workloads[:-1]:
        (drawn,) = sample_candidates(workload, target, 1, seed=0)
        task = Task(workload, workload.networks["mine"])
        winners.append(Winner(task, drawn.program_key, drawn.trace, SECONDS, SECONDS, True, None, 0.0))
    return winning_schedules(winners)


@pytest.fixture(scope="module")
def deployed(
    saved: SavedNetwork,
    schedules: dict[str, ChosenSchedule],
    target: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Deployment:
    return deploy(saved, schedules, target, tmp_path_factory.mktemp("deployed") / "mine")


@pytest.mark.slow
def test_a_saved_network_has_the_workloads_of_its_extraction(saved: SavedNetwork) -> None:
    extracted, _ = workloads_of(saved.request)
    assert list(saved.workloads) == extracted


def test_a_saved_network_has_tasks_and_torchs_outputs(saved: SavedNetwork) -> None:
    assert [(task.workload.kind, task.weight) for task in network_tasks(saved)] == [
        ("fused_conv2d_add_relu", 1),
        ("fused_matmul_add_add", 1),
        ("mean", 1),
    ]
    assert [(tensor.shape, tensor.dtype) for tensor in saved.inputs] == [((1, 3, 16, 16), "float32"), ((5,), "float32")]
    inputs, outputs = saved.example()
    assert [array.shape for array in inputs] == [tensor.shape for tensor in saved.inputs]
    assert [array.shape for array in outputs] == [(1, 5), (1, 8)]
    assert read_network(saved.folder) == saved


def test_a_deployed_network_uses_the_schedules_and_computes_what_torch_does(
    saved: SavedNetwork, schedules: dict[str, ChosenSchedule], deployed: Deployment, target: dict[str, Any]
) -> None:
    assert read_deployment(deployed.folder) == deployed
    # what only changes a shape is a view in the compiled network, and every other kernel is one of the tasks
    tasks = {task.workload.key for task in network_tasks(saved)}
    views = {workload.key for workload in saved.workloads} - tasks
    assert views
    assert set(deployed.kernels.values()) == tasks
    assert {deployed.kernels[name] for name in deployed.tuned} == schedules.keys() - views
    assert [deployed.kernels[name] for name in deployed.not_tuned] == [saved.workloads[-1].key]
    assert [check.equal for check in deployed.checks] == [True, True]
    found = best_schedules(deployed.folder, target)
    assert {key: json.loads(one.trace) for key, one in found.items()} == {
        key: json.loads(one.trace) for key, one in schedules.items() if key not in views
    }
    assert {one.run_seconds for one in found.values()} == {SECONDS}


def test_tvm_07_records_of_another_target_do_not_count(deployed: Deployment, target: dict[str, Any]) -> None:
    assert best_schedules(deployed.folder, {**target, "num-cores": 7}) == {}


def test_a_deployed_network_runs_with_tvm_alone(saved: SavedNetwork, deployed: Deployment) -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import numpy, tvm\n"
        "example = numpy.load('example.npz')\n"
        "vm = tvm.relax.VirtualMachine(tvm.runtime.load_module('network.so'), tvm.cpu())\n"
        "outputs = vm['main'](*[tvm.runtime.tensor(example[f'input_{n}']) for n in range(2)])\n"
        "for number, output in enumerate(outputs):\n"
        "    numpy.testing.assert_allclose(output.numpy(), example[f'output_{number}'], rtol=1e-4, atol=1e-5)\n"
        "assert not any(name.startswith('kernelcast') for name in sys.modules)\n"
        "print(len(outputs))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=deployed.folder, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"


def test_a_contender_that_fails_has_a_row_that_says_why(deployed: Deployment, target: dict[str, Any]) -> None:
    contenders = [deployed_contender("ours", deployed), Contender("gone", "kernelcast.networks.no_such", ())]
    ours, gone = time_networks(contenders, target, LatencySettings(rounds=2, repeat_seconds=0.001))
    assert len(ours.run_seconds) == 2
    assert ours.minimum_seconds is not None
    assert ours.median_seconds is not None
    assert 0 < ours.minimum_seconds <= ours.median_seconds
    assert (gone.run_seconds, gone.minimum_seconds) == ((), None)
    assert "ended with status 1; its last words: " in gone.note
    assert "no_such" in gone.note
    assert [row["note"] for row in latencies_json([ours, gone])] == ["", gone.note]
    assert latency_table("mine", [ours, gone]).row_count == 2


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [
        (np.float32([1.0, 1e-6]), np.float32([1.0005, 0.0]), True),
        (np.float32([1.0, 0.1]), np.float32([1.0, 0.0]), False),
        (np.float32([1.0, np.nan]), np.float32([1.0, 0.0]), False),
        (np.float32([np.inf, 1.0]), np.float32([np.inf, 1.0]), True),
        (np.float32([1.0]), np.float32([[1.0]]), False),
        (np.int64([3, 4]), np.int64([3, 4]), True),
        (np.int64([3, 5]), np.int64([3, 4]), False),
    ],
)
def test_outputs_are_equal_within_a_tolerance_of_their_type(
    found: np.ndarray, expected: np.ndarray, equal: bool
) -> None:
    (check,) = check_outputs([found], [expected])
    assert check.equal == equal
    assert type(check).from_json(json.loads(json.dumps(check.as_json(), allow_nan=False))) == check


def test_a_missing_output_is_a_difference() -> None:
    assert [check.equal for check in check_outputs([np.zeros(2)], [np.zeros(2), np.zeros(2)])] == [True, False]


def test_a_single_program_and_another_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^workload\.mine is a single program, not a network"):
        save_network(own.own_function("mine", "mine.py", "f"), tmp_path / "saved")
    (tmp_path / NETWORK_FILE).write_text('{"version": 99}')
    with pytest.raises(MalformedDataError, match="version 99"):
        read_network(tmp_path)


@pytest.fixture(scope="module")
def space(saved: SavedNetwork) -> FusionSpace:
    return fusion_space(saved)


def test_fusion_is_decided_by_predicted_sums_and_its_regret_by_measured_ones(
    saved: SavedNetwork, space: FusionSpace
) -> None:
    tasks = fusion_tasks(saved, space)
    keys = [task.workload.key for task in tasks]
    assert len(set(keys)) == len(keys)
    assert {key for group in space.groups for key in (group.fused, *group.members)} <= set(keys)

    first, second = space.groups[:2]
    predicted = dict.fromkeys(keys, 1.0) | {first.fused: len(first.members) + 0.5, second.fused: 0.5}
    measured = dict.fromkeys(keys, 1.0) | {first.fused: 2.0, second.fused: 5.0}
    traces = {key: ["worse", "best"] for key in keys}
    choices = decide_fusion(saved, space, traces, lambda workload, _: np.log([9.0, predicted[workload.key]]), measured)
    assert [choice.fuses for choice in choices.choices] == [False, True]
    assert choices.apart == (first.fused,)
    assert choices.choices[0].predicted_apart_seconds == pytest.approx(len(first.members))
    apart, other = len(first.members), len(second.members)
    assert apart > 2
    assert other < 5
    assert {rule.rule: (rule.fused, rule.run_seconds) for rule in choices.rules()} == {
        "TVM's rule": (2, pytest.approx(7.0)),
        "learned": (1, pytest.approx(apart + 5.0)),
        "nothing fused": (0, pytest.approx(apart + other)),
        "best": (1, pytest.approx(2.0 + other)),
    }
    assert [rule.regret_seconds for rule in choices.rules()] == pytest.approx(
        [5 - other, apart + 3 - other, apart - 2, 0]
    )
    assert [table.row_count for table in fusion_tables(choices)] == [2, 4]
    assert json.loads(json.dumps(fusion_json(choices)))["choices"][0]["fuses"] is False


def test_a_group_without_a_schedule_stays_as_tvm_has_it(saved: SavedNetwork, space: FusionSpace) -> None:
    first, second = space.groups[:2]
    traces = {key: [""] for group in (second,) for key in (group.fused, *group.members)}
    choices = decide_fusion(saved, space, traces, lambda workload, given: np.zeros(len(given)), {})
    assert [choice.group for choice in choices.choices] == [second]
    assert choices.rules() == []
    (line,) = choices.undecided
    assert line.startswith("mine.fused_conv2d_add_relu_1: no schedule of mine.fused_conv2d_add_relu_1, ")
    assert first.fused not in choices.apart


@pytest.mark.slow
def test_a_network_that_is_wrong_is_not_written(saved: SavedNetwork, target: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(saved.folder, tmp_path / "saved")
    with np.load(saved.folder / EXAMPLE_FILE) as stored:
        arrays: dict[str, Any] = dict(stored)
    arrays["output_1"][0, 3] += 10.0
    np.savez(tmp_path / "saved" / EXAMPLE_FILE, **arrays)
    with pytest.raises(MeasurementError, match=r"^network mine: .*output 1 \(float32\)") as error:
        deploy(read_network(tmp_path / "saved"), {}, target, tmp_path / "deployed")
    assert "largest difference" in str(error.value)
    assert "at [0, 3], tolerance 0.001" in str(error.value)
    assert not (tmp_path / "deployed").exists()


@pytest.mark.slow
def test_a_schedule_of_another_workload_and_a_time_limit_are_one_message(
    saved: SavedNetwork, schedules: dict[str, ChosenSchedule], target: dict[str, Any], tmp_path: Path
) -> None:
    first, second = list(schedules.values())[:2]
    wrong = {first.workload.key: ChosenSchedule(first.workload, second.trace, SECONDS)}
    with pytest.raises(MeasurementError, match=r"^network mine: the trace does not apply to workload mine\."):
        deploy(saved, wrong, target, tmp_path / "deployed")
    with pytest.raises(MeasurementError, match=r"compiles and runs the network mine was not ready after 0\.01 s"):
        deploy(saved, {}, target, tmp_path / "deployed", timeout_seconds=0.01)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_fusion_of_a_saved_network_can_be_applied(
    saved: SavedNetwork,
    space: FusionSpace,
    target: dict[str, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert read_fusion_space(saved) == space
    group = space.groups[0]
    traces = sampled_traces(fusion_tasks(saved, space), target, 1, seed=0)
    workloads = {task.workload.key: task.workload for task in fusion_tasks(saved, space)}
    chosen = {key: ChosenSchedule(workloads[key], trace, SECONDS) for key, (trace,) in traces.items()}
    with caplog.at_level(logging.WARNING):
        deployed = deploy(saved, chosen, target, tmp_path / "apart", apart=[group.fused])
    assert group.fused not in deployed.kernels.values()
    assert set(group.members) <= {deployed.kernels[name] for name in deployed.tuned}
    assert deployed.not_tuned == ()
    assert caplog.records == []


@pytest.mark.slow
@pytest.mark.timeout(900)  # TorchInductor and a C++ compiler
def test_latencies_beside_untuned_tvm_and_torch(
    saved: SavedNetwork, deployed: Deployment, target: dict[str, Any]
) -> None:
    rows = network_latencies(saved, {"ours": deployed}, target, LatencySettings(rounds=2, repeat_seconds=0.001))
    assert [row.contender for row in rows] == ["ours", FUSED, STOCK, "torch eager", "torch.compile"]
    # torch.compile needs a C++ compiler, without which its row says so
    assert all(len(row.run_seconds) == 2 for row in rows[:4])
    assert len(rows[4].run_seconds) == 2 or rows[4].note
    assert {row.threads for row in rows[:4]} == {1}
