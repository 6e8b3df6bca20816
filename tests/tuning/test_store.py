"""The tuned file: what is written comes back, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from inductor_mps_attention.codegen import Role, Tiling

from inductor_mps_attention import runtime
from inductor_mps_attention.tuning import candidates, current, machine, store
from inductor_mps_attention.tuning.results import Results
from inductor_mps_attention.tuning.shape import Shape

SHAPE = Shape.parse("f16 B1 H2 S40 D32 causal")
TABLE, OTHER = candidates.tilings(SHAPE.family, Role.FORWARD, 2)


def results(tiling: Tiling = OTHER) -> Results:
    made = Results().with_plan(SHAPE, Role.FORWARD, tiling, 2.0).with_plan(SHAPE, Role.FORWARD, TABLE, None)
    return made.with_choice(SHAPE.family, Role.FORWARD, tiling).with_comparison(SHAPE, "forward", "ours", 3.5)


def plan_of(path: Path) -> Tiling:
    """What the planner takes, the file being read anew."""
    current.reload()
    import torch
    from inductor_mps_attention.codegen import plan

    made = plan(SHAPE.problem, Role.FORWARD, runtime.limits_of(torch.device("mps")))
    return made.tiling


def test_what_is_written_comes_back(tuned_file: Path):
    store.write(tuned_file, machine.here(), results())
    assert store.read(tuned_file, machine.here()) == results()
    assert plan_of(tuned_file) == OTHER


def test_measurements_of_another_machine_are_kept_and_not_used(tuned_file: Path):
    other = replace(machine.here(), chip="Apple M9")
    store.write(tuned_file, other, results())
    assert plan_of(tuned_file) == TABLE
    store.write(tuned_file, machine.here(), Results())
    assert store.read(tuned_file, other) == results()


@pytest.mark.parametrize("key", ["torch", "system", "unit"])
def test_the_machine_is_its_chip_system_torch_and_unit(tuned_file: Path, key: str):
    store.write(tuned_file, replace(machine.here(), **{key: "another"}), results())
    assert plan_of(tuned_file) == TABLE


def edited(path: Path, change) -> None:
    """The file with a change, sealed again: what a checksum alone does not find."""
    sections = json.loads(path.read_text())["sections"]
    change(sections[0])
    path.write_text(json.dumps(store._sealed(sections)))


def set_tiling(section: dict, **values) -> None:
    for entry in section["results"]["chosen"]:
        entry["tiling"] |= values


DAMAGES = {
    "cut": (lambda path: path.write_text(path.read_text()[:200]), "is damaged"),
    "no text": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is damaged"),
    "a list": (lambda path: path.write_text("[]"), "has format None; this version reads 1"),
    "older": (lambda path: path.write_text('{"format": 0}'), "has format 0; this version reads 1"),
    "a digit": (lambda path: path.write_text(path.read_text().replace("3.5", "2.5")), "checksum"),
    "other kernels": (lambda path: edited(path, lambda s: s.update(kernels="0")), "measured with other kernels"),
    "a missing part": (lambda path: edited(path, lambda s: s["results"].pop("chosen")), "holds what `tune` does not"),
    "a word": (lambda path: edited(path, lambda s: set_tiling(s, tile="32")), "tile is '32'"),
    "a number": (lambda path: edited(path, lambda s: set_tiling(s, tile=24)), "which the planner does not offer"),
    "too much": (lambda path: edited(path, lambda s: set_tiling(s, tile=64, simdgroups=64)), "does not offer"),
    "a sign": (lambda path: edited(path, lambda s: s["results"]["compared"][0].update(measured=-1.0)), "measured -1.0"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_file_that_does_not_fit_is_refused_in_one_sentence_and_ignored(tuned_file: Path, damage):
    change, message = damage
    store.write(tuned_file, machine.here(), results())
    change(tuned_file)
    with pytest.warns(UserWarning, match="the file is ignored") as warned:
        assert plan_of(tuned_file) == TABLE
    (sentence,) = [str(each.message) for each in warned if "mps_attention" in str(each.message)]
    assert message in sentence
    assert "\n" not in sentence
    assert current.current().refusal is not None


def test_a_refused_file_is_replaced_by_the_next_one(tuned_file: Path):
    tuned_file.write_text("{")
    store.write(tuned_file, machine.here(), results())
    assert plan_of(tuned_file) == OTHER


def test_a_choice_that_changes_forgets_how_ours_compared():
    before = results()
    assert before.with_choice(SHAPE.family, Role.FORWARD, OTHER) is before
    assert not before.with_choice(SHAPE.family, Role.FORWARD, TABLE).compared


def test_a_tiling_that_was_wrong_on_one_shape_is_never_chosen():
    longer = replace(SHAPE, q_len=64, kv_len=64)
    made = Results()
    for shape, tiling, measured in ((SHAPE, TABLE, 3.0), (SHAPE, OTHER, 1.0), (longer, TABLE, 3.0)):
        made = made.with_plan(shape, Role.FORWARD, tiling, measured)
    wrong = made.with_plan(longer, Role.FORWARD, OTHER, None)
    right = made.with_plan(longer, Role.FORWARD, OTHER, 8.0)
    assert wrong.fastest(SHAPE.family, Role.FORWARD, (TABLE, OTHER)) == TABLE
    assert right.fastest(SHAPE.family, Role.FORWARD, (TABLE, OTHER)) == OTHER  # 1 * 8 < 3 * 3
