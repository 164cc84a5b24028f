"""Every file of conf/splitter makes a splitter that splits, with what Hydra hands it."""

from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits import Rows, Split, SplitWorkload, make_split
from kernelcast.stages.config import register_schemas
from kernelcast.stages.instantiation import made

CONF = Path(__file__).resolve().parents[2] / "conf"
FILES = sorted(path.stem for path in (CONF / "splitter").glob("*.yaml"))
NETWORKS = [["resnet18"], ["bert"], ["vit"], ["vit"], [], []]
TARGETS = ({"kind": "llvm", "num-cores": 2}, {"kind": "cuda", "keys": ["cuda", "gpu"]})


@pytest.fixture(scope="module")
def rows() -> Rows:
    kinds = ["conv2d", "fused_matmul_add", "matmul", "softmax", "layer_norm", "conv2d"]
    workloads = tuple(
        SplitWorkload(f"{number:016x}", f"w{number}", kind, {}, dict.fromkeys(NETWORKS[number], 1))
        for number, kind in enumerate(kinds)
    )
    workload, target, program = (column.ravel() for column in np.indices((6, 2, 12)))
    keys = np.char.add(workload.astype(np.str_), np.char.add("p", program.astype(np.str_)))
    return Rows(workload, target, keys, workloads, TARGETS)


def split_by(name: str, rows: Rows, *overrides: str) -> Split:
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("graphs", overrides=[f"+splitter@split.tried={name}", *overrides])
    OmegaConf.resolve(config)
    return make_split(made("split.tried", config.split.tried), rows)


@pytest.mark.parametrize("name", FILES)
def test_it_splits_without_a_leak(rows: Rows, name: str) -> None:
    held = ["split.tried.hold_out={kind: cuda, keys: [cuda, gpu]}"] if name in ("target", "few_shot") else []
    if name == "transfer":
        held = ["split.tried.shots=4"]  # of the 12 programs that a workload has here
    splits = [split_by(name, rows, *held, f"seed={seed}") for seed in range(5)]
    assert all(len(part) for split in splits for _, part in split.parts())
    assert len({str([part.tolist() for _, part in split.parts()]) for split in splits}) > 1


def test_resnet18_and_bert_are_held_out_by_default(rows: Rows) -> None:
    assert set(rows.workload[split_by("network", rows).test].tolist()) == {0, 1}


def test_few_shots_are_those_of_the_file(rows: Rows) -> None:
    split = split_by("few_shot", rows, "split.tried.hold_out={kind: cuda}")
    assert (rows.target[split.train] == 1).sum() == 8 * 6


@pytest.mark.parametrize("name", ["target", "few_shot"])
def test_a_target_must_be_named(rows: Rows, name: str) -> None:
    with pytest.raises(ConfigError, match=r'hold_out names no target; .*\{"kind": "llvm", "num-cores": 2\}; \{"kind"'):
        split_by(name, rows)


@pytest.mark.parametrize(
    ("name", "setting"),
    [("network", "networks=bert"), ("kind", "kinds=[]"), ("few_shot", "shots=many"), ("random", "test_share=2")],
)
def test_what_cannot_work_is_one_message(rows: Rows, name: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.split("=")[0]):
        split_by(name, rows, f"split.tried.{setting}")
