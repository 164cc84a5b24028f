import errno
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from kernelcast.errors import (
    ConfigError,
    KernelcastError,
    MalformedDataError,
    MeasurementError,
    MissingInputError,
    StorageError,
)
from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage, with_own_key
from kernelcast.stages.help import EXIT_STATUSES

CONF = Path(__file__).resolve().parents[3] / "conf"


def test_memory_that_ran_out_is_one_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # case TEN-03
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("graphs", overrides=[f"paths.root={tmp_path}", "hydra.mode=RUN"], return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]

    def stage(config: DictConfig) -> None:
        bytearray(2**62)

    try:
        with caplog.at_level(logging.ERROR), pytest.raises(SystemExit) as ended:
            run_stage(stage, config)
    finally:
        HydraConfig.instance().cfg = None
    assert ended.value.code == 1
    assert [record.message for record in caplog.records if "the memory ran out" in record.message]


@pytest.mark.parametrize(
    ("argument", "root", "taken"),
    [
        # Hydra would take it for the choice of a file of conf/model
        ("model=gcn", "register", "model_name=gcn"),
        ("model=models:/kernelcast@champion", "predict", "model_name=models:/kernelcast@champion"),
        ("workload=matmul", "look", "workload_name=matmul"),
        ("model=gcn", "train", "model=gcn"),
        ("workload=tiny", "predict", "workload=tiny"),
        ("model", "predict", "model"),
        ("seed=1", "predict", "seed=1"),
    ],
)
def test_a_script_has_keys_that_elsewhere_are_groups(argument: str, root: str, taken: str) -> None:
    assert with_own_key(argument, root) == taken


def composed(root: Path) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("report", overrides=[f"paths.root={root}", "hydra.mode=RUN"], return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    return config


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KernelcastError("x"), 1),
        (ConfigError("x"), 2),
        (MissingInputError("x"), 3),
        (MalformedDataError("x"), 4),
        (MeasurementError("x"), 5),
        (StorageError("x"), 6),
        (OSError(errno.ENOSPC, "full", "x"), 6),
        (KeyboardInterrupt(), 130),
    ],
    ids=repr,
)
def test_an_error_ends_with_the_status_that_help_gives_it(
    error: BaseException, status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stage(config: DictConfig) -> None:
        raise error

    config = composed(tmp_path)
    try:
        with caplog.at_level(logging.ERROR), pytest.raises(SystemExit) as ended:
            run_stage(stage, config)
    finally:
        HydraConfig.instance().cfg = None
    assert ended.value.code == status
    assert status in EXIT_STATUSES
    (record,) = caplog.records
    assert record.exc_info is None, "a trace is for faults of kernelcast"


def test_an_interrupt_before_the_stage_begins_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", [str(CONF.parent / "scripts/train.py")])
    with pytest.raises(SystemExit) as ended:
        launch(main)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted; nothing was begun\n"


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_the_flag_of_a_sweep_may_stand_anywhere(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    typed = ["model=gcn,treegru", flag, "loss=rank"]
    monkeypatch.setattr(sys, "argv", [str(CONF.parent / "scripts/train.py"), *typed])
    seen: list[str] = []
    launch(lambda: seen.extend(sys.argv[1:]))
    assert seen == [flag, "model=gcn,treegru", "loss=rank"]


def test_a_script_by_a_link_and_with_closed_streams_is_the_script(tmp_path: Path) -> None:
    link = tmp_path / "ask for it.py"
    link.symlink_to(CONF.parent / "scripts/results.py")
    asked = [sys.executable, str(link), "--help"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("python scripts/results.py")
    # `>&-`: nobody hears it, and the next file that is opened is not the output; a stream that is none has no methods
    closed = f"import os; [os.close(number) for number in (0, 1)]; os.execv({asked[0]!r}, {[*asked[:2], 'top']!r})"
    refused = subprocess.run([asked[0], "-c", closed], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    assert refused.returncode == 1
    assert "top: a value is missing" in refused.stderr
    assert "Traceback" not in refused.stderr
