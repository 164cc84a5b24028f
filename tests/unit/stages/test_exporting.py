import csv
import json
import os
import stat
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError, KernelcastError, MalformedDataError, MissingInputError
from kernelcast.graphs.dataset.selection import Folder
from kernelcast.records import read_measurements
from kernelcast.stages.config import register_schemas
from kernelcast.stages.exporting import export

CONF = Path(__file__).resolve().parents[3] / "conf"


def config_of(root: Path, *overrides: str) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("export", overrides=[f"paths.root={root}", *overrides])
    OmegaConf.resolve(config)
    return config


@pytest.fixture
def root(trained_folder, tmp_path: Path) -> Path:
    """A project with made-up measurements; their modules and traces are none."""
    return Path(trained_folder.copy(tmp_path / "project").root)


def test_csv_goes_below_data_unless_told_otherwise(root: Path, tmp_path: Path) -> None:
    export(config_of(root, "format=csv"))
    with (root / "data" / "export" / "measurements.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 160
    export(config_of(root, "format=csv", f"output={tmp_path / 'mine.csv'}"))
    assert (tmp_path / "mine.csv").read_bytes() == (root / "data" / "export" / "measurements.csv").read_bytes()


@pytest.mark.parametrize("name", ["csv", "t4", "metaschedule", "dataset"])
def test_what_is_there_stays_unless_it_is_to_be_replaced(root: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / "out"
    inside = {
        "csv": output,
        "t4": output / "metadata.json",
        "metaschedule": output / "database_workload.json",
        "dataset": output / "DATASHEET.md",
    }[name]
    inside.parent.mkdir(exist_ok=True)
    inside.write_text("mine")
    with pytest.raises(ConfigError, match="overwrite=true"):
        export(config_of(root, f"format={name}", f"output={output}"))
    assert inside.read_text() == "mine"
    if name == "csv":
        export(config_of(root, "format=csv", f"output={output}", "overwrite=true"))
        assert inside.read_text().startswith("workload_name,")
    elif name == "dataset":
        export(config_of(root, "format=dataset", f"output={output}", "overwrite=true"))
        assert inside.read_text().startswith("# out\n")
    else:
        # nothing here has a trace or module: what fails half-way leaves what was there
        with pytest.raises(KernelcastError):
            export(config_of(root, f"format={name}", f"output={output}", "overwrite=true"))
        assert inside.read_text() == "mine"
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["t4", "metaschedule", "dataset"])
def test_a_folder_with_anything_else_is_never_replaced(root: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match=r"thesis\.tex, which is no part of such an export"):
        export(config_of(root, f"format={name}", f"output={tmp_path / 'out'}", "overwrite=true"))
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        export(config_of(root, f"format={name}", f"output={tmp_path / 'file'}", "overwrite=true"))
    with pytest.raises(ConfigError, match=r"campaign\.json|workloads\.json"):
        export(config_of(root, f"format={name}", f"output={root / 'data' / 'measurements'}", "overwrite=true"))


def test_a_file_takes_the_place_of_nothing_but_a_file(root: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for output, says in ((tmp_path, "is a folder; name a file"), (tmp_path / "pipe", "neither a file nor a free name")):
        with pytest.raises(ConfigError, match=says):
            export(config_of(root, "format=csv", f"output={output}", "overwrite=true"))
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(ConfigError, match="output is empty"):
        export(config_of(root, "output=''"))


def test_no_measurements_name_the_stage_that_makes_them(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="dvc repro measure"):
        export(config_of(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_message_with_its_place_reaches_the_user(root: Path) -> None:
    campaign = root / "data" / "measurements" / "campaign.json"
    campaign.write_text(json.dumps({**json.loads(campaign.read_text()), "version": 99}))
    with pytest.raises(KernelcastError, match=r"campaign\.json has version 99"):
        export(config_of(root))


def test_a_data_set_is_read_as_the_folder_it_was_made_of(root: Path) -> None:
    export(config_of(root, "format=dataset"))
    written = root / "data" / "export" / "dataset"
    original, packed = read_measurements(root / "data" / "measurements"), read_measurements(written)
    assert packed.campaign == original.campaign
    assert packed.workloads == original.workloads
    order = [("workload_key", "ascending"), ("program_key", "ascending")]
    assert packed.table.sort_by(order).equals(original.table.sort_by(order))
    # as `graphs` takes it
    assert Folder.read(written).measurements.workloads == original.workloads
    sheet = (written / "DATASHEET.md").read_text()
    assert f"{original.measured.num_rows} measured programs" in sheet
    (written / "workloads.parquet").write_bytes(b"torn")
    with pytest.raises(MalformedDataError, match=r"workloads\.parquet"):
        read_measurements(written)
