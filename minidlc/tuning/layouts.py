"""The layout of a model's images as a point to be tuned: plain, or in blocks of so many channels.

    found = variants(Pipeline.default(3, target), target)   # {layout(block=16): …, plain(): …}
    record = layout_record(graph, target, 1, winner, default, seconds, default_seconds)
    chosen(passes, database.best(model_workload(graph, target, 1)), target)     # the fastest
    mixed(graph, passes, target, timed)             # layout(block=16, weighed=0, conv_3.block=1)

The layout pass weighs regions by two constants; what they cannot know is how fast the tuned kernels
of either layout are, and what the copies between layouts cost beside them. So a model is a
workload like a kernel is, keyed by the text of its graph, with the pipelines as its points, and
what won end to end, in turns with the default, is kept as a record like any other. `mixed` gives
each convolution the layout that is best together with its neighbours' (neighbours.py), from the
times of the kernels of the uniform ones: Y. Liu et al., Optimizing CNN Model Inference on CPUs,
USENIX ATC 2019. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from minidlc.graph import Graph, print_graph
from minidlc.target import Target
from minidlc.transform import Pipeline
from minidlc.transform.layout.layout import Layout
from minidlc.tuning.neighbours import Timed, plan, prices
from minidlc.tuning.records import Record, kit_version, llvm_version
from minidlc.tuning.space import Config
from minidlc.tuning.trial import Fate, Trial
from minidlc.tuning.workload import Workload

KIND = "layout"  # of the workload of a whole model
PLAIN = Config("plain")
GAIN_OF_MIXED = 0.98  # of the convolutions' time: less is the noise of the times it is made of
_WEIGHED = "weighed"  # 0: nothing is weighed, convolutions are in blocks but for …
_OWN = ".block"  # … those whose knob says 1; no name of a convolution has a dot


def variants(passes: Pipeline, target: Target) -> dict[Config, Pipeline]:
    """The pipelines to compare, what `passes` does first; only that where it has no layout pass."""
    default = layout_of(passes)
    lanes = target.lanes(32)
    blocks = (lanes, lanes // 2 if lanes > 8 else 2 * lanes)
    points = [default, *(Config.of(KIND, {"block": b}) for b in blocks), PLAIN]
    if default == PLAIN:
        return {PLAIN: passes}
    return {point: with_layout(passes, point) for point in points}


def layout_of(passes: Pipeline) -> Config:
    """The point that a pipeline stands for."""
    found = [p for p in passes.passes if isinstance(p, Layout)]
    return point_of(found[-1].block, found[-1].plain) if found else PLAIN


def point_of(block: int, plain: tuple[str, ...] | None = None) -> Config:
    """The point of a layout pass: layout(block=16, weighed=0, conv_3.block=1)."""
    told = {} if plain is None else {_WEIGHED: 0} | {f"{name}{_OWN}": 1 for name in plain}
    return Config.of(KIND, {"block": block} | told)


def with_layout(passes: Pipeline, point: Config) -> Pipeline:
    """The pipeline with its layout pass as the point says, or without it."""
    if point == PLAIN:
        return passes.without(Layout.name)
    knobs = point.values
    block, names = knobs["block"], tuple(k.removesuffix(_OWN) for k in knobs if k.endswith(_OWN))
    plain = names if _WEIGHED in knobs else None
    new = (
        replace(p, block=block, plain=plain) if isinstance(p, Layout) else p for p in passes.passes
    )
    return Pipeline(tuple(new))


def mixed(
    graph: Graph, passes: Pipeline, target: Target, timed: Mapping[Config, Timed]
) -> Config | None:
    """The point whose convolutions have, together with their neighbours, the least sum of times.

    `timed` are the kernels of the points that were measured, with seconds of a run. None if there
    is no layout pass, the graph is too tangled, or a uniform layout is as good (`GAIN_OF_MIXED`).
    """
    names = passes.names
    if Layout.name not in names:
        return None
    before, _ = Pipeline(passes.passes[: names.index(Layout.name)]).run(graph)
    found = list[tuple[float, Config]]()
    for block in {p.values["block"]: None for p in variants(passes, target) if p != PLAIN}:
        same = (t for p, t in timed.items() if p.values.get("block", block) == block)
        planned = plan(before, block, prices(before, block, same))
        if planned is not None and planned.seconds < GAIN_OF_MIXED * planned.uniform:
            found.append((planned.seconds, point_of(block, planned.plain)))
    return min(found)[1] if found else None


def model_workload(graph: Graph, target: Target, threads: int) -> Workload:
    """The workload that a whole model is: its graph before the passes, by digest of the text."""
    digest = hashlib.sha256(print_graph(graph).encode()).hexdigest()
    return Workload(f"graph {digest}", KIND, "", (), target, threads)


def layout_record(
    workload: Workload,
    name: str,
    winner: tuple[Config, tuple[float, ...]],
    default: tuple[Config, tuple[float, ...]],
    seed: int = 0,
) -> Record:
    """What won end to end, and the default: points with seconds of a run of the model, by round."""
    trial = Trial(winner[0], Fate.OK, winner[1], by="re-check")
    versions = kit_version(), llvm_version()
    return Record(workload, trial, name, (), (), "", "", seed, *default, *versions)


def chosen(passes: Pipeline, record: Record | None, target: Target) -> Pipeline:
    """The pipeline with the layout that a record of this graph says is fastest.

    `passes` itself if there is no record, or it compared with another default than this one.
    """
    if record is None or record.default != layout_of(passes):
        return passes
    known, point = variants(passes, target), record.config
    if point.way == KIND and point_of(point.values.get("block", 0)) in known:
        return with_layout(passes, point)
    return known.get(point, passes)
