"""The pass that joins half-empty products: it joins what it may and nothing else."""

from __future__ import annotations

from inductor_mps_attention.simulator.nvidia.pairing import pair_products

HALF = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"


def product(d: str, a: str, b: str, c: str, below: str = "%r0") -> str:
    """One half-empty product: sums d, left rows a, right b, addends c, each named by a letter or two."""
    sums = ", ".join(f"%f{d}{i}" for i in range(4))
    addends = ", ".join([f"%f{c}0", f"%f{c}1", "%f90", "%f90"])
    return f"\t{HALF} {{{sums}}}, {{%r{a}, {below}}}, {{%r{b}}}, {{{addends}}};"


def paired(*lines: str):
    return pair_products("\n".join(["\tmov.b32 \t%r0, 0;", *lines]))


def test_two_rows_with_one_right_operand_become_one_product():
    result = paired(product("1", "11", "5", "2"), product("3", "12", "5", "4"))
    assert (result.products, result.joined_rows, result.joined_depth) == (2, 1, 0)
    assert f"{HALF} {{%f10, %f11, %f30, %f31}}, {{%r11, %r12}}, {{%r5}}, {{%f20, %f21, %f40, %f41}};" in result.text


def test_a_chain_becomes_one_product_of_twice_the_depth():
    result = paired(product("1", "11", "5", "2"), product("3", "12", "6", "1"), "\tst.f32 [%rd1], %f30;")
    assert (result.joined_rows, result.joined_depth) == (0, 1)
    assert "m16n8k16" in result.text
    assert "{%r11, %r0, %r12, %r0}, {%r5, %r6}, {%f20, %f21, %f90, %f90}" in result.text


def test_sums_that_are_read_in_between_stay():  # the first product moves down to the second
    result = paired(product("1", "11", "5", "2"), "\tadd.f32 %f70, %f10, %f11;", product("3", "12", "5", "4"))
    assert (result.joined_rows, result.joined_depth) == (0, 0)


def test_sums_that_are_also_read_elsewhere_are_not_swallowed():
    result = paired(product("1", "11", "5", "2"), product("3", "12", "6", "1"), "\tst.f32 [%rd1], %f10;")
    assert result.joined_depth == 0


def test_products_of_two_basic_blocks_stay_apart():
    result = paired(product("1", "11", "5", "2"), "$L__BB0_2:", product("3", "12", "5", "4"))
    assert result.joined_rows == 0
    assert paired(product("1", "11", "5", "2"), "\t.loc\t1 7 3", product("3", "12", "5", "4")).joined_rows == 1


def test_a_full_product_is_left_alone():
    result = paired(product("1", "11", "5", "2", "%r8"), product("3", "12", "5", "4", "%r9"))
    assert result.joined_rows == 0
