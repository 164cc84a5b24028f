import dataclasses
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.exchange.t4 import METADATA_FILE, write_t4
from kernelcast.exchange.times import Times
from kernelcast.records import Measurements, Outcome, measurement_table

# the rules that the schemas of autotuning_methodology 1.1.0 and Kernel Tuner 1.0.0 state, in our words
INVALIDITY = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
TIME_UNITS = {"nanoseconds", "microseconds", "milliseconds", "seconds"}
NUMBER = (int, float)
TIMES = {"compilation_time", "framework", "search_algorithm", "validation", "data", "kernel_overhead"}


def check_version(document: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", document["schema_version"])


def check_results(document: dict[str, Any]) -> None:
    check_version(document)
    context = document["metadata"]
    assert context.get("compute_api", "CUDA") in {"OpenCL", "CUDA", "Vulkan"}
    assert context["timeunit"] in TIME_UNITS
    for name in ("platform", "device", "autotuner", "autotuner_version"):
        assert isinstance(context[name], str)
    for result in document["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= set(result)
        assert isinstance(result["configuration"], dict)
        assert isinstance(result.get("timestamp", ""), str)
        assert all(isinstance(value, NUMBER) for name, value in result["times"].items() if name in TIMES)
        assert all(isinstance(value, NUMBER) for value in result["times"]["runtimes"])
        assert result["invalidity"] in INVALIDITY
        assert result["correctness"] in (0, 1)
        assert all(isinstance(name, str) for name in result["objectives"])
        for measurement in result["measurements"]:
            assert isinstance(measurement["name"], str)
            assert isinstance(measurement["unit"], str)
            assert isinstance(measurement["value"], int | float | str | list)
        # a reader wants every objective exactly once among the measurements
        names = [measurement["name"] for measurement in result["measurements"]]
        assert all(names.count(objective) == 1 for objective in result["objectives"])


def check_metadata(document: dict[str, Any]) -> None:
    check_version(document)
    hardware, environment = document["metadata"]["hardware"], document["metadata"]["environment"]
    assert isinstance(hardware.get("hardware_description", []), list)
    assert isinstance(hardware.get("operating_system", ""), str)
    assert isinstance(environment["device_query"], dict)
    assert isinstance(environment["requirements"], list)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize("times", list(Times))
def test_every_program_is_there_and_obeys_the_schema(measurements: Measurements, tmp_path: Path, times: Times) -> None:
    counts = write_t4(measurements, tmp_path, times)
    assert counts == dict.fromkeys(["a_small_matmul-results.json", "softmax-results.json", "conv2d-results.json"], 4)
    assert {path.name for path in tmp_path.iterdir()} == {*counts, METADATA_FILE}
    check_metadata(read(tmp_path / METADATA_FILE))
    results = []
    for name in counts:
        document = read(tmp_path / name)
        check_results(document)
        results += document["results"]
    rows = measurements.table.to_pylist()
    for row, result in zip(rows, results, strict=True):
        values = {one["name"]: one["value"] for one in result["measurements"]}
        assert values["program"] == row["program_key"]
        if row["outcome"] == "measured":
            seconds = row["run_seconds"][:3]
            wanted = sorted(seconds)[1] if times is Times.median else min(seconds)
            assert values["time"] == pytest.approx(1e3 * wanted)
            assert result["times"]["runtimes"] == pytest.approx([1e3 * one for one in seconds])
            assert datetime.fromisoformat(result["timestamp"]).timestamp() == 1.7e9 + 2
            assert (result["invalidity"], result["correctness"]) == ("correct", 1)
        else:
            assert result["times"]["runtimes"] == []
            assert (values["message"], result["correctness"]) == (row["message"], 0)
        assert result["times"]["compilation_time"] == 250
    failed = [result["invalidity"] for result in results if result["invalidity"] != "correct"]
    assert failed == ["runtime", "timeout", "correctness"]


def test_every_outcome_has_a_name(measurements: Measurements, tmp_path: Path) -> None:
    row = measurements.table.to_pylist()[0]
    for outcome in Outcome:
        table = measurement_table([{**row, "outcome": outcome.value}])
        write_t4(dataclasses.replace(measurements, table=table), tmp_path, Times.all)
        document = read(tmp_path / "a_small_matmul-results.json")
        check_results(document)
        assert (document["results"][0]["invalidity"] == "correct") == (outcome is Outcome.MEASURED)


def test_unknown_things_are_left_out(measurements: Measurements, tmp_path: Path) -> None:
    row = {**measurements.table.to_pylist()[0], "ended_at": [float("nan")] * 4, "build_seconds": None}
    campaign = dataclasses.replace(measurements.campaign, host=None)
    write_t4(dataclasses.replace(measurements, campaign=campaign, table=measurement_table([row])), tmp_path, Times.all)
    document = read(tmp_path / "a_small_matmul-results.json")
    check_results(document)
    assert document["metadata"]["device"] == "unknown"
    assert "timestamp" not in document["results"][0]
    assert set(document["results"][0]["times"]) == {"runtimes"}
    check_metadata(read(tmp_path / METADATA_FILE))


def test_names_that_are_no_names_of_files_still_make_a_file_each(measurements: Measurements, tmp_path: Path) -> None:
    rows = measurements.table.to_pylist()
    for number, name in enumerate(["../a b", "../A b", ""]):
        for row in rows[4 * number : 4 * number + 4]:
            row["workload_name"] = name
    counts = write_t4(dataclasses.replace(measurements, table=measurement_table(rows)), tmp_path, Times.all)
    assert list(counts) == [".._a_b-results.json", ".._A_b-2-results.json", "workload-results.json"]
    assert {path.name for path in tmp_path.iterdir()} == {*counts, METADATA_FILE}


def test_a_row_without_a_trace_is_named(measurements: Measurements, tmp_path: Path) -> None:
    row = {**measurements.table.to_pylist()[0], "trace": "[]"}
    with pytest.raises(MalformedDataError, match=rf"program {row['program_key']}: not a schedule trace"):
        write_t4(dataclasses.replace(measurements, table=measurement_table([row])), tmp_path, Times.all)
