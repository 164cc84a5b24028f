"""What straight code takes."""

import pytest

from kernelcast.graphs.machine_code.cycles import cycles_of
from kernelcast.graphs.machine_code.instructions import parse


def cycles(*lines, repeated=True):
    return cycles_of([parse(*line.split(" ", 1)) for line in lines], repeated)


def test_a_wide_vector_takes_a_unit_twice():
    narrow, wide = (cycles(f"vaddps %{name}0, %{name}1, %{name}2") for name in ("ymm", "zmm"))
    assert (narrow.arithmetic, wide.arithmetic) == (0.5, 1.0)


def test_a_sum_waits_for_itself_and_independent_sums_do_not():
    one = [f"vfmadd231ps {32 * number}(%rdi), %ymm0, %ymm1" for number in range(8)]
    many = [f"vfmadd231ps {32 * number}(%rdi), %ymm0, %ymm{number + 1}" for number in range(8)]
    assert cycles(*one).chain == 8 * 4
    assert cycles(*many).chain == 4
    assert cycles(*one, repeated=False).chain == 0
    assert cycles(*one).total > 3 * cycles(*many).total


@pytest.mark.parametrize(("loaded", "waited"), [("vmovss 8(%rsp), %xmm1", 11), ("vmovups 8(%rsp), %ymm1", 22)])
def test_a_sum_in_memory_is_stored_before_it_is_loaded_and_a_wider_load_waits_longer(loaded, waited):
    found = cycles(loaded, "vaddss %xmm1, %xmm2, %xmm1", "vmovss %xmm1, 8(%rsp)")
    assert found.chain == waited


def test_an_address_that_moves_is_another_one_in_the_next_iteration():
    found = cycles("vmovss (%rdi), %xmm1", "vaddss %xmm1, %xmm2, %xmm1", "vmovss %xmm1, (%rdi)", "addq $4, %rdi")
    assert found.chain == 1


def test_what_nothing_overlaps_with_comes_on_top():
    plain, gathers = cycles("vaddps %ymm0, %ymm1, %ymm2"), cycles("vgatherdps (%rax,%ymm7), %ymm2 {%k1}")
    assert plain.extra == 0
    assert gathers.extra >= 8
    assert gathers.total >= gathers.extra


def test_the_whole_is_no_less_than_the_busiest_and_no_more_than_the_sum():
    found = cycles(
        "vmovups (%rdi), %zmm0",
        "vfmadd231ps %zmm0, %zmm1, %zmm2",
        "vpermps %zmm3, %zmm4, %zmm5",
        "vmovups %zmm2, (%rsi)",
    )
    parts = (found.issue, found.arithmetic, found.memory, found.shuffle, found.chain)
    assert found.busiest <= found.total <= sum(parts) + found.extra


def test_filling_a_block_takes_as_long_as_the_block_is_large():
    small, large = (cycles(f"movl ${size}, %edx", "callq memset@PLT", repeated=False) for size in (64, 64_000))
    assert large.extra - small.extra == pytest.approx((64_000 - 64) / 32)


def test_a_part_of_what_was_stored_is_forwarded():
    whole = cycles("movq %rax, 8(%rsp)", "movb 8(%rsp), %al")
    wider = cycles("movb %al, 8(%rsp)", "movq 8(%rsp), %rax")
    assert whole.chain < wider.chain


def test_nothing_takes_no_time():
    assert cycles(repeated=True).total == 0
