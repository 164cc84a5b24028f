"""Machine code on disk, found by what it was compiled from and not by where that lies.

Numba's own cache has a folder for each path of a source file, so that every checkout compiles anew, and an index that
several processes write: of two that add different signatures at once, one may later be given the code of the other.
Here each compiled signature is a file of its own, named by all that decides its code. Only `compiled` imports this.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

from kernelcast.errors import StorageError
from kernelcast.files import atomic_file


class CodeCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """The cache of one kernel.

    Args:
        function: the kernel.
        folder: named by a hash of the sources that the code depends on.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._impl_class = lambda kernel: _Implementation(kernel, folder)
        super().__init__(function)
        self._cache_file = _CodeFiles(str(folder), self._impl.filename_base, self._impl.locator.get_source_stamp())


class _Locator(_CacheLocator):  # type: ignore[misc]  # numba has no types
    """The folder that it is given; its name stands for the sources."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return numba.__version__


class _Implementation(CompileResultCacheImpl):  # type: ignore[misc]  # numba has no types
    """Numba's, with our folder."""

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._lineno = function.__code__.co_firstlineno
        # in warnings of numba's
        self._locator = _Locator(folder)
        self._locator._py_file = function.__code__.co_filename
        self._filename_base = self.get_filename_base(function.__qualname__, "")


class _CodeFiles(IndexDataCacheFile):  # type: ignore[misc]  # numba has no types
    """A file for each signature, whole or not there; what cannot be written or read is compiled."""

    def save(self, key: Any, data: Any) -> None:
        """Keeps the code of one signature."""
        with suppress(StorageError), atomic_file(self._path(key)) as temporary:
            temporary.write_bytes(self._dump(data))

    def load(self, key: Any) -> Any:
        """The code of one signature, None where there is none."""
        try:
            return pickle.loads(self._path(key).read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def flush(self) -> None:
        """The files are other checkouts' too."""

    def _path(self, key: Any) -> Path:
        # types and processors have names that tell all of them
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return Path(self._cache_path, self._data_name_pattern.format(number=int(digest, 16)))
