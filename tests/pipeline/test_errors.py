"""What a user gets who makes a mistake: one message, an exit status, nothing half-written."""

import tempfile

import pytest

from tests.pipeline.conftest import Project, copy_checkout

MISTAKES: list[tuple[tuple[str, ...], int, list[str]]] = [
    (("train.py", "modle=gcn"), 1, ["modle", "did you mean model?", "--help"]),
    (("train.py", "trainer.max_epoch=3"), 1, ["max_epoch", "did you mean trainer.max_epochs?"]),
    (("train.py", "learning_rate=3"), 1, ["learning_rate", "did you mean trainer.learning_rate?"]),
    (("predict.py", "mdoel=champion"), 1, ["mdoel", "did you mean model?"]),
    (("train.py", "trainer"), 1, ["a value is missing", "trainer=VALUE"]),
    (("train.py", "=gcn"), 1, ["=gcn", "no name before the ="]),
    (("predict.py", "output=vorhersagen für später.csv"), 1, ['output="vorhersagen für später.csv"', "quoted twice"]),
    (("train.py", "loss=[rank"), 1, ["loss=[rank", "quoted twice"]),
    # what nothing would read
    (("train.py", "+sede=1"), 1, ["+sede", "no such key", "--help"]),
    (("train.py", "+tracking.ury=x"), 1, ["+tracking.ury", "no such key"]),
    (("train.py", "seed=many"), 1, ["seed", "many"]),
    (("train.py", "seed=-1"), 2, ["seed=-1", "from 0"]),
    (("measure.py", f"seed={2**31}"), 2, ["seed=2147483648", "2147483647"]),
    (("graphs.py", "seed=-1"), 2, ["seed=-1"]),
    (("evaluate.py", "seed=-1"), 2, ["seed=-1"]),
    (("train.py", "objective=valid/tau"), 2, ["objective", "valid/tau", "valid/kendall_tau"]),
    (("train.py", "trainer.learning_rate=-1"), 2, ["trainer.learning_rate", "-1"]),
    (("train.py", "model=gnc"), 1, ["gnc", "did you mean model=gcn?", "graphsage"]),
    (("measure.py", "workload=resnet81"), 1, ["resnet81", "did you mean workload=resnet18?"]),
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
    (("train.py", "debug=tiny", "output=data/models/mine"), 2, ["debug=tiny", "leave `output` out"]),
    (("train.py", "debug=overfit", "model=random"), 2, ["debug=overfit", "learns nothing"]),
    (("doctor.py", "timing_seconds=-1"), 2, ["timing_seconds=-1", "no timing"]),
    (("measure.py", "target=nowhere"), 1, ["nowhere", "host", "cuda"]),
    # TVM-03
    (("measure.py", "+target=llvm -num-cores=4"), 1, ["--help"]),
    (("measure.py", "target.kind='llvm -num-cores=4'"), 2, ['{"kind": "llvm", "num-cores": 4}']),
]
"""A command, its exit status, and what its message names."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A checkout in which nothing has run."""
    return copy_checkout(tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def answers(empty: Project) -> dict[tuple[str, ...], tuple[int, str]]:
    """Exit status and output of each of `MISTAKES`."""
    # what a message has to name must not come from the configuration that is told before it
    environment = {"KERNELCAST_PRINT_CONFIG": "false"}
    answered = empty.run_together(
        [(f"scripts/{script}", *arguments) for (script, *arguments), _, _ in MISTAKES], environment
    )
    return {command: each for (command, _, _), each in zip(MISTAKES, answered, strict=True)}


@pytest.mark.parametrize(
    ("command", "status", "says"), MISTAKES, ids=lambda value: "_".join(value) if isinstance(value, tuple) else None
)
def test_a_mistake_is_one_clear_message(
    empty: Project, answers: dict, command: tuple[str, ...], status: int, says: list[str]
) -> None:
    found, printed = answers[command]
    assert found == status, printed
    assert "Traceback" not in printed
    for word in says:
        assert word in printed
    assert not list((empty.root / "data").glob("*/*.parquet")), "a mistake must not leave data"


def test_a_mistake_ends_a_process_of_its_own_in_the_same_way(empty: Project, answers: dict) -> None:
    for command in (("train.py", "modle=gcn"), ("graphs.py",)):
        done = empty.run("python", f"scripts/{command[0]}", *command[1:], "--quiet")
        status, printed = answers[command]
        assert done.returncode == status
        assert (done.stdout + done.stderr).splitlines()[-1].split(" ", 2)[-1] == printed.splitlines()[-1].split(" ", 2)[
            -1
        ]


def test_help_names_the_groups(empty: Project) -> None:
    printed = empty.succeed("python", "scripts/train.py", "--help")
    for group in ("  model=gcn ", "  loss=rank ", "  trainer=default "):
        assert group in printed
