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


def test_numba_is_not_loaded_before_it_is_needed() -> None:
    code = (
        "import sys\n"
        "import kernelcast.graphs.extraction, kernelcast.graphs.programs, kernelcast.models.roofline\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
