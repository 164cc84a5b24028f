"""Loops of assembly and how often they turn."""

import pytest

from kernelcast.graphs.machine_code.control_flow import control_flow
from kernelcast.graphs.machine_code.listing import COMPUTE, PARALLEL, functions
from kernelcast.graphs.machine_code.trip_counts import trip_counts
from tests.unit.graphs.machine_code.conftest import listing


def trips(body, name=COMPUTE):
    """Iterations of each loop by its label, and how many are guessed."""
    blocks = functions(listing((name, body)))[name]
    flow = control_flow(blocks)
    found, guessed = trip_counts(name, blocks, flow)
    return {blocks[header].label: count for header, count in found.items()}, guessed


@pytest.mark.parametrize(
    ("before", "inside", "count"),
    [
        ("movl $16, %r9d", "addq $20, %r9 \n cmpq $5136, %r9 \n jne .LBB0_1", 256),
        ("xorl %eax, %eax", "incq %rax \n cmpq $7, %rax \n jne .LBB0_1", 7),
        ("movq $-4096, %rax", "addq $64, %rax \n jne .LBB0_1", 64),
        ("movl $30, %eax", "decl %eax \n jne .LBB0_1", 30),
        # compared before it is moved on
        ("xorl %eax, %eax", "leaq 8(%rax), %rcx \n cmpq $504, %rax \n movq %rcx, %rax \n jb .LBB0_1", 64),
        # one more than the bound
        ("xorl %eax, %eax", "addq $8, %rax \n cmpq $64, %rax \n jbe .LBB0_1", 9),
        # a counter that lies on the stack
        ("movq $0, 8(%rsp)", "movq 8(%rsp), %rax \n incq %rax \n movq %rax, 8(%rsp) \n cmpq $12, %rax \n jne .LBB0_1",
         12),
        # a bound in a register
        ("movl $96, %edx \n xorl %eax, %eax", "addq $4, %rax \n cmpq %rdx, %rax \n jne .LBB0_1", 24),
        # two pointers of which one begins beyond the other
        (
            "leaq 256(%rdi), %rdx \n movq %rdi, %rax",
            "vmovups (%rax), %ymm0 \n addq $32, %rax \n cmpq %rdx, %rax \n jne .LBB0_1",
            8,
        ),
        # the way that leaves is the one that jumps
        ("xorl %eax, %eax", "incq %rax \n cmpq $5, %rax \n je .LBB0_2 \n jmp .LBB0_1", 5),
        # a bound in a register that is another one at the header
        (
            "movl $64, %ebp \n movabsq $404620279021568, %rdx \n xorl %eax, %eax",
            "movq %rbp, %rdx \n leaq 4(%rcx), %rbp \n movq %rdx, %rbp \n addq $16, %rax \n"
            "cmpq %rax, %rdx \n jne .LBB0_1",
            4,
        ),
        # two ways back to the header
        (
            "xorl %eax, %eax",
            "cmpq $9, %rsi \n jb .LBB0_3 \n addq $4, %rax \n cmpq $200, %rax \n jne .LBB0_1 \n jmp .LBB0_2 \n"
            ".LBB0_3: \n addq $4, %rax \n cmpq $200, %rax \n jne .LBB0_1",
            50,
        ),
        # a flag that the first turn sets
        ("movb $1, %r14b", "movl %r14d, %ecx \n xorl %r14d, %r14d \n testb $1, %cl \n movl $5, %edx \n jne .LBB0_1", 2),
    ],
)  # fmt: skip
def test_a_counted_loop_turns_as_often_as_it_says(before, inside, count):
    found, guessed = trips(f"{before} \n .LBB0_1: \n {inside} \n .LBB0_2: \n retq")
    assert (found, guessed) == ({".LBB0_1": count}, 0)


