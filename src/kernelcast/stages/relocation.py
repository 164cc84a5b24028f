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


def relocate_artifacts(database: Path, old: str, new: str) -> bool:
    """Lets experiments and runs whose artifacts were below `old` find them below `new`.

    Nothing happens unless artifacts of known runs lie below `new`: then the folder was moved or copied there, and did
    not just get another setting.

    Args:
        database: MLflow's SQLite file.
        old: address (`file://...`) that the database has.
        new: address where the artifacts should be.

    Returns:
        Whether the addresses were changed.
    """
    if old == new or not old.startswith("file:"):
        return False
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        rows = connection.execute("SELECT artifact_uri FROM runs WHERE substr(artifact_uri, 1, ?) = ?", (len(old), old))
        if not any(_path(new + uri.removeprefix(old)).exists() for (uri,) in rows):
            return False
        for table, column in (
            ("experiments", "artifact_location"),
            ("runs", "artifact_uri"),
            # registered models
            ("model_versions", "source"),
            ("model_versions", "storage_location"),
        ):
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                (new, len(old) + 1, len(old), old),
            )
    logger.info("the artifacts of earlier runs are no longer in %s but in %s; their addresses follow", old, new)
    return True


def _path(address: str) -> Path:
    return Path(unquote(urlsplit(address).path))
