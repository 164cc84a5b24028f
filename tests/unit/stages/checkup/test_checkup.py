"""What a checkup says of installations, machines and folders that are known."""

import json
import sqlite3
import sys
from pathlib import Path

import pytest
from rich.console import Console

from kernelcast.measurement.steadiness import Steadiness
from kernelcast.measurement.tracker import Tracker
from kernelcast.stages.checkup.findings import (
    Finding,
    Status,
    count_sentence,
    findings_json,
    findings_table,
)
from kernelcast.stages.checkup.machine import (
    GIB,
    cores_findings,
    cpu_quota,
    load_finding,
    memory_finding,
    memory_limit,
    steadiness_findings,
    target_finding,
    tracker_finding,
)
from kernelcast.stages.checkup.project import database_finding, disk_finding, space_finding, writable_finding
from kernelcast.stages.checkup.software import (
    flavour_finding,
    installed_versions,
    pair_finding,
    python_finding,
    requirement_findings,
    revision_finding,
)
from kernelcast.tvm_compat import TESTED_VERSIONS


def test_the_tested_pair_passes_and_another_one_is_a_fault_with_the_command_to_repair_it() -> None:
    # TVM-04
    assert pair_finding(TESTED_VERSIONS).status is Status.OK
    other = pair_finding({"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post3"})
    assert other.status is Status.FAULT
    assert "0.1.15.post3: not the tested pair" in other.found
    assert "apache-tvm-ffi==0.1.14.post1" in other.advice


def test_a_revision_that_nobody_knows_is_told() -> None:
    assert revision_finding("0123456789abcdef", True, True).found.endswith(
        "git revision 0123456789ab, files differ from it"
    )
    for git, advice in ((True, "is it a clone"), (False, "install it")):
        finding = revision_finding("unknown", True, git)
        assert finding.status is Status.WARNING
        assert advice in finding.advice


def test_what_is_installed_here_is_as_declared() -> None:
    installed = installed_versions()
    assert installed["apache-tvm"] == TESTED_VERSIONS["apache-tvm"]
    assert python_finding(sys.version_info[:3]).status is Status.OK
    assert python_finding((3, 10, 1)).status is Status.FAULT


def test_packages_that_are_missing_or_of_another_version_are_named() -> None:
    declared = [
        "numpy>=2.3,<3",
        "mlflow==3.17.2",
        "ray>=2; extra == 'ray'",
        "absent>=1",
        "plotly; sys_platform == 'none'",
    ]
    wrong, right = requirement_findings(declared, {"numpy": "2.4.0", "mlflow": "3.18.0"})
    assert wrong.status is Status.WARNING
    assert wrong.found == "mlflow is 3.18.0, declared is ==3.17.2; absent is missing"
    assert right.found == "numpy 2.4.0"


def test_both_flavours_of_xgboost_are_a_fault() -> None:
    assert flavour_finding({"xgboost-cpu": "3.2.0"}).status is Status.OK
    assert flavour_finding({}).status is Status.FAULT
    both = flavour_finding({"xgboost-cpu": "3.2.0", "xgboost": "3.2.0"})
    assert both.status is Status.FAULT
    assert "pip uninstall xgboost xgboost-cpu" in both.advice


def test_targets_are_completed_or_refused_in_the_words_of_measure() -> None:
    # TVM-03: the count of cores is filled in and shown; the one-line form is refused with the dict to write instead
    filled = target_finding({"kind": "llvm"}, remote=False)
    assert filled.status is Status.OK
    assert '"num-cores": ' in filled.found
    refused = target_finding({"kind": "llvm -num-cores=4"}, remote=False)
    assert refused.status is Status.FAULT
    assert '{"kind": "llvm", "num-cores": 4}' in refused.advice