def test_a_bound_that_moves_is_no_bound():
    inside = "leaq 1(%rdx), %rdx \n incq %rax \n cmpq %rdx, %rax"
    found, guessed = trips(f"movl $9, %edx \n xorl %eax, %eax \n .LBB0_1: \n {inside} \n jne .LBB0_1 \n retq")
    assert (found, guessed) == ({".LBB0_1": 2}, 1)


def test_loops_in_loops_are_told_apart():
    found, guessed = trips("""
        xorl %eax, %eax
        .LBB0_1:
        xorl %ecx, %ecx
        .LBB0_2:
        incq %rcx
        cmpq $3, %rcx
        jne .LBB0_2
        incq %rax
        cmpq $10, %rax
        jne .LBB0_1
        retq""")
    assert (found, guessed) == ({".LBB0_1": 10, ".LBB0_2": 3}, 0)


def test_a_loop_without_a_constant_is_guessed_and_counted():
    found, guessed = trips(".LBB0_1: \n incq %rax \n cmpq (%rdi), %rax \n jne .LBB0_1 \n retq")
    assert (found, guessed) == ({".LBB0_1": 2}, 1)


SHARE = """
    leal 99(%rsi), %eax
    cmpl $100, %eax
    jge .LBB0_9
    .LBB0_1:
    addq $16, %rax
    cmpq %rbx, %rax
    jne .LBB0_1
    .LBB0_2:
    addq $8, %rax
    cmpq %rbx, %rax
    jne .LBB0_2
    .LBB0_3:
    incq %rax
    cmpq %rbx, %rax
    jne .LBB0_3
    .LBB0_9:
    retq"""


def test_whole_vectors_and_the_rest_share_the_iterations_of_a_parallel_loop():
    # 100 iterations are 6 of 16, none of 8 and 4 of 1
    found, guessed = trips(SHARE, PARALLEL)
    assert (found, guessed) == ({".LBB0_1": 6, ".LBB0_2": 0, ".LBB0_3": 4}, 0)


BYTES_AND_ITERATIONS = """
    leal 1023(%rsi), %eax
    cmpl $1024, %eax
    jge .LBB0_9
    .LBB0_1:
    vmovups %ymm0, (%rdi,%r11)
    addq $256, %r11
    cmpl %r11d, %r10d
    jne .LBB0_1
    .LBB0_2:
    vmovups %ymm0, (%rdi)
    vmovups %ymm0, 256(%rdi)
    vmovups %ymm0, 512(%rdi)
    vmovups %ymm0, 768(%rdi)
    addl $-4, %edx
    cmpl %ebx, %edx
    jne .LBB0_2
    .LBB0_9:
    retq"""


def test_counters_of_bytes_and_of_iterations_share_by_what_their_loops_store():
    found, guessed = trips(BYTES_AND_ITERATIONS, PARALLEL)
    assert (found, guessed) == ({".LBB0_1": 0, ".LBB0_2": 256}, 0)


def test_a_comparison_of_vectors_between_is_no_comparison_of_the_counter():
    inside = "incq %rax \n cmpq $7, %rax \n xorps %xmm0, %xmm0 \n jne .LBB0_1"
    assert trips(f"xorl %eax, %eax \n .LBB0_1: \n {inside} \n retq") == ({".LBB0_1": 7}, 0)
    inside = "incq %rax \n cmpq $7, %rax \n kortestb %k0, %k0 \n jne .LBB0_1"
    assert trips(f"xorl %eax, %eax \n .LBB0_1: \n {inside} \n retq") == ({".LBB0_1": 2}, 1)


def test_without_a_loop_there_is_none():
    assert trips("movl $1, %eax \n jmp .LBB0_1 \n .LBB0_1: \n retq") == ({}, 0)
    assert trips("retq") == ({}, 0)


def test_what_is_never_reached_is_no_loop():
    assert trips("retq \n .LBB0_1: \n incq %rax \n cmpq $3, %rax \n jne .LBB0_1") == ({}, 0)
