"""The pass: finds the attentions of a graph, proves them, replaces those that are proved, and reports all.

The graph is read whole before anything is changed. Operators are added beside the old nodes; only when all of them
are in place and the graph passes lint do the old nodes go. A failure of ours leaves the graph as it was.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule, Node

from ..config import Options
from ..errors import Declined, Reason, Rejection
from ..tuning.current import current
from .bodies import bodies, waits_for_parent
from .builder import Builder
from .candidate import Candidate
from .dump import dumped
from .findings import rejection
from .fingerprint import package_fingerprint
from .fuel import Fuel
from .key_masks import KeyMaskNodes
from .memory import is_dead
from .nodes import location
from .proof import Context, Verdict, candidate_at, judge
from .recorder import Recorder
from .rewrite import emit
from .site import Site

DEVICE_TYPES = ("mps",)
_recorder = Recorder()
_fuel = Fuel()


class FusionPass(CustomGraphPass):
    """For `torch._inductor.config.pre_grad_custom_pass`, which calls it on a graph and on each of its subgraphs."""

    def __init__(
        self,
        options: Options,
        device_types: tuple[str, ...] = DEVICE_TYPES,
        refine: Callable[[Options], Options] | None = None,
    ):
        """refine: asked at each use for the options of the compilation that is going on."""
        self._options, self.device_types, self._refine = options, device_types, refine

    @property
    def options(self) -> Options:
        return self._options if self._refine is None else self._refine(self._options)

    def __call__(self, graph: Graph) -> None:
        """Rewrites in place, bodies included. Raises Declined, or our own failure, with `strict`."""
        if not waits_for_parent(graph):
            _recorder.record(self._fuse_tree(graph))

    def _fuse_tree(self, graph: Graph, refusal: str | None = None) -> list[Site]:
        sites = fuse(graph, self.options, self.device_types, refusal)
        for body in bodies(graph):
            if waits_for_parent(body.module.graph):  # the others had a turn of their own
                sites += self._fuse_tree(body.module.graph, refusal or body.refusal)
                body.module.recompile()
        return sites

    def uuid(self) -> bytes:
        """Covers everything that decides the result: the package's sources and templates, torch, the options, the chip,
        and what `tune` measured on it.

        With `fuel` the result depends on what this process has rewritten before, so no other process may reuse it.
        """
        options = self.options
        fuel = () if options.fuel is None else _fuel.state()
        # Kernels are planned for the chip at hand, and a cache may come from another machine.
        chip = torch.backends.mps.get_name() if torch.backends.mps.is_available() else None
        extra = (*options.result_changing(), self.device_types, chip, *fuel, current().digest)
        return package_fingerprint(extra)


def run(
    graph_module: GraphModule,
    options: Options,
    device_types: tuple[str, ...] = DEVICE_TYPES,
    *,
    count: bool = True,
) -> list[Site]:
    """The pass on a module and on all bodies that its graph calls, for backends other than Inductor.

    `count`: enter the totals.
    """
    sites = _fuse_module(graph_module, options, device_types, None)
    if count:
        _recorder.record(sites)
    return sites


def _fuse_module(
    module: GraphModule, options: Options, device_types: tuple[str, ...], refusal: str | None
) -> list[Site]:
    sites = fuse(module.graph, options, device_types, refusal)
    for body in bodies(module.graph):
        sites += _fuse_module(body.module, options, device_types, refusal or body.refusal)
    module.recompile()
    return sites


def totals() -> tuple[int, dict[str, int]]:
    """Attentions fused in this process, and declined ones by the name of the reason."""
    return _recorder.totals()


def reset_totals() -> None:
    """Back to zero, and the tank of `fuel` full."""
    _recorder.reset()
    _fuel.reset()


def recording() -> AbstractContextManager[list[Site]]:
    """`with recording() as sites:` collects the sites that passes meet within the block."""
    return _recorder.recording()


def fuse(graph: Graph, options: Options, device_types: tuple[str, ...], refusal: str | None = None) -> list[Site]:
    """One Site per attention of the graph, in graph order. Rewrites in place, and dumps if `dump_dir` is given.

    refusal: why nothing in this graph may be fused, or None.
    """
    try:
        context = Context.of(graph, options, device_types, refusal)
    except Exception as error:  # any failure of ours must leave the user's graph alone; strict re-raises
        if options.strict:
            raise
        _warn(error, "a graph")
        return []
    return dumped(graph, options.dump_dir, lambda: _fuse(context))


def _fuse(context: Context) -> list[Site]:
    graph, options = context.graph, context.options
    verdicts = list(_judge_all(context))
    if options.strict:
        _raise_on_decline(verdicts)
    failed = _replace(graph, [verdict for verdict in verdicts if verdict.match is not None], options)
    return [_site(verdict, failed) for verdict in verdicts]


def _raise_on_decline(verdicts: list[Verdict]) -> None:
    declined = [verdict for verdict in verdicts if verdict.match is None]
    if not declined:
        return
    for verdict in verdicts:
        _take_back(verdict)
    candidate = declined[0].candidate
    raise Declined(tuple(candidate.findings.rejections), location(candidate.anchor))


def _judge_all(context: Context) -> Iterator[Verdict]:
    for node in context.graph.nodes:
        candidate = None
        try:
            found = candidate_at(node)
            if found is not None:
                candidate, softmax = found
                yield judge(candidate, softmax, context)
        except Exception as error:  # see fuse
            if context.options.strict:
                raise
            internal = _internal(error, node)
            if candidate is not None:
                candidate.findings.add(internal)
                yield Verdict(candidate, None, None)


@dataclass
class Replacement:
    """New nodes beside old ones.

    `moves`: (old, new) values whose users change over. `old`: nodes that go, in graph order.
    """

    moves: list[tuple[Node, Node]]
    old: list[Node]
    builders: list[Builder]

    def discard(self) -> None:
        for builder in reversed(self.builders):
            builder.discard()


def _replace(graph: Graph, verdicts: list[Verdict], options: Options) -> set[Node]:
    """Puts the operators in; returns the anchors that were left alone after all."""
    left: set[Node] = set()
    done: list[Replacement] = []
    placed: list[Verdict] = []
    key_masks = KeyMaskNodes(graph)
    for verdict in verdicts:
        anchor, findings = verdict.candidate.anchor, verdict.candidate.findings
        if not _fuel.take(options.fuel):
            findings.no(Reason.FUEL, f"attention.fuel allows {options.fuel} rewrites in this process", anchor)
            _take_back(verdict)
            left.add(anchor)
            continue
        try:
            done.append(_insert(graph, verdict, key_masks))
            placed.append(verdict)
        except Exception as error:  # see fuse
            _take_back(verdict)
            if options.strict:
                for replacement in reversed(done):
                    replacement.discard()
                key_masks.drop_unused()
                raise
            findings.add(_internal(error, anchor))
            left.add(anchor)
    try:
        _commit(graph, done, key_masks)
    except Exception as error:  # see fuse
        if options.strict:
            raise
        for verdict in placed:
            verdict.candidate.findings.add(_internal(error, verdict.candidate.anchor))
            left.add(verdict.candidate.anchor)
    return left


def _take_back(verdict: Verdict) -> None:
    if verdict.expansion is not None:
        verdict.expansion.builder.discard()


def _insert(graph: Graph, verdict: Verdict, key_masks: KeyMaskNodes) -> Replacement:
    """Adds the operator of one match; on failure everything that it added is gone."""
    match, expansion = verdict.match, verdict.expansion
    assert match is not None
    builder = Builder(graph, match.out)
    with builder.whole_or_nothing():
        new = emit(match, builder, key_masks)
    replacement = Replacement([(match.out, new)], list(match.chain), [builder])
    if expansion is not None:
        replacement.moves += [(output, expansion.result) for output in expansion.outputs()]
        replacement.old += [expansion.leaf, *expansion.leaf.users]
        replacement.builders.insert(0, expansion.builder)
    return replacement


def _commit(graph: Graph, done: list[Replacement], key_masks: KeyMaskNodes) -> None:
    """Moves all users to the new nodes and drops the old ones; raises what lint raises, with the graph restored."""
    moved = [(old, new, list(old.users)) for replacement in done for old, new in replacement.moves]
    for old, new, users in moved:
        for user in users:
            user.replace_input_with(old, new)
    try:
        graph.lint()
    except Exception:
        for old, new, users in reversed(moved):
            for user in users:
                user.replace_input_with(new, old)
        for replacement in reversed(done):
            replacement.discard()
        key_masks.drop_unused()
        raise
    key_masks.drop_unused()
    for replacement in reversed(done):
        _erase(graph, replacement.old)


def _erase(graph: Graph, old: Iterable[Node]) -> None:
    """Last first. A node whose shape somebody still reads stays; its value is dead code for what compiles next."""
    for node in reversed(list(old)):
        for user in [user for user in node.users if is_dead(user)]:
            graph.erase_node(user)
        if not node.users:
            graph.erase_node(node)


def _internal(error: Exception, node: Node) -> Rejection:
    _warn(error, f"the attention at {location(node)}")
    return rejection(Reason.INTERNAL, f"{type(error).__name__}: {error}", node)


def _warn(error: Exception, what: str) -> None:
    text = "".join(traceback.format_exception(error))
    warnings.warn(f"mps_attention: matching failed, {what} is left alone.\n{text}", stacklevel=2)


def _site(verdict: Verdict, failed: set[Node]) -> Site:
    candidate: Candidate = verdict.candidate
    fused = verdict.match is not None and candidate.anchor not in failed
    return Site(fused, candidate.kind, list(candidate.findings.rejections), verdict.spec, location(candidate.anchor))
