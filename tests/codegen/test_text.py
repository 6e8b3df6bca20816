"""The rendered text against the rules of Apple's compiler, as far as text alone shows them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from inductor_mps_attention.codegen import KernelPlan, Role, render

from .plans import barriers, every_plan, golden_plans

ADDRESS_SPACES = ("device ", "threadgroup ", "constant ", "thread ")
ROOT = Path(__file__).parents[2]
SIZES = {"float": 4, "half": 2, "bfloat": 2}


@pytest.fixture(scope="module")
def rendered() -> list[tuple[KernelPlan, str]]:
    return [(each, render(each).text) for each in sorted(set(every_plan()), key=lambda each: each.entry)]


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def test_the_text_is_ascii_and_printable(rendered):  # any other byte leaves PyTorch without a source string
    for plan, text in rendered:
        assert text.isascii(), plan.entry
        assert not re.search(r"[^\n -~]", text), plan.entry
        assert text.endswith("}\n"), plan.entry


def test_nothing_of_jinja_is_left_and_lines_stay_readable(rendered):
    for plan, text in rendered:
        assert not re.search(r"\{[{%#]|[}%#]\}\}|None|Undefined", text), plan.entry
        assert not re.search(r"[ \t]+$", text, re.MULTILINE), plan.entry
        assert "\n\n\n" not in text, plan.entry
        assert max(map(len, text.splitlines())) <= 200, plan.entry


FORBIDDEN = {
    "lambda": r"\[[&=]?\]\s*\(",
    "inline assembly": r"\basm\b|__asm|\bair\.|__metal_",
    "function constant": r"function_constant",
    "threadgroup argument": r"\[\[threadgroup\(",
    "atomic": r"atomic",
    "async copy": r"async",
    "double": r"\bdouble\b",
    "type with members": r"\b(struct|class|union)\b",
    "template": r"\btemplate\b",
    "static": r"\bstatic\b",
    "metal 4 tensor": r"\bmpp\b|\btensor\b|cooperative",
    "unsuffixed float": r"(?<![\w.])\d+\.\d*(e[+-]?\d+)?(?![\w.])|(?<![\w.])\d+e[+-]?\d+(?!\w)",
    "unprefixed exponential": r"(?<![:\w])exp2?\(",
    "infinity in arithmetic": r"(?<!-)INFINITY",
    "reserved name": r"\b(bfloat16|fragment|vertex|sampler|ray_data)\b",
}


@pytest.mark.parametrize("construct", FORBIDDEN)
def test_no_construct_that_some_version_of_the_compiler_refuses(rendered, construct: str):
    for plan, text in rendered:
        found = re.search(FORBIDDEN[construct], without_comments(text))
        assert not found, f"{plan.entry}: {found.group()!r}"


def test_every_pointer_and_reference_has_an_address_space(rendered):
    pointer = re.compile(r"\b(element|float|half|bfloat|bool|uint|uint4|long|operand_fragment|sum_fragment)\s*[*&]")
    array = re.compile(r"\b(operand_fragment|sum_fragment)\s+\(&")
    for plan, text in rendered:
        code = without_comments(text)
        for declared in (*pointer.finditer(code), *array.finditer(code)):
            before = code[declared.start() - 20 : declared.start()].removesuffix("const ")
            assert before.endswith(ADDRESS_SPACES), f"{plan.entry}: {before}{declared.group()}"


# pytorch#177193: `bfloat x = 0.0` does not compile
def test_bfloat_only_meets_other_types_through_a_cast(rendered):
    stored = re.compile(
        r"^ +(?:tile|target|weights?|grad_score|grads|grad_[kv]|outputs?|out|own|query|loaded)\b[^\n=]*\] = ([^;=]*);",
        re.MULTILINE,
    )
    for plan, text in rendered:
        values = stored.findall(without_comments(text))
        assert values, plan.entry
        casts = "element|operand|float" if plan.role is Role.BACKWARD_DKV and plan.group_heads else "element|operand"
        for value in values:
            assert re.search(rf"\b({casts})\(", value), f"{plan.entry}: {value}"


def test_the_kernel_states_its_threads(rendered):  # without them a launch above the limit is dropped
    for plan, text in rendered:
        assert f"[[max_total_threads_per_threadgroup({plan.threads})]]\nkernel void {plan.entry}(" in text
        assert text.count("kernel void") == 1


def test_threadgroup_memory_is_what_the_planner_says(rendered):  # omlx#3795: 53760 bytes, 32768 there are
    for plan, text in rendered:
        declared = re.findall(r"^  threadgroup (\w+) (\w+)\[(\d+)\];$", text, re.MULTILINE)
        everywhere = re.findall(r"\bthreadgroup \w+ \w+\[", text)
        assert len(everywhere) == len(declared), plan.entry  # in the kernel's body alone
        total = sum(-(-SIZES[name] * int(length) // 16) * 16 for name, _, length in declared)
        assert total == plan.threadgroup_bytes <= 32768, plan.entry


def test_two_barriers_a_tile_and_none_elsewhere(rendered):
    for plan, text in rendered:
        assert text.count("threadgroup_barrier(mem_flags::mem_threadgroup);") == barriers(plan), plan.entry
        assert text.count("barrier(") == barriers(plan), plan.entry


def test_products_are_matrix_products_with_float_sums(rendered):
    for plan, text in rendered:
        if not plan.multiplies:
            assert plan.role in (Role.DECODE_MERGE, Role.BACKWARD_SUM)
            continue
        assert "simdgroup_multiply_accumulate(" in text, plan.entry
        assert "typedef simdgroup_matrix<float, 8, 8> sum_fragment;" in text
        left = re.findall(r"simdgroup_multiply_accumulate\((\w+)[^;]*, (\w+)[^,;]*\);", without_comments(text))
        assert all(result == sums for result, sums in left), plan.entry


def test_a_band_without_a_bound_costs_nothing(rendered):
    for plan, text in rendered:
        code = without_comments(text)
        assert bool(re.search(r"\blower\b", code)) == plan.has_lower, plan.entry
        assert bool(re.search(r"\bupper\b", code)) == plan.has_upper, plan.entry


def test_vector_loads_only_where_the_inputs_are_aligned(rendered):
    for plan, text in rendered:
        # Straight into fragments, a lane may need fewer neighbours than 16 bytes have.
        loads = r"\*\(device const (uint|float)[24]?\*\)" if plan.tiling.direct else "uint4"
        assert bool(re.search(loads, text)) == (plan.vector > 1), plan.entry
        if plan.vector > 1:
            for pitch, width in ((plan.qk_pitch, plan.qk_head_dim), (plan.v_pitch, plan.v_head_dim)):
                assert pitch * plan.dtype.size % 16 == 0
                assert width % plan.vector_of(width) == 0
            assert plan.vector in map(plan.vector_of, plan.staged_widths)


def test_the_text_is_the_same_in_every_process():
    """The digest is part of cache keys; hash seeds, dict order and locale must not enter it."""
    program = (
        "from tests.codegen.plans import golden_plans\n"
        "from inductor_mps_attention.codegen import render\n"
        "print([render(each).digest for each in golden_plans()])"
    )
    environment = {"PYTHONHASHSEED": "7", "LC_ALL": "C"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    assert result.stdout.strip() == str([render(each).digest for each in golden_plans()])


def test_codegen_loads_without_torch():
    program = "import sys, inductor_mps_attention.codegen; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
