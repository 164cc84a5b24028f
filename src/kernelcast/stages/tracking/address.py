"""What may stand in `tracking.uri`, what of it is told, and whether somebody is there."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from kernelcast.errors import ConfigError

WAYS = "use a database, `tracking.uri=sqlite:///FILE`, or a server, `tracking.uri=http://HOST:PORT`"

PROBE_SECONDS = 3.0
"""In which a server has to say that it is there."""

PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Of database servers whose address names none."""


def check_address(uri: str) -> None:
    """Makes sure that `uri` can be the address of a store that keeps what it is told.

    Raises:
        ConfigError: it cannot.
    """
    if is_server(uri):
        try:
            parts = urlsplit(uri)
            wrong = "" if parts.hostname or parts.scheme not in ("http", "https") else "it names no host"
            _ = parts.port
        except ValueError as error:
            wrong = str(error)
        if wrong:
            raise ConfigError(f"tracking.uri={shown_address(uri)} is no address of a server: {wrong}; {WAYS}")
    elif uri.startswith("sqlite:"):
        if sqlite_file(uri) is None:
            raise ConfigError(f"tracking.uri={uri}: what is in memory is lost when the process ends; {WAYS}")
    elif _scheme(uri) in ("", "file"):
        raise ConfigError(f"tracking.uri={uri}: MLflow keeps no runs in a folder any more; {WAYS}")


def is_server(uri: str) -> bool:
    """Whether the store is behind a network, and not a database that MLflow opens by itself."""
    return _scheme(uri) in ("http", "https", "databricks") or uri == "databricks"


def sqlite_file(uri: str) -> Path | None:
    """The file behind a tracking address, None where it is none."""
    from sqlalchemy.engine import make_url

    name = make_url(uri).database if uri.startswith("sqlite:") else None
    return Path(name).absolute() if name and name != ":memory:" else None


def answers(uri: str) -> bool:
    """Whether somebody is at the address of a server, found out in seconds; a file is always there."""
    if _scheme(uri) in ("http", "https"):
        import requests

        try:
            return requests.get(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS).status_code < 500
        except requests.RequestException:
            return False
    parts = urlsplit(uri)
    port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
    if is_server(uri) or parts.hostname is None or port is None:
        return True
    # MLflow tries to connect to a database for a minute and a half
    try:
        socket.create_connection((parts.hostname, port), PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def shown_address(uri: str) -> str:
    """`uri` without its password, for logs and pages."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    return parts._replace(netloc=f"{name}:***{at}{host}").geturl() if at and colon else uri


def without_password(config: DictConfig) -> DictConfig:
    """The configuration as a run keeps it."""
    shown = shown_address(config.tracking.uri)
    if shown == config.tracking.uri:
        return config
    kept: DictConfig = config.copy()
    with read_write(kept), open_dict(kept):
        OmegaConf.update(kept, "tracking.uri", shown)
    return kept


def _scheme(uri: str) -> str:
    # urlsplit refuses some addresses as a whole
    return uri.partition(":")[0].lower() if ":" in uri else ""
