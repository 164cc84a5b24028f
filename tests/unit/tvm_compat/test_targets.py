import re
from typing import Any

import pytest

from kernelcast.errors import ConfigError
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.workloads import matmul
from kernelcast.tvm_compat import (
    available_cores,
    check_runs_here,
    load_tvm,
    make_target,
    reference_target,
    resolve_target,
    runnable_module,
    scheduled_module,
    vector_bits,
)
from kernelcast.tvm_compat.targets import hide_missing, host_instructions, missing_instructions

PC = "x86_64-linux-gnu"


def test_missing_parts_of_a_target_are_filled_in() -> None:
    # TVM-03
    target = resolve_target({"kind": "llvm", "mcpu": None, "num-cores": None})
    assert target["num-cores"] == available_cores()
    assert target["mcpu"]
    assert resolve_target({"kind": "llvm"}) == target
    assert vector_bits(target) >= 128


def test_given_parts_of_a_target_are_kept() -> None:
    target = resolve_target({"kind": "llvm", "num-cores": 3, "mcpu": "x86-64", "mtriple": "x86_64-linux-gnu"})
    assert target == {"kind": "llvm", "num-cores": 3, "mcpu": "x86-64", "mtriple": "x86_64-linux-gnu"}


@pytest.mark.parametrize("form", ["llvm -num-cores=4", {"kind": "llvm -num-cores=4"}])
def test_the_one_line_form_is_refused_with_the_dict_to_write(form: object) -> None:
    # TVM-03
    with pytest.raises(ConfigError) as refused:
        resolve_target(form)
    assert '{"kind": "llvm", "num-cores": 4}' in str(refused.value)


@pytest.mark.parametrize("cores", [0, -1, 2.5, "four", True])
def test_a_number_of_cores_that_is_none_is_refused(cores: object) -> None:
    with pytest.raises(ConfigError, match="num-cores must be a positive integer"):
        resolve_target({"kind": "llvm", "num-cores": cores})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"kind": "llvm", "mcpu": "no-such-processor"}, "no-such-processor"),
        ({"kind": "no-such-kind"}, "no-such-kind"),
        ({"kind": "llvm", "no-such-key": 1}, "no-such-key"),
        ({}, "kind"),
        (None, "kind"),
    ],
)
def test_a_target_that_tvm_would_refuse_late_is_refused_now(config: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        resolve_target(config)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "metal"}, "target.kind.*llvm or cuda"),
        ({"mtriple": "riscv32-unknown-elf"}, "target.mtriple.*riscv32"),
        ({"num-cores": available_cores() + 1}, "target.num-cores"),
    ],
)
def test_a_target_that_cannot_be_timed_here_is_refused_by_its_key(change: dict[str, Any], says: str) -> None:
    target = {"kind": "llvm", "num-cores": 1}
    check_runs_here(target)
    with pytest.raises(ConfigError, match=says):
        check_runs_here({**target, **change})


def test_a_processor_that_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"target\.mcpu"):
        resolve_target({"kind": "llvm", "mcpu": 7})


@pytest.mark.parametrize(
    ("mcpu", "bits", "registers"),
    [("x86-64", 128, {"xmm"}), ("x86-64-v3", 256, {"xmm", "ymm"}), ("znver4", 512, {"xmm", "ymm", "zmm"})],
)
def test_machine_code_has_the_vectors_of_its_target_and_no_wider_ones(
    mcpu: str, bits: int, registers: set[str]
) -> None:
    target = resolve_target({"kind": "llvm", "mcpu": mcpu, "mtriple": PC, "num-cores": 1})
    workload = matmul("matmul", 64, 64, 64)
    found = set()
    for candidate in sample_candidates(workload, target, 4, seed=0):
        module = runnable_module(scheduled_module(workload, candidate.trace))
        assembly = load_tvm().compile(module, target=make_target(target)).mod.inspect_source("asm")
        found |= set(re.findall(r"%([xyz]mm)\d", assembly))
    assert found <= registers
    assert max(found) == max(registers)
    assert vector_bits(target) == bits


def test_a_processor_whose_instructions_this_one_lacks_is_refused_before_anything_runs() -> None:
    # no processor has both the XOP of bdver2 and the AMX of sapphirerapids
    refused = []
    for mcpu in ("bdver2", "sapphirerapids"):
        target = {"kind": "llvm", "mcpu": mcpu, "num-cores": 1}
        try:
            check_runs_here(target)
        except ConfigError as error:
            refused.append(str(error))
    assert refused
    assert all(message.startswith("target.mcpu: programs for") for message in refused)


def test_missing_instructions_are_those_that_programs_use_and_the_host_denies() -> None:
    target = {"kind": "llvm", "mcpu": "znver4", "mtriple": PC, "num-cores": 1}
    assert missing_instructions(target, {}) == []
    # pku is for the system alone; what the host says nothing about may be a matter of tuning
    assert missing_instructions(target, {"avx512f": False, "pku": False, "avx2": True}) == ["avx512f"]


def test_what_a_virtual_machine_hides_is_switched_off() -> None:
    target: dict[str, Any] = {"kind": "llvm", "mcpu": "znver4", "mtriple": PC, "num-cores": 1}
    host = {"avx512f": False, "avx512vl": False, "pku": False}
    hide_missing(target, host)
    assert target["mattr"] == ["-avx512f", "-avx512vl"]
    assert missing_instructions(target, host) == []
    assert vector_bits(target) == 256


def test_this_machine_runs_what_is_filled_in_for_it() -> None:
    target = resolve_target({"kind": "llvm"})
    assert missing_instructions(target, host_instructions()) == []
    check_runs_here(target)


def test_a_workload_without_a_schedule_is_for_a_processor() -> None:
    processor = resolve_target({"kind": "llvm", "num-cores": 1})
    assert reference_target(processor) == processor
    assert reference_target({"kind": "cuda", "arch": "sm_90"}) == processor
