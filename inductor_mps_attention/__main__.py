"""`python -m inductor_mps_attention demo | explain | kernel | doctor | tune`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = _parser()
    # The demo has options of its own, and prints its own help for them.
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command == "demo":
        from .demo.run import main as demo

        return demo(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return int(arguments.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m inductor_mps_attention", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", add_help=False, help="train a small GPT and embed sentences, eager against compiled")

    explain = commands.add_parser(
        "explain", help="print which attentions of a program are fused, and why others are not"
    )
    explain.add_argument(
        "target", help="module:function; called without arguments it returns (model, args) or (model, args, kwargs)"
    )
    explain.add_argument("--json", action="store_true", help="print JSON")
    explain.set_defaults(run=_explain)

    kernel = commands.add_parser("kernel", help="print the Metal text of a kernel")
    kernel.add_argument("role", choices=("forward", "backward_delta", "backward_dq", "backward_dkv"))
    kernel.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    kernel.add_argument("--head-dim", type=int, default=64)
    kernel.add_argument("--v-head-dim", type=int, default=None, help="if it differs from --head-dim")
    kernel.add_argument("--causal", action="store_true", help="bounded above; the bound is a run-time integer")
    kernel.add_argument("--window", action="store_true", help="bounded below and above")
    kernel.add_argument("--unaligned", action="store_true", help="rows that don't start at multiples of 16 bytes")
    kernel.set_defaults(run=_kernel)

    doctor = commands.add_parser("doctor", help="print what this installation finds on this machine")
    doctor.set_defaults(run=_doctor)

    from .tuning import command

    command.add_to(commands)
    return parser


def _explain(arguments: argparse.Namespace) -> int:
    from .explanation import explain
    from .program import load

    try:
        model, args, kwargs = load(arguments.target)
    except ValueError as error:
        print(f"explain: {error}", file=sys.stderr)
        return 2

    report = explain(model, *args, **kwargs)
    print(json.dumps(report.to_json(), indent=2) if arguments.json else report)
    return 0


def _kernel(arguments: argparse.Namespace) -> int:
    from inductor_mps_attention.codegen import Problem, Rejected, Role, plan, render

    problem = Problem(
        dtype=arguments.dtype,
        qk_head_dim=arguments.head_dim,
        v_head_dim=arguments.v_head_dim or arguments.head_dim,
        has_lower=arguments.window,
        has_upper=arguments.causal or arguments.window,
        aligned=not arguments.unaligned,
    )
    planned = plan(problem, Role(arguments.role))
    if isinstance(planned, Rejected):
        print(f"no such kernel: {planned.message}", file=sys.stderr)
        return 1
    print(render(planned).text)
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import findings

    checks = findings()
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{'ok ' if check.ok else 'BAD'} {check.name.ljust(width)}  {check.finding}")
    return 0 if all(check.ok for check in checks) else 1


if __name__ == "__main__":
    raise SystemExit(main())
