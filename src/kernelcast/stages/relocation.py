"""A checkout that was moved: MLflow stores where artifacts are as absolute addresses, so they are moved along.

See https://github.com/mlflow/mlflow/issues/3144.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

logger = logging.getLogger(__name__)

MOVING = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    # registered models
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Tables and columns with addresses of artifacts."""


def relocate_artifacts(database: Path, experiment_id: str, old: str, new: str) -> bool:
    """Lets an experiment keep the artifacts of its next runs below `new`, and earlier runs find theirs there.

    Earlier runs stay where they are unless artifacts of known ones lie below `new`: then the folder was moved or copied
    there, and did not just get another setting.

    Args:
        database: MLflow's SQLite file.
        experiment_id: of the experiment.
        old: address (`file://...`) that it has.
        new: address where its artifacts should be.

    Returns:
        Whether the addresses of earlier runs were changed.
    """
    if old == new or not old.startswith("file:"):
        return False
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        query = "SELECT artifact_uri FROM runs WHERE substr(artifact_uri, 1, ?) = ?"
        earlier = connection.execute(query, (len(old), old)).fetchall()
        moved = any(_path(new + uri.removeprefix(old)).exists() for (uri,) in earlier)
        if moved:
            for table, column in MOVING:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                    (new, len(old) + 1, len(old), old),
                )
        connection.execute(
            "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?", (new, int(experiment_id))
        )
    if moved:
        logger.info("the artifacts of earlier runs are no longer in %s but in %s; their addresses follow", old, new)
    elif earlier:
        logger.info("artifacts are kept in %s from now on, those of earlier runs in %s", new, old)
    return moved


def _path(address: str) -> Path:
    return Path(unquote(urlsplit(address).path))
