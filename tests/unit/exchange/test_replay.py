import pytest

from kernelcast.exchange import replay as module
from kernelcast.exchange.replay import Replayed, replay
from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload


@pytest.fixture(params=[False, True], ids=["here", "in two processes"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(module, "TRACES_PER_WORKER", 1)
        monkeypatch.setattr(module, "CHUNK_TRACES", 5)
        monkeypatch.setattr(module, "available_cores", lambda: 2)
    return bool(request.param)


def test_every_trace_gives_its_program_or_says_why_not(
    candidates: list[tuple[Workload, Candidate]], processes: bool
) -> None:
    jobs = [(workload, candidate.trace) for workload, candidate in candidates]
    wrong = (candidates[0][0], candidates[-1][1].trace)
    seen: list[tuple[int, int]] = []
    found = replay([*jobs[:3], wrong, *jobs[3:]], {"kind": "llvm"}, lambda done, total: seen.append((done, total)))
    refused = found.pop(3)
    assert found == [Replayed(candidate.program_key) for _, candidate in candidates]
    assert refused.program_key == ""
    assert "does not apply to workload a small matmul" in refused.fault
    assert seen[-1] == (13, 13)
    assert seen == sorted(seen)


def test_nothing_to_do_is_nothing() -> None:
    assert replay([], {"kind": "llvm"}, lambda done, total: None) == []
