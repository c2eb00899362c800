"""Pipelines that hold one optional pass each, for tests that ask every pass the same question.

    for name, pipeline in alone().items():          # {'cse': decompose,cse; 'fuse': …}
        graph, _ = pipeline.run(case.graph)

Passes are found in the registry: a new one is tested from the day it exists.
"""

from __future__ import annotations

from minidlc.transform import Pipeline, parse_pipeline, registered_passes

# passes with options that change what they do
VARIANTS = ('fuse{style="xla"}', 'fuse{style="stitch"}', 'reorder{style="dfs"}')


def alone() -> dict[str, Pipeline]:
    """Text of a pass -> the mandatory passes and, where its place is, that pass."""
    names = [cls.name for cls in registered_passes().values() if not cls.mandatory]
    shipped = [name for name in names if _is_shipped(name)]
    return {text: _with(text) for text in (*shipped, *VARIANTS)}


def _is_shipped(name: str) -> bool:
    """False for a pass that a test registered."""
    return registered_passes()[name].__module__.startswith("minidlc.transform")


def _with(text: str) -> Pipeline:
    (step,) = parse_pipeline(text).passes
    default = Pipeline.default()
    if step.name in default.names:
        return default.only(step.name).replace(step.name, step)
    return Pipeline((*default.only().passes, step))
