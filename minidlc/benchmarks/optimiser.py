"""What the graph optimiser makes of a model: nodes, kernels, bytes, FLOPs, memory, seconds a pass.

    python -m minidlc.benchmarks.optimiser resnet18 bert_layer
    MINIDLC_MODELS=DIR python -m minidlc.benchmarks.optimiser     # the larger models of DIR too

    r = measured("resnet18"); r.kernels <= r.onnxruntime_nodes    # True

Nodes are those imported and those at the end; bytes and FLOPs before are of the graph after
`decompose`, where every node is a kernel. A kernel is a step that
runs code, copies included; views are none. Bytes are what kernels read and write if each reads each
input once. ONNX Runtime's count is that of the file it writes (`optimized_model_filepath`), the
smallest over its levels, sizes open or fixed, constants not counted. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime

import minidlc as mc
from minidlc.benchmarks.models import MODELS
from minidlc.transform import Pipeline, Record, parse_pipeline
from minidlc.transform.fusion.fusion_costs import graph_bytes, graph_flops

Shapes = Mapping[str, tuple[int, ...]]
TOKENS = ("input_ids", "attention_mask", "token_type_ids")
FILES: Mapping[str, Shapes] = {
    "ppocr_v4_rec": {"x": (1, 3, 48, 320)},
    "minilm_int8w": {name: (1, 128) for name in TOKENS},
}
TABLE = ("resnet18", "mobilenet_v2", "bert_layer", *FILES)
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
HEADS = (
    *("model", "nodes", "kernels", "ONNX Runtime's nodes"),
    *("MB moved", "MFLOP", "arena / bound, MB", "passes, s"),
)


@dataclass(frozen=True)
class Measured:
    """One row of the table, and the records of the passes."""

    name: str
    nodes: tuple[int, int]
    kernels: int
    bytes_moved: tuple[int | None, int | None]
    flops: tuple[int | None, int | None]
    arena_bytes: int
    peak_bytes: int  # no plan can have a smaller arena
    onnxruntime_nodes: int
    records: tuple[Record, ...]

    def __str__(self) -> str:
        arena = f"{_mega(self.arena_bytes)} / {_mega(self.peak_bytes)}"
        seconds = sum(r.seconds for r in self.records)
        cells = (
            self.name,
            *(" → ".join(map(str, self.nodes)), self.kernels, self.onnxruntime_nodes),
            *(" → ".join(map(_mega, pair)) for pair in (self.bytes_moved, self.flops)),
            *(arena, f"{seconds:.2f}"),
        )
        return f"| {' | '.join(map(str, cells))} |"


def load(name: str) -> tuple[onnx.ModelProto, Shapes | None]:
    """A benchmark model, or a file of the folder MINIDLC_MODELS with the sizes to fix."""
    if name in MODELS:
        return MODELS[name]()[0], None
    return onnx.load(Path(os.environ["MINIDLC_MODELS"]) / f"{name}.onnx"), FILES[name]


def measured(name: str, pipeline: Pipeline | None = None) -> Measured:
    """Optimise and compile a model; `pipeline` None is the default."""
    model, shapes = load(name)
    passes = Pipeline.default() if pipeline is None else pipeline
    graph = mc.load_onnx(model, shapes=None if shapes is None else dict(shapes))
    before, _ = Pipeline.default().only().run(graph)
    after, records = passes.run(graph)
    exe = mc.compile(graph, pipeline=passes)
    return Measured(
        name,
        (len(graph.nodes), len(after.nodes)),
        len(exe.kernels),
        (graph_bytes(before), graph_bytes(after)),
        (graph_flops(before), graph_flops(after)),
        exe.memory_plan.arena_bytes,
        exe.memory_plan.peak_bytes,
        min(onnxruntime_counts(model, shapes)),
        records,
    )


def onnxruntime_counts(model: onnx.ModelProto, shapes: Shapes | None) -> Iterator[int]:
    """Nodes that ONNX Runtime has left, for each of its levels, with sizes open and fixed."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in fixed.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, (shapes or {}).get(value.name, ()), strict=False):
            dim.dim_value = size
    for level in LEVELS:
        for given in (model, fixed) if shapes else (model,):
            yield _optimised_nodes(given, level)


def _optimised_nodes(model: onnx.ModelProto, level: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 3  # errors only: it warns of what it fuses for this machine
        providers = ["CPUExecutionProvider"]
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers)
        nodes = onnx.load(path).graph.node
        return sum(node.op_type != "Constant" for node in nodes)


def _mega(n: int | None) -> str:
    return "?" if n is None else f"{n / 1e6:.1f}"


def seconds_by_pass(rows: list[Measured]) -> str:
    """A second table: milliseconds of each pass, passes that run twice added up."""
    names = dict.fromkeys(record.name for row in rows for record in row.records)
    lines = [f"| pass, ms | {' | '.join(row.name for row in rows)} |"]
    lines.append("| --- |" + " --- |" * len(rows))
    for name in names:
        times = (sum(r.seconds for r in row.records if r.name == name) for row in rows)
        lines.append(f"| {name} | {' | '.join(f'{1e3 * t:.0f}' for t in times)} |")
    return "\n".join(lines)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [n for n in TABLE if n in MODELS or "MINIDLC_MODELS" in os.environ]
    parser.add_argument("models", nargs="*", default=known, help=f"of {', '.join(known)}")
    parser.add_argument("--passes", help="in place of the default pipeline")
    arguments = parser.parse_args()
    pipeline = parse_pipeline(arguments.passes) if arguments.passes else None
    print(f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}")
    rows: list[Measured] = []
    for name in arguments.models:
        rows.append(measured(name, pipeline))
        print(rows[-1], flush=True)
    print(f"\n{seconds_by_pass(rows)}")


if __name__ == "__main__":
    main()
