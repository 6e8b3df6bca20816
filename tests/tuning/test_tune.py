"""`tune` on the simulator: the same file twice, the same after it was stopped, and what is fused by it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from inductor_mps_attention.codegen import Role
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

import inductor_mps_attention as ima
from inductor_mps_attention import runtime
from inductor_mps_attention.__main__ import main
from inductor_mps_attention.config import Options
from inductor_mps_attention.matching.fusion_pass import FusionPass
from inductor_mps_attention.tuning import candidates, current, machine, measuring, store
from inductor_mps_attention.tuning.gauges import gauge_of
from inductor_mps_attention.tuning.results import Results
from inductor_mps_attention.tuning.shape import Shape

LABEL = "f32 B1 H2/1 S24 D16 causal"
SHAPE = Shape.parse(LABEL)
ARGUMENTS = ["tune", LABEL, "--tilings", "2"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a whole run."""
    path = tmp_path_factory.mktemp("tuned") / "tuned.json"
    assert main([*ARGUMENTS, "--file", str(path)]) == 0
    return path.read_bytes()


def test_the_same_command_gives_the_same_file(kept: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "again.json"
    path.write_bytes(kept)
    assert main([*ARGUMENTS, "--file", str(path)]) == 0
    assert "12 measurements, 0 of them new" in capsys.readouterr().out
    assert main([*ARGUMENTS, "--file", str(path), "--again"]) == 0
    printed = capsys.readouterr().out
    assert "12 measurements, 12 of them new" in printed
    assert "says nothing of an Apple GPU" in printed
    assert path.read_bytes() == kept


def test_a_run_that_is_stopped_goes_on_where_it_was(
    kept: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path, whole = tmp_path / "tuned.json", store.write
    calls = 0

    def killed(*arguments) -> None:
        nonlocal calls
        calls += 1
        whole(*arguments)
        if calls == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(store, "write", killed)
    assert main([*ARGUMENTS, "--file", str(path)]) == 130
    assert "goes on from here" in capsys.readouterr().err
    results = store.read(path, machine.here())
    assert len(results.plans) == 4
    assert not results.chosen  # half a comparison decides nothing
    monkeypatch.undo()
    assert main([*ARGUMENTS, "--file", str(path)]) == 0
    assert "12 measurements, 8 of them new" in capsys.readouterr().out
    assert path.read_bytes() == kept


def test_a_dry_run_measures_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "tuned.json"
    assert main([*ARGUMENTS, "--file", str(path), "--dry-run"]) == 0
    assert capsys.readouterr().out.count(LABEL) == 12
    assert not path.exists()


def test_the_attentions_of_a_program_are_tuned_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "tuned_program.py").write_text(
        "import torch, torch.nn.functional as F\n"
        "def build():\n"
        "    q, k = torch.randn(1, 2, 24, 16, device='mps'), torch.randn(1, 1, 24, 16, device='mps')\n"
        "    attend = F.scaled_dot_product_attention\n"
        "    return lambda q, k: attend(q, k, k, is_causal=True, enable_gqa=True), (q, k)\n"
    )
    monkeypatch.chdir(tmp_path)
    command_line = ["tune", "--program", "tuned_program:build", "--file", "x.json", "--dry-run", "--inference"]
    assert main(command_line) == 0
    assert f"{LABEL}: forward sdpa" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no attention to tune for"),
        (["f16 B1 H1 S8 D512"], "no kernel computes f16 B1 H1 S8 D512 full"),
        (["f16"], "lacks"),
        ([LABEL, "--tilings", "0"], "--tilings must be 1 or more, got 0"),
        (["--program", "nothing"], "module:function"),
    ],
)
def test_what_cannot_be_tuned_is_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["tune", *arguments, "--file", str(tmp_path / "x.json")]) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_kernel_is_never_measured(monkeypatch: pytest.MonkeyPatch):
    attention = measuring.Attention(SHAPE, gauge_of(machine.here()))
    tiling = candidates.tilings(SHAPE.family, Role.FORWARD, 2)[1]
    assert attention.plan(Role.FORWARD, tiling) is not None
    attention._reference["out"] = attention._reference["out"] * 1.001
    assert attention.plan(Role.FORWARD, tiling) is None


# What is planned and fused by the file.

OTHERS = {role: candidates.tilings(SHAPE.family, role, 2)[1] for role in (Role.FORWARD, Role.BACKWARD_DQ)}


def chosen() -> Results:
    """The second tilings, without having measured anything."""
    results = Results()
    for role, tiling in OTHERS.items():
        results = results.with_choice(SHAPE.family, role, tiling)
    return results


def inputs() -> list[torch.Tensor]:
    return [torch.randn(1, heads, 24, 16, device="mps", requires_grad=True) for heads in (2, 1, 1)]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def write(path: Path, results: Results) -> None:
    store.write(path, machine.here(), results)
    current.reload()


