"""Reading and writing files so that nobody ever takes a half-written one for whole."""

import errno
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kernelcast.errors import KernelcastError, MalformedDataError, MissingInputError, StorageError

LOCK_SUFFIX = ".lock"
SCRATCH_FOLDER = "scratch"

BY_SCRIPT = frozenset({"compare", "experiment", "import", "tune"})
"""What no stage of the pipeline makes, but a script of this name."""


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns the disk's refusals (full, forbidden, read-only) into one clear `StorageError`.

    It names the file that the system names, or else `path`.

    Raises:
        StorageError: in place of the `OSError` that the body raised.
    """
    reasons = {
        errno.ENOSPC: ("no space left on the disk", "free some space"),
        errno.EFBIG: ("the file may not become that large", "raise the limit of file sizes (`ulimit -f`)"),
        errno.EDQUOT: ("the disk quota is used up", "free some space"),
        errno.EACCES: ("permission denied", "make the folder writable or set another one with paths.root=FOLDER"),
        errno.EROFS: ("the file system is read-only", "set another folder with paths.root=FOLDER"),
        errno.EIO: ("the disk reports an error", "check the disk"),
        # something else has the name of the file or of a folder above it
        errno.EEXIST: ("a file of this name is in the way", "remove it or set another folder"),
        errno.ENOTDIR: ("a file is where a folder should be", "remove it or set another folder"),
        errno.EISDIR: ("a folder is where a file should be", "remove it or set another folder"),
        errno.ENAMETOOLONG: ("the name is too long", "set another folder"),
    }
    try:
        yield
    except OSError as error:
        if error.errno not in reasons:
            raise
        reason, step = reasons[error.errno]
        where = error.filename or path
        raise StorageError(f"cannot write {where}: {reason}; {step} and run the same command again") from error


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path` that replaces it only when the body ends without an error."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            _flush_to_disk(temporary)
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def only_process(path: Path, taken: KernelcastError) -> Iterator[None]:
    """Holds `path` for this process, by a lock beside it: what is inside a folder gets versioned.

    Raises:
        KernelcastError: `taken`, where another process holds it.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f".{path.name}{LOCK_SUFFIX}"))
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise taken from error
    try:
        yield
    finally:
        lock.release()


def remove_leftovers(path: Path) -> None:
    """Removes what writers of `path` that were killed left beside it; only for whoever is its one writer."""
    with storage_errors(path):
        for leftover in path.parent.glob(f".{glob.escape(path.name)}.*"):
            if leftover.suffix == LOCK_SUFFIX:
                # the caller's own: without the file another process would take a lock of its own beside it
                continue
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()


def require_replaceable(path: Path, marker: str) -> None:
    """Makes sure that nothing but an earlier output of the same kind, or an empty folder, is at `path`.

    Args:
        path: what is to be replaced.
        marker: a file that every such output has.

    Raises:
        StorageError: something else is there.
    """
    if path.is_dir() and ((path / marker).is_file() or not any(path.iterdir())):
        return
    if path.exists() or path.is_symlink():
        raise StorageError(
            f"{path} is there and is not what is written here (it has no {marker}), so it is not replaced; move it "
            "away, or set another folder"
        )


def require_writable(path: Path) -> None:
    """Makes sure, before any work, that a file or folder can be made at `path`; makes nothing.

    Raises:
        StorageError: the disk refuses, or a file is where a folder should be.
    """
    try:
        folder = next(above for above in path.absolute().parents if above.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; set another place") from error


@contextmanager
def atomic_directory(path: Path, marker: str | None = None) -> Iterator[Path]:
    """Yields a temporary folder beside `path` that replaces it, whole, only when the body ends without an error.

    Args:
        path: the folder.
        marker: see `require_replaceable`; None where the caller has looked, or the folder is one that it made.
    """
    if marker is not None:
        require_replaceable(path, marker)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        retired = temporary.with_name(temporary.name + ".old")
        try:
            yield temporary
            temporary.chmod(0o755)
            if path.exists():
                path.rename(retired)
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(retired, ignore_errors=True)


@contextmanager
def scratch_folder(directory: Path) -> Iterator[Path]:
    """A folder for files of one run, inside `directory` so that the next run removes what a killed one left.

    Only for whoever is the one writer of `directory`; see `only_process`.
    """
    folder = directory / SCRATCH_FOLDER
    with storage_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    try:
        # compilers want a whole path, wherever they run
        yield folder.resolve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, atomically; NaN and infinity are refused because JSON has neither."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path, made_by: str) -> Any:
    """Reads a JSON file that the stage `made_by` wrote.

    Raises:
        MissingInputError: there is no such file; the message names the command that makes it.
        MalformedDataError: it is empty or not JSON.
    """
    text = read_text(path, made_by)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of too many digits
        raise MalformedDataError(
            f"{path} is not valid JSON ({error}); delete it and run `{command_of(made_by)}`"
        ) from error


def json_hash(value: Any) -> str:
    """A hash over what `value` is as JSON, 16 hexadecimal digits; the order of keys does not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_text(path: Path, made_by: str) -> str:
    """Reads a text file that the stage `made_by` wrote; see `read_json` for the errors."""
    require(path, made_by)
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise MalformedDataError(
            f"{path} is not text (byte {error.start}); delete it and run `{command_of(made_by)}`"
        ) from error
    except OSError as error:
        raise unreadable(path, made_by, error) from error


def command_of(made_by: str) -> str:
    """The command that makes the output of `made_by`, a stage of the pipeline or one of `BY_SCRIPT`."""
    return f"python scripts/{made_by}.py" if made_by in BY_SCRIPT else f"dvc repro {made_by}"


def unreadable(path: Path, made_by: str, error: Exception) -> MalformedDataError:
    """The error that says why `path`, an output of the stage `made_by`, cannot be read."""
    if isinstance(error, PermissionError):
        return MalformedDataError(f"{path} cannot be read: permission denied; make it readable for you")
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())
    return MalformedDataError(f"{path} cannot be read: {reason}; delete it and run `{command_of(made_by)}`")


def require(path: Path, made_by: str) -> None:
    """Makes sure that `path`, an output of the stage `made_by`, exists.

    Raises:
        MissingInputError: it does not; the message names the command that makes it.
    """
    if not path.exists():
        raise MissingInputError(f"{path} does not exist; run `{command_of(made_by)}` first")


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
