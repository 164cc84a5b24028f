"""What is read from a line of assembly."""

import pytest

from kernelcast.graphs.machine_code.instructions import Kind, immediate, parse, register


@pytest.mark.parametrize(
    ("line", "kind", "width", "reads", "writes", "load", "store"),
    [
        ("vfmadd231ps -16384(%r10), %xmm26, %xmm25", Kind.ARITHMETIC, 16, "r10 v26 v25", "v25", "-16384(%r10)", None),
        ("vaddss %xmm3, %xmm2, %xmm2", Kind.ARITHMETIC, 4, "v3 v2", "v2", None, None),
        ("vmaxps %zmm0, %zmm1, %zmm2", Kind.ARITHMETIC, 64, "v0 v1", "v2", None, None),
        ("vdivps %ymm0, %ymm1, %ymm2", Kind.DIVISION, 32, "v0 v1", "v2", None, None),
        ("vbroadcastss -16(%rdi,%r9), %xmm26", Kind.BROADCAST, 4, "rdi r9", "v26", "-16(%rdi,%r9)", None),
        ("vmovups %zmm0, 320(%rsi,%r9)", Kind.STORE, 64, "v0 rsi r9", "", None, "320(%rsi,%r9)"),
        ("vmovups 8(%rsp), %ymm1", Kind.LOAD, 32, "rsp", "v1", "8(%rsp)", None),
        ("vmovss %xmm3, -152(%rsp,%rcx,4)", Kind.STORE, 4, "v3 rsp rcx", "", None, "-152(%rsp,%rcx,4)"),
        ("vmovaps %ymm3, %ymm4", Kind.MOVE, 32, "v3", "v4", None, None),
        ("vgatherqps (%rax,%zmm7), %ymm2 {%k1}", Kind.GATHER, 64, "rax v7 k1 v2", "v2", "(%rax,%zmm7)", None),
        ("vscatterqps %ymm2, (,%zmm7) {%k1}", Kind.SCATTER, 64, "v2 v7 k1", "", None, "(,%zmm7)"),
        ("vextractf128 $1, %ymm2, 16(%rdi)", Kind.SHUFFLE, 16, "v2 rdi", "", None, "16(%rdi)"),
        ("vinsertps $16, 4(%rdi), %xmm1, %xmm1", Kind.SHUFFLE, 4, "rdi v1", "v1", "4(%rdi)", None),
        ("vaddps %zmm0, %zmm1, %zmm2 {%k1} {z}", Kind.ARITHMETIC, 64, "v0 v1 k1", "v2", None, None),
        ("vxorps %xmm0, %xmm0, %xmm0", Kind.INTEGER, 16, "", "v0", None, None),
        ("vpermt2ps %zmm0, %zmm1, %zmm2", Kind.SHUFFLE, 64, "v0 v1 v2", "v2", None, None),
        ("vpdpbusd %zmm1, %zmm3, %zmm2", Kind.VECTOR, 64, "v1 v3 v2", "v2", None, None),
        ("vpextrd $1, %xmm0, 8(%rsp)", Kind.SHUFFLE, 4, "v0 rsp", "", None, "8(%rsp)"),
        ("vpinsrd $1, 8(%rsp), %xmm0, %xmm1", Kind.SHUFFLE, 4, "rsp v0", "v1", "8(%rsp)", None),
        ("vmovlps %xmm0, (%rdi)", Kind.STORE, 8, "v0 rdi", "", None, "(%rdi)"),
        ("vmovhps (%rdi), %xmm0, %xmm1", Kind.SHUFFLE, 8, "rdi v0", "v1", "(%rdi)", None),
        ("vbroadcastf32x4 (%rdi), %zmm1", Kind.LOAD, 16, "rdi", "v1", "(%rdi)", None),
        ("vcvtps2ph $4, %ymm0, (%rdi)", Kind.STORE, 16, "v0 rdi", "", None, "(%rdi)"),
        ("kmovw 8(%rsp), %k1", Kind.MASK, 2, "rsp", "k1", "8(%rsp)", None),
        ("vptest %ymm0, %ymm1", Kind.INTEGER, 32, "v0 v1", "", None, None),
        ("vcmpltps %ymm0, %ymm1, %ymm2", Kind.VECTOR, 32, "v0 v1", "v2", None, None),
        ("movb %al, 8(%rsp)", Kind.INTEGER, 1, "rax rsp", "", None, "8(%rsp)"),
        ("cltd ", Kind.INTEGER, 8, "rax", "rdx", None, None),
        # SSE, which works on the register that it writes
        ("addss (%rdi), %xmm0", Kind.ARITHMETIC, 4, "rdi v0", "v0", "(%rdi)", None),
        ("mulps %xmm1, %xmm0", Kind.ARITHMETIC, 16, "v1 v0", "v0", None, None),
        ("shufps $0, %xmm1, %xmm1", Kind.SHUFFLE, 16, "v1", "v1", None, None),
        ("paddd %xmm1, %xmm2", Kind.VECTOR, 16, "v1 v2", "v2", None, None),
        ("movss (%rdi), %xmm0", Kind.LOAD, 4, "rdi", "v0", "(%rdi)", None),
        ("movups %xmm0, (%rdi)", Kind.STORE, 16, "v0 rdi", "", None, "(%rdi)"),
        ("movaps %xmm0, %xmm1", Kind.MOVE, 16, "v0", "v1", None, None),
        ("xorps %xmm0, %xmm0", Kind.INTEGER, 16, "", "v0", None, None),
        ("cmpltps %xmm1, %xmm2", Kind.VECTOR, 16, "v1 v2", "v2", None, None),
        ("pshufd $0, %xmm1, %xmm2", Kind.SHUFFLE, 16, "v1", "v2", None, None),
        ("pmuludq %xmm1, %xmm2", Kind.VECTOR, 16, "v1 v2", "v2", None, None),
        ("movslq %eax, %rcx", Kind.INTEGER, 4, "rax", "rcx", None, None),
        ("movzbl (%rdi), %eax", Kind.INTEGER, 1, "rdi", "rax", "(%rdi)", None),
        ("vpaddd %ymm0, %ymm1, %ymm1", Kind.VECTOR, 32, "v0 v1", "v1", None, None),
        ("kxnorb %k0, %k0, %k1", Kind.MASK, 1, "k0 k0", "k1", None, None),
        ("addq $20, %r9", Kind.INTEGER, 8, "r9", "r9", None, None),
        ("xorl %eax, %eax", Kind.INTEGER, 8, "", "rax", None, None),
        ("leaq 16384(%r8,%rcx), %rcx", Kind.INTEGER, 8, "r8 rcx", "rcx", None, None),
        ("incq 8(%rsp)", Kind.INTEGER, 8, "rsp", "", "8(%rsp)", "8(%rsp)"),
        ("movq 8(%rsp), %rax", Kind.INTEGER, 8, "rsp", "rax", "8(%rsp)", None),
        ("cmpq $5136, %r9", Kind.INTEGER, 8, "r9", "", None, None),
        ("idivl %esi", Kind.INTEGER_DIVISION, 8, "rsi", "rax rdx", None, None),
        ("jne .LBB4_3", Kind.BRANCH, 8, "", "", None, None),
        ("callq *(%rax)", Kind.CALL, 8, "rax", "rax", None, None),
    ],
)
def test_an_instruction_is_what_the_assembler_means(line, kind, width, reads, writes, load, store):
    opcode, _, rest = line.partition(" ")
    found = parse(opcode, rest)
    assert (found.kind, found.width) == (kind, width)
    assert sorted(set(found.reads)) == sorted(set(reads.split()))
    assert " ".join(found.writes) == writes
    assert (found.load, found.store) == (load, store)