def test_chosen_tilings_are_launched_and_right(tuned_file: Path):
    write(tuned_file, chosen())
    q, k, v = inputs()
    _, codes = run_and_get_code(lambda: torch.compile(attend, backend="mps_attention")(q, k, v).sum().backward())
    assert f"_{OTHERS[Role.FORWARD].short}_" in codes[0]
    assert f"_{OTHERS[Role.BACKWARD_DQ].short}_" in codes[1]
    exact = [tensor.detach().cpu().double().requires_grad_() for tensor in (q, k, v)]
    attend(*exact).sum().backward()
    for got, reference in zip((q, k, v), exact, strict=True):
        assert (got.grad.cpu().double() - reference.grad).norm() / reference.grad.norm() < 1e-5


def test_eager_attention_takes_the_chosen_tilings(tuned_file: Path):
    device = torch.device("mps")
    before = runtime.limits_of(device)
    write(tuned_file, chosen())
    assert {plan.tiling for plan in runtime.limits_of(device).tuned} == set(OTHERS.values())
    assert runtime.limits_of(device) is runtime.limits_of(device)
    assert not before.tuned
    assert not runtime.limits_of(torch.device("cpu")).tuned


@pytest.mark.parametrize("route", ["pass", "pass beside one without a uuid", "operator"])
def test_what_was_compiled_before_is_not_taken_over(tuned_file: Path, route: str):  # with Inductor's caches on
    q, k, v = (tensor.detach() for tensor in inputs())
    attention = ima.flash_attention if route == "operator" else F.scaled_dot_product_attention

    def code() -> str:
        torch._dynamo.reset()
        compiled = torch.compile(lambda: attention(q, k, v, is_causal=True, enable_gqa=True))
        with ima.registered():
            return run_and_get_code(compiled)[1][0]

    caches = {"force_disable_caches": False, "fx_graph_cache": True}
    if route == "pass beside one without a uuid":
        caches["pre_grad_custom_pass"] = lambda graph: None
    with torch._inductor.config.patch(caches), torch._inductor.utils.fresh_inductor_cache():
        plain, again = code(), code()
        hits = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
        write(tuned_file, chosen())
        tuned = code()
    assert plain == again
    assert hits, "the test needs a cache that answers"
    assert f"_{OTHERS[Role.FORWARD].short}_" not in plain
    assert f"_{OTHERS[Role.FORWARD].short}_" in tuned


def test_the_pass_has_another_uuid(tuned_file: Path):
    before = FusionPass(Options()).uuid()
    write(tuned_file, chosen())
    assert FusionPass(Options()).uuid() != before


def compared(ours: float, sdpa: float | None, direction: str = "forward") -> Results:
    return Results().with_comparison(SHAPE, direction, "ours", ours).with_comparison(SHAPE, direction, "sdpa", sdpa)


def fused(policy: str, *, training: bool, length: int = 24) -> tuple[int, dict[str, int]]:
    torch._dynamo.reset()
    ima.reset_stats()
    q, k, v = (torch.randn(1, heads, length, 16, device="mps", requires_grad=training) for heads in (2, 1, 1))
    torch.compile(attend, backend="mps_attention", options={"attention.policy": policy, "attention.inner": "eager"})(
        q, k, v
    )
    stats = ima.stats()
    return stats["fused"], stats["declined"]


def test_auto_fuses_only_where_ours_won(tuned_file: Path):
    assert fused("auto", training=False)[0] == 1  # nothing was measured
    write(tuned_file, compared(ours=2.0, sdpa=1.0))
    assert fused("auto", training=False) == (0, {"SLOWER": 1})
    assert fused("always", training=False)[0] == 1
    assert fused("auto", training=True)[0] == 1  # a forward says nothing of a training step
    assert fused("auto", training=False, length=49)[0] == 1  # nor of other sizes
    write(tuned_file, compared(ours=1.0, sdpa=2.0))
    assert fused("auto", training=False)[0] == 1
    write(tuned_file, compared(ours=2.0, sdpa=None))  # stock was out of memory
    assert fused("auto", training=False)[0] == 1
    write(tuned_file, compared(ours=2.0, sdpa=1.0, direction="training"))
    assert fused("auto", training=True) == (0, {"SLOWER": 1})


def test_a_decode_is_compared_but_has_no_tiling_to_choose(tmp_path: Path):
    path = tmp_path / "tuned.json"
    assert main(["tune", "f32 B1 H2/1 S1x300 D16 causal", "--inference", "--file", str(path)]) == 0
    results = store.read(path, machine.here())
    assert not results.plans
    assert {name for _, _, name in results.compared} == {"ours", "sdpa", "manual"}
