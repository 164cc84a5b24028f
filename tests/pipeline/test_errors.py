"""What a user gets who makes a mistake: one message, an exit status, nothing half-written."""

import tempfile

import pytest

from tests.pipeline.conftest import Project, copy_checkout


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A checkout in which nothing has run."""
    return copy_checkout(tmp_path_factory.mktemp("empty"))


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        (("train.py", "modle=gcn"), 1, ["modle", "did you mean model?", "--help"]),
        (("train.py", "trainer.max_epoch=3"), 1, ["max_epoch"]),
        (("train.py", "seed=many"), 1, ["seed", "many"]),
        (("train.py", "seed=-1"), 2, ["seed=-1", "from 0"]),
        (("measure.py", f"seed={2**31}"), 2, ["seed=2147483648", "2147483647"]),
        (("graphs.py", "seed=-1"), 2, ["seed=-1"]),
        (("evaluate.py", "seed=-1"), 2, ["seed=-1"]),
        (("train.py", "objective=valid/tau"), 2, ["objective", "valid/tau", "valid/kendall_tau"]),
        (("train.py", "trainer.learning_rate=-1"), 2, ["trainer.learning_rate", "-1"]),
        (("train.py", "model=gnc"), 1, ["gnc", "gcn", "graphsage"]),
        (("train.py", "-m", "hparams_search=gnc"), 1, ["gnc", "graphsage"]),
        (("train.py", "hparams_search=gcn"), 2, ["-m hparams_search=gcn"]),
        (("train.py", "debug=tyni"), 1, ["tyni", "tiny"]),
        (("train.py", "paths.runs=/dev/null"), 6, ["/dev/null", "file"]),
        (("graphs.py", "paths.root=''", f"paths.runs={tempfile.gettempdir()}/runs"), 2, ["paths.root", "empty"]),
        (("train.py", "direction=up"), 1, ["up", "maximize", "minimize"]),
        (("train.py",), 3, ["data/graphs", "dvc repro graphs"]),
        (("graphs.py",), 3, ["data/measurements", "dvc repro measure"]),
        (("graphs.py", "label=mean"), 2, ["label", "mean", "minimum"]),
        (("evaluate.py",), 3, ["data/graphs", "dvc repro graphs"]),
        (("report.py",), 3, ["dvc repro"]),
        (("measure.py", "samples_per_workload=0"), 2, ["samples_per_workload"]),
        (("measure.py", "evolved_share=1"), 2, ["evolved_share", "samples_per_workload"]),
        (("measure.py", "max_failure_share=30"), 2, ["max_failure_share", "between 0 and 1"]),
        # a key of the first release
        (("measure.py", "runner.rounds=3"), 1, ["runner.rounds", "--help"]),
        (("measure.py", "runner.timing.most_rounds=0"), 2, ["runner.timing.most_rounds"]),
        (
            ("measure.py", "runner.timing.least_rounds=99"),
            2,
            ["runner.timing.least_rounds", "runner.timing.most_rounds"],
        ),
        (("measure.py", "runner.timing.way=in_turns"), 1, ["way", "in_turns", "rounds", "in_a_row"]),
        (("measure.py", "runner.timing.cache=hot"), 1, ["cache", "hot", "warm", "cold"]),
        (("measure.py", "runner.check_share=2"), 2, ["runner.check_share", "between 0 and 1"]),
        (("measure.py", "runner.remeasure_share=-1"), 2, ["runner.remeasure_share", "between 0 and 1"]),
        (("measure.py", "runner.devices.slots=1000"), 2, ["runner.devices.slots", "num-cores", "cores"]),
        (("measure.py", "runner.devices.slot=1"), 1, ["slot"]),
        (("measure.py", "runner=null"), 1, ["runner=null", "--help"]),
        (("measure.py", "runner=slow"), 1, ["slow", "quick", "in_a_row"]),
        (("measure.py", "target.num-cores=0"), 2, ["num-cores"]),
        (("measure.py", "target.num-cores=4096"), 2, ["target.num-cores", "4096"]),
    ],
)
def test_a_mistake_is_one_clear_message(empty: Project, command: tuple, status: int, says: list[str]) -> None:
    done = empty.run("python", f"scripts/{command[0]}", *command[1:])
    printed = done.stdout + done.stderr
    assert done.returncode == status, printed
    assert "Traceback" not in printed
    for word in says:
        assert word in printed
    assert not list((empty.root / "data").glob("*/*.parquet")), "a mistake must not leave data"


def test_help_names_the_groups(empty: Project) -> None:
    printed = empty.succeed("python", "scripts/train.py", "--help")
    for group in ("model: ", "loss: ", "trainer: "):
        assert group in printed
