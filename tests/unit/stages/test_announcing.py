"""What a script says of its configuration at the start."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from rich.console import Console

from kernelcast.stages import announcing
from kernelcast.stages.announcing import DVC_VARIABLE, PRINT_VARIABLE, announce, chosen_and_changed, configuration_tree
from kernelcast.stages.config import register_schemas

CONF = Path(__file__).resolve().parents[3] / "conf"
OVERRIDES = ["paths.root=/project", "loss=log_mse", "trainer.max_epochs=7"]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Iterator[DictConfig]:
    """A configuration of `train`, as Hydra hands it to the stage."""
    for variable in (PRINT_VARIABLE, DVC_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        whole = compose("train", overrides=[*OVERRIDES, "hydra.mode=RUN"], return_hydra_config=True)
    HydraConfig.instance().set_config(whole)
    with open_dict(whole):
        del whole["hydra"]
    OmegaConf.resolve(whole)
    yield whole
    HydraConfig.instance().cfg = None


def test_choices_and_changes_come_first(config: DictConfig) -> None:
    told = chosen_and_changed(HydraConfig.get().runtime.choices, OVERRIDES)
    choices, changes = told.split("; ")
    assert {"model=gcn", "loss=log_mse", "trainer=default"} <= set(choices.split())
    assert changes == "changed: paths.root=/project trainer.max_epochs=7"
    assert "hydra" not in told
    assert "null" not in told


def test_the_tree_has_every_value_and_shows_what_was_changed(config: DictConfig) -> None:
    console = Console(width=100, record=True, quiet=False, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(configuration_tree(config, "train", OVERRIDES))
    styled = console.export_text(styles=True, clear=False)
    printed = " ".join(console.export_text().split())
    for value in ("seed=0", "learning_rate=0.003", "GCN", "readout=[mean, max]", "from_run=null", "graphs=data/graphs"):
        assert value in printed
    assert "_target_" not in printed
    assert "\x1b[1;33mmax_epochs" in styled
    assert "\x1b[1;33mpatience" not in styled


@pytest.mark.parametrize(
    ("variable", "on_terminal", "in_file"),
    [
        (None, ["configuration: ", "learning_rate: 0.003"], ["configuration: ", "learning_rate: 0.003"]),
        # stages of DVC: a line is enough beside those of all others
        (DVC_VARIABLE, ["configuration: "], ["configuration: ", "learning_rate: 0.003"]),
        (PRINT_VARIABLE, [], []),
    ],
)
def test_where_it_is_told(
    config: DictConfig,
    variable: str | None,
    on_terminal: list[str],
    in_file: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if variable is not None:
        monkeypatch.setenv(variable, "false")
    file = logging.FileHandler(tmp_path / "train.log")
    root = logging.getLogger()
    root.addHandler(file)
    try:
        with caplog.at_level(logging.INFO):
            announce(config)
    finally:
        root.removeHandler(file)
        file.close()
    for text, wanted in ((caplog.text, on_terminal), ((tmp_path / "train.log").read_text(), in_file)):
        assert all(each in text for each in wanted)
        assert text.count("learning_rate") == ("learning_rate: 0.003" in wanted)
        assert bool(text) == bool(wanted)


def test_a_terminal_gets_the_tree_and_the_file_the_text(
    config: DictConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = logging.FileHandler(tmp_path / "train.log")
    logging.getLogger().addHandler(file)
    monkeypatch.setattr(announcing.sys.stdout, "isatty", lambda: True)
    try:
        with caplog.at_level(logging.INFO):
            announce(config)
    finally:
        logging.getLogger().removeHandler(file)
        file.close()
    assert "learning_rate" in capsys.readouterr().out
    assert "learning_rate" not in caplog.text
    assert "learning_rate: 0.003" in (tmp_path / "train.log").read_text()
