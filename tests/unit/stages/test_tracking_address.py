"""Where runs may be recorded, and what somebody is told who names something else: at once, in one message."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError, StorageError
from kernelcast.stages.tracking import open_experiment, tracked_run


def config_of(root: Path, uri: str) -> DictConfig:
    return OmegaConf.create(
        {
            "tracking": {"uri": uri, "experiment": "kernelcast", "artifacts": f"{root}/runs/artifacts"},
            "paths": {"root": str(root), "runs": f"{root}/runs"},
        }
    )


@pytest.mark.parametrize(
    "uri",
    [
        # MLF-01: folders, which MLflow does not take any more
        "./mlruns", "file:///tmp/mlruns", "",
        # lost when the process ends
        "sqlite://", "sqlite:///", "sqlite:///:memory:",
        "ftp://somewhere/x", "nonsense://x", "uc:x", "http://", "http:///x", "http://host:port", "http://[::1",
    ],
)  # fmt: skip
@pytest.mark.timeout(20)
def test_an_address_that_cannot_be_is_one_clear_error(tmp_path: Path, uri: str) -> None:
    with pytest.raises(ConfigError, match=r"tracking\.uri=.*sqlite:///FILE"):
        open_experiment(config_of(tmp_path, uri))
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.timeout(20)
def test_a_database_server_that_is_away_is_told_at_once_and_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no database server answers at postgresql://me:\*\*\*@127\.0\.0\.1:9/x"):
        open_experiment(config_of(tmp_path, "postgresql://me:secret@127.0.0.1:9/x"))


def test_a_password_is_in_no_log_and_on_no_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = config_of(tmp_path, "http://me:secret@127.0.0.1:9")
    with tracked_run(config, "gcn", "train"):
        pass
    assert "http://me:***@127.0.0.1:9 does not take" in caplog.text
    assert "secret" not in caplog.text
    (calls,) = tmp_path.glob("runs/unsent/*/calls.jsonl")
    (kept,) = tmp_path.glob("runs/unsent/*/files/*/config.yaml")
    assert "http://me:***@" in calls.read_text()
    assert "http://me:***@" in kept.read_text()
    assert "secret" not in calls.read_text() + kept.read_text()


def change(statement: str) -> Callable[[Path, bytes], None]:
    def apply(path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)

    return apply


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path, content: path.write_bytes(b"no database"), "cannot open .*mlflow.db: .*move the file away"),
        (lambda path, content: path.write_bytes(b"\0" * 5000), "cannot open .*mlflow.db: .*move the file away"),
        (lambda path, content: path.write_bytes(content[: len(content) // 2]), "malformed.*move the file away"),
        (lambda path, content: path.mkdir(), "cannot open .*mlflow.db: unable to open"),
        # of an MLflow to come
        (
            change("UPDATE alembic_version SET version_num = 'abc'"),
            "of another MLflow: its schema is abc.*db upgrade",
        ),
        (
            change("UPDATE experiments SET lifecycle_stage = 'deleted'"),
            "experiment kernelcast .* was deleted; restore",
        ),
    ],
    ids=["text", "zeros", "half", "folder", "schema", "deleted experiment"],
)
@pytest.mark.timeout(30)
def test_a_database_that_cannot_be_used_is_one_clear_error_and_stays_as_it_is(
    tmp_path: Path, fresh_database: Path, spoil: Callable[[Path, bytes], None], told: str
) -> None:
    path = tmp_path / "runs/mlflow.db"
    path.parent.mkdir()
    spoil(path, fresh_database.read_bytes())
    before = path.is_file() and path.read_bytes()
    with pytest.raises(StorageError, match=told):
        open_experiment(config_of(tmp_path, f"sqlite:///{path}"))
    assert (path.is_file() and path.read_bytes()) == before


def test_a_database_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"sqlite:////proc/no/such/folder\.db"):
        open_experiment(config_of(tmp_path, "sqlite:////proc/no/such/folder.db"))