def test_limits_of_a_container_are_read(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert memory_limit(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("2147483648\n")
    assert cpu_quota(tmp_path) == 1.5
    assert memory_limit(tmp_path) == 2 * GIB
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert cpu_quota(tmp_path) is None
    assert memory_limit(tmp_path) is None
    older = tmp_path / "older"
    for folder in ("cpu", "memory"):
        (older / folder).mkdir(parents=True)
    (older / "cpu/cpu.cfs_quota_us").write_text("50000\n")
    (older / "cpu/cpu.cfs_period_us").write_text("100000\n")
    (older / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert cpu_quota(older) == 0.5
    assert memory_limit(older) is None


def test_cores_memory_and_load_are_judged() -> None:
    (whole,) = cores_findings(2, 2, [[0], [1]], None)
    assert whole.found == "2 of 2 hardware threads usable, on 2 cores"
    pairs, limited = cores_findings(4, 8, [[0, 4], [1, 5]], 1.5)
    assert "2 of them with several threads" in pairs.found
    assert limited.status is Status.WARNING
    assert "1 cores" in limited.advice
    assert memory_finding(20 * GIB, 32 * GIB, None, 4 * GIB).status is Status.OK
    assert memory_finding(20 * GIB, 32 * GIB, 2 * GIB, 4 * GIB).status is Status.WARNING
    assert memory_finding(1 * GIB, 32 * GIB, None, 4 * GIB).status is Status.WARNING
    assert load_finding(0.2, 2).status is Status.OK
    assert load_finding(3.0, 2).status is Status.WARNING


@pytest.mark.parametrize(
    ("spread", "near_best", "speeds", "verdict", "worst"),
    [
        (1.01, 0.9, (), "yes", Status.OK),
        (1.02, 0.6, (1.0, 1.37), "yes", Status.WARNING),
        (1.06, 0.3, (), "with care", Status.WARNING),
        (1.30, 0.05, (), "no", Status.FAULT),
    ],
)
def test_timing_is_worth_it_or_not(
    spread: float, near_best: float, speeds: tuple[float, ...], verdict: str, worst: Status
) -> None:
    measured = Steadiness(500, 6.0, 2e-3, 1.02, 1.2, near_best, spread, 1.4, speeds)
    findings = list(steadiness_findings(measured))
    assert findings[-1].found.startswith(f"{verdict}: ")
    assert f"differ by {spread - 1:.1%}" in findings[-1].found
    order = list(Status)
    assert max((finding.status for finding in findings), key=order.index) is worst
    assert all(bool(finding.advice) == (finding.status is not Status.OK) for finding in findings)
    assert bool(speeds) == any("1.37 times as long" in finding.found for finding in findings)


def test_disk_and_folders(tmp_path: Path) -> None:
    # of a folder that is not there yet, the one above it
    assert disk_finding(tmp_path / "not" / "there").found.endswith("not/there")
    assert space_finding(tmp_path, 100 * GIB, 200 * GIB).status is Status.OK
    assert space_finding(tmp_path, 2 * GIB, 200 * GIB).status is Status.WARNING
    assert space_finding(tmp_path, GIB // 2, 200 * GIB).status is Status.FAULT
    assert writable_finding([tmp_path / "not" / "there"]).status is Status.OK
    assert not (tmp_path / "not").exists()
    assert writable_finding([Path("/proc/nowhere")]).status is Status.FAULT


def test_the_database_of_runs(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    assert database_finding(f"sqlite:///{path}").status is Status.OK
    assert not path.exists(), "looking made it"
    with sqlite3.connect(path) as database:
        database.execute("create table runs (status text)")
        database.executemany("insert into runs values (?)", [("FINISHED",), ("FINISHED",), ("RUNNING",)])
    database.close()
    whole = database_finding(f"sqlite:///{path}")
    assert whole.status is Status.OK
    assert "2 finished, 1 running" in whole.found
    path.write_bytes(b"no database at all" * 100)
    broken = database_finding(f"sqlite:///{path}")
    assert broken.status is Status.FAULT
    assert "move the file away" in broken.advice
    # nobody listens there
    assert database_finding("http://127.0.0.1:9").status is Status.WARNING


def test_a_tracker_that_does_not_answer_is_a_fault_with_the_command_that_starts_one() -> None:
    away = tracker_finding(Tracker("127.0.0.1", 9), "board")
    assert away.status is Status.FAULT
    assert "tvm.exec.rpc_tracker --host 127.0.0.1 --port 9" in away.advice


def test_the_table_shows_every_finding_and_fits_80_columns() -> None:
    findings = [
        Finding("software", "Python", "3.11"),
        Finding("machine", "load", "[3] processes", Status.WARNING, "wait"),
        Finding("machine", "target", "x" * 200, Status.FAULT, "change [it]"),
    ]
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(findings_table(findings))
    printed = console.export_text()
    assert all(len(line) <= 80 for line in printed.splitlines())
    for text in ("software", "Python", "warning", "[3] processes", "wait", "fault", "change [it]"):
        assert text in printed
    assert count_sentence(findings) == "1 OK, 1 warning, 1 fault"
    assert count_sentence([*findings[:2], *findings[:2]]) == "2 OK, 2 warnings, 0 faults"
    assert json.loads(json.dumps(findings_json(findings)))["counts"] == {"OK": 1, "warning": 1, "fault": 1}
