import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernelcast.graphs.kernels import compiled as module
from kernelcast.graphs.kernels.compiled import cache_directory, compiled, sources

VOCABULARY = "kernelcast.graphs.vocabulary"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(module.CACHE_VARIABLE, str(tmp_path))
    cache_directory.cache_clear()
    return tmp_path


def test_code_depends_on_all_that_a_kernel_takes_from_others() -> None:
    found = sources("kernelcast.graphs.kernels.program_values")
    names = {name.removeprefix("kernelcast.graphs.") for name in found}
    assert {"kernels.program_values", "kernels.statement_values", "flat_columns", "vocabulary"} <= names
    assert "ast" not in names


def test_a_changed_source_gets_a_folder_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache_directory("kernelcast.graphs.kernels.work")
    assert before is not None
    assert before.parent.parent == cache
    cache_directory.cache_clear()
    real = sources("kernelcast.graphs.kernels.work")
    monkeypatch.setattr(module, "sources", lambda name: real | {VOCABULARY: real[VOCABULARY] + "# another kind"})
    assert cache_directory("kernelcast.graphs.kernels.work") != before


def test_without_a_folder_kernels_run_all_the_same(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.CACHE_VARIABLE, str(cache / "file"))
    (cache / "file").write_text("")
    assert cache_directory("kernelcast.graphs.kernels.work") is None

    def doubled(values: np.ndarray) -> np.ndarray:
        return values * 2

    doubled.__module__ = "kernelcast.graphs.kernels.work"
    assert compiled(doubled)(np.arange(3)).tolist() == [0, 2, 4]


CALL = """
import numpy as np
from kernelcast.models.networks import node_kernels
edges = np.array([0, 1, 2, 2], np.int64), np.array([1, 0, 2, 0], np.int64)
first, columns = node_kernels.rows_of_edges(*edges, 3)
assert first.tolist() == [0, 1, 2, 3] and columns.tolist() == [1, 0, 0], (first, columns)
stats = node_kernels.rows_of_edges.stats
print(node_kernels.__file__, sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def started(checkout: Path, cache: Path, code: str = CALL) -> subprocess.Popen:
    environment = {**os.environ, module.CACHE_VARIABLE: str(cache), "PYTHONPATH": str(checkout)}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)


def hits_and_misses(process: subprocess.Popen, checkout: Path) -> tuple[int, int]:
    printed = process.communicate()[0].split()
    assert process.returncode == 0
    assert printed[0].startswith(str(checkout)), "not the copy was called"
    return int(printed[-2]), int(printed[-1])


@pytest.fixture
def checkouts(tmp_path: Path) -> list[Path]:
    """Two copies of the package in different folders."""
    package = Path(module.__file__).parents[2]
    copies = [tmp_path / "one" / "src", tmp_path / "another" / "place" / "src"]
    for copy in copies:
        shutil.copytree(package, copy / "kernelcast", ignore=shutil.ignore_patterns("__pycache__"))
    return copies


def test_checkouts_with_equal_sources_share_the_code_and_others_do_not(checkouts: list[Path], tmp_path: Path) -> None:
    one, another = checkouts
    cache = tmp_path / "cache"
    assert hits_and_misses(started(one, cache), one) == (0, 1)
    assert hits_and_misses(started(another, cache), another) == (1, 0)
    # another function of the same module is enough: nobody traces which ones a kernel calls
    source = another / "kernelcast" / "models" / "networks" / "node_kernels.py"
    source.write_text(source.read_text().replace("LEVELS = 2**32", "LEVELS = 2**31"))
    assert hits_and_misses(started(another, cache), another) == (0, 1)


def test_processes_that_compile_at_once_and_torn_files_do_no_harm(checkouts: list[Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    # of different types, so different code
    other = CALL.replace("np.int64)", "np.int32)")
    at_once = [(copy, started(copy, cache, code)) for copy, code in zip(checkouts, (CALL, other), strict=True)]
    assert [hits_and_misses(process, copy) for copy, process in at_once] == [(0, 1), (0, 1)]
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert len(files) == 2, "one for each type, nothing left over"
    again = CALL + other.partition("import node_kernels")[2]
    assert hits_and_misses(started(checkouts[0], cache, again), checkouts[0]) == (2, 0)
    for path in files:
        path.write_bytes(path.read_bytes()[:100])
    assert hits_and_misses(started(checkouts[0], cache), checkouts[0]) == (0, 1)


def test_numba_is_not_loaded_before_it_is_needed() -> None:
    code = (
        "import sys\n"
        "import kernelcast.graphs.extraction, kernelcast.graphs.programs, kernelcast.models.roofline\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
