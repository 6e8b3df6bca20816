"""The parameter table: host packing and Metal text must agree on every integer's place."""

from __future__ import annotations

import re

import pytest
from inductor_mps_attention.codegen import Problem, Role, pack, render
from inductor_mps_attention.codegen.limits import MAX_BOUND, MAX_LENGTH

from .plans import every_plan, made


def values_of(plan) -> dict[str, int]:
    return {parameter.name: 100 + place for place, parameter in enumerate(plan.parameters)}


def test_the_text_reads_each_integer_where_the_host_packs_it():
    for each in set(every_plan()):
        packed = pack(each, values_of(each))
        read = re.findall(r"const (int|long) (\w+) = (\w+)\(params\[(\d+)\]\);", render(each).text)
        assert [(name, declared) for declared, name, _, _ in read] == [
            (parameter.name, parameter.metal_type) for parameter in each.parameters if parameter.read
        ]
        for _, name, _, place in read:
            assert packed[int(place)] == values_of(each)[name]


def test_the_text_binds_each_tensor_where_the_host_passes_it():
    for each in set(every_plan()):
        bound = re.findall(r"device (const )?(\w+)\* (\w+) \[\[buffer\((\d+)\)\]\]", render(each).text)
        assert bound == [
            ("" if buffer.writable else "const ", buffer.metal_type, buffer.name, str(place))
            for place, buffer in enumerate(each.buffers)
        ]
        assert f"params [[buffer({len(each.buffers)})]]" in render(each).text


def test_a_missing_or_an_unknown_parameter_is_an_error():
    forward = made(Problem("float32", 64, 64, has_upper=True), Role.FORWARD)
    values = values_of(forward)
    missing = {name: value for name, value in values.items() if name != "upper"}
    with pytest.raises(ValueError, match=r"missing \['upper'\]"):
        pack(forward, missing)
    with pytest.raises(ValueError, match=r"unknown \['lower'\]"):
        pack(forward, values | {"lower": 0})


def test_a_length_that_32_bits_cannot_count_is_an_error():
    forward = made(Problem("float32", 64, 64), Role.FORWARD)
    with pytest.raises(ValueError, match="kv_len is 536870913"):
        pack(forward, values_of(forward) | {"kv_len": MAX_LENGTH + 1})
    with pytest.raises(ValueError, match="heads is -1"):
        pack(forward, values_of(forward) | {"heads": -1})


def test_a_bound_beyond_every_length_is_clamped_and_strides_are_not():
    forward = made(Problem("float32", 64, 64, has_lower=True, has_upper=True), Role.FORWARD)
    names = [parameter.name for parameter in forward.parameters]
    packed = pack(forward, values_of(forward) | {"lower": -(2**62), "upper": 2**62, "k_head_stride": 2**40})
    assert packed[names.index("lower")] == -MAX_BOUND
    assert packed[names.index("upper")] == MAX_BOUND
    assert packed[names.index("k_head_stride")] == 2**40


def test_every_role_takes_the_five_sizes_and_bounds_only_where_there_are_any():
    for each in every_plan():
        names = [parameter.name for parameter in each.parameters]
        assert names[:5] == ["batch", "heads", "kv_heads", "q_len", "kv_len"]
        assert ("lower" in names, "upper" in names) == (each.has_lower, each.has_upper)