def test_one_float_in_all_lanes_is_a_load_of_one_float():
    found = parse("vfmadd231ps", "8(%rsp){1to16}, %zmm16, %zmm0")
    assert (found.width, found.loaded, found.load, found.broadcasts) == (64, 4, "8(%rsp)", True)
    whole = parse("vfmadd231ps", "8(%rsp), %zmm16, %zmm0")
    assert (whole.width, whole.loaded, whole.broadcasts) == (64, 64, False)


def test_a_multiply_add_waits_for_what_it_adds_to():
    assert "v1" in parse("vfmadd231ps", "%ymm0, %ymm2, %ymm1").reads
    assert parse("vfmadd231ps", "%ymm0, %ymm2, %ymm1").fused
    assert "v1" not in parse("vaddps", "%ymm0, %ymm2, %ymm1").reads


@pytest.mark.parametrize(
    ("operands", "name"),
    [
        ("%rax %eax %ax %al %ah", "rax"),
        ("%rdx %edx %dl %dh", "rdx"),
        ("%rdi %edi %di %dil", "rdi"),
        ("%rsp %esp", "rsp"),
        ("%r8 %r8d %r8w %r8b", "r8"),
        ("%xmm31 %ymm31 %zmm31", "v31"),
        ("%k1", "k1"),
    ],
)
def test_a_register_has_one_name_whatever_its_width(operands, name):
    assert {register(operand) for operand in operands.split()} == {name}


def test_only_numbers_are_immediate():
    assert (immediate("$-16"), immediate("%rax"), immediate("$main")) == (-16, None, None)
