"""The layout of a model's images as a point to be tuned: plain, or in blocks of so many channels.

    found = variants(Pipeline.default(3, target), target)   # {layout(block=16): …, plain(): …}
    record = layout_record(graph, target, 1, winner, default, seconds, default_seconds)
    chosen(passes, database.best(model_workload(graph, target, 1)), target)     # the fastest

The layout pass weighs regions by two constants; what they cannot know is how fast the tuned kernels
of either layout are, and what the copies between layouts cost beside them. So a model is a
workload like a kernel is, keyed by the text of its graph, with the pipelines as its points, and
what won end to end, in turns with the default, is kept as a record like any other. Which layouts
to try together with which schedules is the question of Y. Liu et al., Optimizing CNN Model
Inference on CPUs, USENIX ATC 2019. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from minidlc.graph import Graph, print_graph
from minidlc.target import Target
from minidlc.transform import Pipeline
from minidlc.transform.layout.layout import Layout
from minidlc.tuning.records import Record, kit_version, llvm_version
from minidlc.tuning.space import Config
from minidlc.tuning.trial import Fate, Trial
from minidlc.tuning.workload import Workload

KIND = "layout"  # of the workload of a whole model
PLAIN = Config("plain")


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
    blocks = [p.block for p in passes.passes if isinstance(p, Layout)]
    return Config.of(KIND, {"block": blocks[-1]}) if blocks else PLAIN


def with_layout(passes: Pipeline, point: Config) -> Pipeline:
    """The pipeline with its layout pass as the point says, or without it."""
    if point == PLAIN:
        return passes.without(Layout.name)
    block = point.values["block"]
    found = (replace(p, block=block) if isinstance(p, Layout) else p for p in passes.passes)
    return Pipeline(tuple(found))


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
    return variants(passes, target).get(record.config, passes)
