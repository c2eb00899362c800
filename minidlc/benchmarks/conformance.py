"""ONNX's own backend tests against the compiler, one verdict a test.

    python -m minidlc.benchmarks.conformance                 # counts, and what is not a pass
    python -m minidlc.benchmarks.conformance resize          # tests whose name holds "resize"

    pass          every output has the right number, shape, element type and values
    wrong         it ran and some output differs (the test's own tolerances)
    unsupported   refused as "not supported"
    error         any other exception;  crash, timeout: of the process that runs the test

The core list leaves out tests of strings, sequences, optionals, maps, sparse tensors, complex
numbers, elements narrower than a byte or of 8-bit floats, ai.onnx.ml, training and random ops:
1,772 of 2,033 with onnx 1.23. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import minidlc as mc
from minidlc.support.errors import CompileError

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
VERDICTS = ("pass", "wrong", "unsupported", "error", "crash", "timeout")
TIMEOUT = 60.0  # seconds a test may take

RANDOM = ("RandomNormal", "RandomUniform", "Multinomial", "Bernoulli")
DRAWN = {  # dropouts whose expected values are what NumPy's generator drew
    f"test_training_dropout{name}" for name in ("", "_default", "_mask", "_default_mask")
}
OTHER_VALUES = ("Sequence", "SplitToSequence", "ConcatFromSequence", "Optional")
OTHER_TYPES = ("sequence_type", "optional_type", "map_type", "sparse_tensor_type")
OTHER_ELEMENTS = ("STRING", "COMPLEX", "FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2")

Arrays = list[Any]


@dataclass(frozen=True)
class Case:
    """A model, and pairs of inputs and expected outputs."""

    name: str
    model: bytes
    sets: list[tuple[Arrays, Arrays]]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Verdict:
    """What became of a case: a word of VERDICTS, and the first line of the reason."""

    word: str
    reason: str = ""


def core_cases(wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Case]:
    """The tests of the core list, by kind and name."""
    warnings.simplefilter("ignore")  # tests are computed on loading, by NumPy: 0 / 0 is meant
    for kind in KINDS:
        for test in sorted(load_model_tests(kind=kind), key=lambda t: t.name):
            if not wanted(test.name) or test.name in DRAWN:
                continue
            model = test.model or onnx.load(_file(test))
            if is_core(model):
                sets = list(_sets(test, model))
                yield Case(test.name, model.SerializeToString(), sets, test.rtol, test.atol)


def _file(test: Any) -> str:
    if test.model_dir is not None:
        return str(Path(test.model_dir) / "model.onnx")
    return str(Path(onnx.__file__).parents[1] / test.url)  # a light model of the wheel


def _sets(test: Any, model: onnx.ModelProto) -> Iterator[tuple[Arrays, Arrays]]:
    if test.model is not None:
        yield from ((list(map(_dense, a)), list(map(_dense, b))) for a, b in test.data_sets)
    elif test.model_dir is not None:
        for folder in sorted(Path(test.model_dir).glob("test_data_set_*")):
            yield _arrays(folder, "input"), _arrays(folder, "output")
    else:
        known = {t.name for t in model.graph.initializer}
        inputs = [Runner.generate_dummy_data(i) for i in model.graph.input if i.name not in known]
        stored = onnx.load_tensor(_file(test).removesuffix(".onnx") + "_output_0.pb")
        yield inputs, [numpy_helper.to_array(stored)]


def _dense(value: Any) -> Any:
    """An array; some tests hold protobufs, and numbers for rank 0."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def _arrays(folder: Path, kind: str) -> Arrays:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    files = (folder / f"{kind}_{n}.pb" for n in range(count))
    return [numpy_helper.to_array(onnx.load_tensor(f)) for f in files]


def is_core(model: onnx.ModelProto) -> bool:
    """True if the model holds dense tensors of whole bytes and ops of ONNX's default domain."""
    functions = [n for f in model.functions for n in f.node]
    for node in [*_nodes(model.graph), *functions]:
        if node.domain == "ai.onnx.ml" or "training" in node.domain:
            return False
        if node.op_type.startswith((*RANDOM, *OTHER_VALUES)):
            return False
    elements = [t.data_type for t in model.graph.initializer]
    for info in [*model.graph.input, *model.graph.output]:
        if any(info.type.HasField(other) for other in OTHER_TYPES):
            return False
        elements.append(info.type.tensor_type.elem_type)
    names = map(TensorProto.DataType.Name, elements)
    return not any(name.startswith(OTHER_ELEMENTS) for name in names)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes(body)


def run(case: Case) -> Verdict:
    """Compile the model and run it on every set of inputs."""
    try:
        exe = mc.compile(case.model, threads=1)
        for inputs, expected in case.sets:
            reason = difference(exe(*inputs), expected, case)
            if reason:
                return Verdict("wrong", reason)
    except CompileError as e:
        word = "unsupported" if "not supported" in str(e) else "error"
        return Verdict(word, str(e).splitlines()[0])
    except Exception as e:  # whatever else it is, it is a fault of ours
        return Verdict("error", f"{type(e).__name__}: {e}".splitlines()[0])
    return Verdict("pass")


def difference(outputs: Arrays, expected: Arrays, case: Case) -> str:
    """The first difference, or nothing."""
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs, expected {len(expected)}"
    for k, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            return f"output {k}: {got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
        narrow = want.dtype.name == "bfloat16"
        wide = np.float32 if narrow else want.dtype
        rtol = max(case.rtol, 2**-6) if narrow else case.rtol
        try:
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol, case.atol)
        except AssertionError as e:
            return f"output {k}: {' '.join(str(e).split())[:150]}"
    return ""


def verdicts(cases: Iterable[Case]) -> Iterator[tuple[str, Verdict]]:
    """Run each case in a process beside this one; a new one after a crash or a timeout."""
    pool = ProcessPoolExecutor(1)
    for case in cases:
        try:
            verdict = pool.submit(run, case).result(TIMEOUT)
        except (BrokenProcessPool, TimeoutError) as e:
            verdict = Verdict("timeout" if isinstance(e, TimeoutError) else "crash")
            for process in list((pool._processes or {}).values()):  # shutdown would wait for it
                process.kill()
            pool = ProcessPoolExecutor(1)
        yield case.name, verdict
    pool.shutdown()


def main() -> None:
    """Print what is not a pass, then the counts."""
    parser = argparse.ArgumentParser(description="ONNX's backend tests, one verdict a test")
    parser.add_argument("part", nargs="?", default="", help="of the names of the tests to run")
    part: str = parser.parse_args().part
    counts = collections.Counter[str]()
    for name, verdict in verdicts(core_cases(lambda name: part in name)):
        counts[verdict.word] += 1
        if verdict.word != "pass":
            print(f"{verdict.word:12}{name}  {verdict.reason}")
    total = counts.total()
    print(", ".join(f"{counts[word]} {word}" for word in VERDICTS))
    print(f"{counts['pass']} of {total} pass: {100 * counts['pass'] / max(total, 1):.1f} %")
    sys.exit(counts["pass"] + counts["unsupported"] != total)


if __name__ == "__main__":
    main()
