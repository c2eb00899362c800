"""What must hold for every example of every op, shipped or registered by a test.

    check_all(op_class("relu"))                     # AssertionError naming the example that fails

Each check is a plain function of an Example; `CHECKS` lists those that need no LLVM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from minidlc.expr.types import TensorType, dtype, i64
from minidlc.frontend.onnx import load_onnx, to_onnx
from minidlc.graph import (
    Example,
    Graph,
    Input,
    Node,
    Op,
    OpKind,
    TupleType,
    build,
    difference,
    evaluate,
    getitem,
    infer,
    interpret,
    parse,
    verify,
)
from minidlc.loop.interpret import interpret as run_loops
from minidlc.lower.kernels import lower_node
from minidlc.support.errors import OnnxExportError
from minidlc.target import Target, host
from minidlc.te import Tensor, placeholder

Results = tuple[Any, ...]

# where onnx.reference 1.23 and onnxruntime are no oracle; test_faults.py says what is right instead
NOT_IN_REFERENCE = {
    "average_pool": "an infinity in the window: it multiplies by 0 outside",
    "cast": "out of range: undefined in ONNX, saturates here",
    "conv_transpose": "groups do not fit together",
    "global_lp_pool": "has none",
    "grid_sample": "clamps the position of a cubic, not its taps; fails on a size of 1",
    "dropout": "draws other numbers: test_random_numbers.py compares distributions",
    "gather_elements": "fewer indices than x has elements are refused",
    "global_max_pool": "drops axes of 3-D inputs",
    "local_response_norm": "takes the batch for the channels",
    "log_softmax": "log of a softmax that is 0: -inf",
    "loop": "a condition that is left out ends it: FAULTS row 88",
    "lp_normalization": "sums x, not |x|, for p = 1; takes axis 0 for the last",
    "lp_pool": "windows over the edge count as if full",
    "matmul_integer": "a zero point for each row is taken from the columns",
    "max_pool": "pads on one side give another shape",
    "max_pool_with_indices": "pads on one side give another shape",
    "one_hot": "fails on bool values",
    "pad": "negative pads are refused",
    "pow": "integers to negative integers are refused by NumPy",
    "quantize_linear": "an infinity becomes an integer before it saturates",
    "random_normal": "draws other numbers: test_random_numbers.py compares distributions",
    "random_uniform": "draws other numbers: test_random_numbers.py compares distributions",
    "reduce_log_sum_exp": "fails on scalars",
    "reduce_sum_square": "of i32 it is i64",
    "resize": "has no tf_half_pixel_for_nn; see test_resize.py",
    "scan": "other output axes than 0 are not implemented",
    "softsign": "fails on scalars",
}
NOT_IN_RUNTIME = {
    "arg_max": "NaN counts by its position",
    "arg_min": "NaN counts by its position",
    "cast": "out of range: undefined in ONNX, saturates here",
    "dropout": "draws other numbers: test_random_numbers.py compares distributions",
    "hardmax": "NaN counts by its position",
    "matmul_integer": "sums of two products saturate in 16 bits on some machines",
    "max": "NaN counts by its position",
    "max_pool": "NaN counts by its position",
    "max_pool_with_indices": "NaN counts by its position",
    "mean": "of no elements: 0, not NaN",
    "mean_variance_normalization": "of equal elements NaN: a difference of two squares",
    "min": "NaN counts by its position",
    "pow": "integer overflow of 0 ** -1",
    "random_normal": "draws other numbers: test_random_numbers.py compares distributions",
    "random_uniform": "draws other numbers: test_random_numbers.py compares distributions",
    "resize": "positions in f32, sizes rounded first; see test_resize.py",
}
ANY_MACHINE = Target("x86_64", "generic", "")  # plain loops are the same for all
RUNTIME_REFUSES = (
    "Depth is negative",
    "No corresponding Numpy type",
    "bool data type is not supported",
    "NOT_IMPLEMENTED",
    "INVALID_GRAPH",
    "by zero",
    "exceeds maximum allowed",
    "must be greater than 0",
    "attn_mask == nullptr",
    "size_ % 2 == 1",
    "NumDimensions() == 4",
    "Non per-tensor quantization",
)
MAX_INTERPRETED = 600  # multiply-adds that one example may cost the loop interpreter


def describe(example: Example) -> str:
    """The op and the types of its inputs."""
    types = ", ".join("None" if a is None else str(type_of(a)) for a in example.inputs)
    return f"{example.op} of ({types})"


def type_of(array: Any) -> TensorType:
    """Type of an array."""
    return TensorType(dtype(array.dtype), array.shape)


def results(value: Any) -> Results:
    """One result or several, as a tuple."""
    return value if isinstance(value, tuple) else (value,)


def reference(example: Example) -> Results:
    """What the op's meaning gives."""
    return results(evaluate(example.op, example.inputs))


def node_of(example: Example) -> Node:
    """One node of the op on graph inputs x0, x1, …"""
    values = [
        None if a is None else Input(f"x{n}", type_of(a)) for n, a in enumerate(example.inputs)
    ]
    return build(example.op, values)


def graph_of(example: Example) -> Graph:
    """The graph of that one node; several results are taken apart."""
    node = node_of(example)
    inputs = [v for v in node.inputs if isinstance(v, Input)]
    if isinstance(node.type, TupleType):
        return Graph.of("one", inputs, [getitem(node, n) for n in range(len(node.type.items))])
    return Graph.of("one", inputs, [node])


def given(example: Example) -> list[Any]:
    """The arrays that are not omitted."""
    return [a for a in example.inputs if a is not None]


def assert_close(got: Sequence[Any], wanted: Sequence[Any], rtol: float, atol: float) -> None:
    """Same types, shapes and values; NaN equals NaN, infinities by sign."""
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert type_of(a) == type_of(b), f"{type_of(a)} is not {type_of(b)}"
        if a.dtype.kind in "iub":
            np.testing.assert_array_equal(a, b)
        else:
            wide = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_allclose(*wide, rtol=rtol, atol=atol, equal_nan=True)


def check_type_rule(example: Example) -> None:
    """The type rule says the type of what the reference returns."""
    types = tuple(None if a is None else type_of(a) for a in example.inputs)
    said = infer(example.op, types)
    items = said.items if isinstance(said, TupleType) else (said,)
    assert items == tuple(type_of(r) for r in reference(example))


def check_text(example: Example) -> None:
    """A graph of one node prints, and its text reads back as the same graph."""
    graph = graph_of(example)
    verify(graph)
    text = str(graph)
    back = parse(text)
    assert difference(graph, back) is None
    assert str(back) == text


def check_interpret(example: Example) -> None:
    """The graph interpreter gives the reference."""
    assert_close(interpret(graph_of(example), given(example)), reference(example), 0, 0)


def check_loops(example: Example) -> None:
    """The plain loops, run by Python, give the reference."""
    if not has_kernel(example.op) or cost(example) > MAX_INTERPRETED:
        return
    run(example, ANY_MACHINE, fast=False, runner=run_loops)


def has_kernel(op: Op) -> bool:
    """True if the op has loops: neither a composite nor a mere view."""
    written = any(hasattr(type(op), way) for way in ("compute", "loops"))
    return op.kind is OpKind.COMPILED and written


def cost(example: Example) -> int:
    """Roughly the number of steps of the loops."""
    size = sum(r.size for r in reference(example))
    return size * max((a.size for a in given(example)), default=1) if heavy(example) else size


def heavy(example: Example) -> bool:
    """True if each result reads many elements."""
    return example.op.schedule != "injective" and example.op.schedule != "softmax"


def check_llvm(example: Example) -> None:
    """The machine code of the default schedule gives the reference."""
    if not has_kernel(example.op):
        return
    from minidlc.codegen.compile import compile_kernel, run_kernel

    def runner(loops: Any, arrays: dict[str, Any]) -> None:
        run_kernel(compile_kernel(loops, host()), [arrays[p.name] for p in loops.params])

    run(example, host(), fast=True, runner=runner)


def run(
    example: Example, target: Target, *, fast: bool, runner: Callable[[Any, dict[str, Any]], None]
) -> None:
    """Lower the node, run its loops on the arrays, compare."""
    node = node_of(example)
    kernel = lower_node(node, "k", target, fast=fast)
    arrays_of = dict(zip((v for v in node.inputs if v is not None), given(example), strict=True))
    wanted = reference(example)
    buffers: dict[str, Any] = {}
    for param, array in zip(kernel.loops.params, kernel.arrays(arrays_of).values(), strict=False):
        buffers[param.name] = np.ascontiguousarray(array).reshape(param.type.dims)
    outputs = kernel.loops.params[len(kernel.inputs) :]
    for param in outputs:
        buffers[param.name] = np.full(param.type.dims, 77, param.type.dtype.numpy)
    runner(kernel.loops, buffers)
    got = [buffers[p.name] for p in outputs]
    assert_close(got, wanted, example.rtol, example.atol)


def check_compute_type(example: Example) -> None:
    """The tensor expression has the type that the type rule says."""
    if example.op.kind is not OpKind.COMPILED or isinstance(node_of(example).type, TupleType):
        return
    if not hasattr(type(example.op), "compute"):  # it has loops
        return
    tensors: list[Tensor | None] = [
        None if a is None else placeholder(type_of(a), f"A{n}")
        for n, a in enumerate(example.inputs)
    ]
    assert type(example.op).compute(example.op, *tensors).type == node_of(example).type


def check_decomposition(example: Example) -> None:
    """The simpler ops that an op stands for, or is differentiated by, give its reference."""
    if not hasattr(type(example.op), "decompose"):
        return
    node = node_of(example)
    simpler = type(example.op).decompose(example.op, *node.inputs)
    outputs = results(simpler)
    items = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    assert tuple(o.type for o in outputs) == items
    inputs = [v for v in node.inputs if isinstance(v, Input)]
    graph = Graph.of("simpler", inputs, outputs)
    verify(graph)
    assert_close(interpret(graph, given(example)), reference(example), example.rtol, example.atol)


def check_onnx(example: Example) -> None:
    """Exported and imported again it is the same graph; where the schema lacks it, that is said."""
    graph = graph_of(example)
    try:
        model = to_onnx(graph)
    except OnnxExportError as e:
        if not _really_missing(graph, e):
            raise
        return
    back = load_onnx(model.SerializeToString())
    verify(back)
    if not _written_otherwise(example.op):
        assert difference(graph, back) is None
    assert_close(interpret(back, given(example)), reference(example), 1e-6, 1e-6)


def _written_otherwise(op: Op) -> bool:
    """A group or region comes back as the ops it held, rows of a loop as what `gather` reads.

    What speaks to differentiation alone comes back as `identity`.
    """
    names = ("fused", "region", "stop_gradient", "custom_result")
    return op.name in names or (op.name == "loop" and op.attributes()["scanned"] > 0)


def _really_missing(graph: Graph, error: OnnxExportError) -> bool:
    """True if the exporter is right that ONNX has no such op, or not for these element types."""
    if error.code == "MDLC0130":
        return graph.nodes[0].op.onnx is None
    if "a draw by a key" in str(error):
        return graph.inputs[-1].type == i64[()]
    if "float32 constants" in str(error):
        return any(i.type.dtype.name != "f32" for i in graph.inputs)
    words = str(error).replace(" gives no ", " takes no ").split(" takes no ")[0].split()
    schema = onnx.defs.get_schema(words[words.index("at") - 1])  # what the newest opset allows
    allowed = {t for c in schema.type_constraints for t in c.allowed_type_strs}
    names = {"float32": "float", "float64": "double"}
    types = [v.type for v in (*graph.inputs, *graph.outputs)]
    kinds = {str(t.dtype.numpy) for t in types}
    return any(f"tensor({names.get(k, k)})" not in allowed for k in kinds)


def _model(example: Example) -> onnx.ModelProto | None:
    """The example as a model for another engine, if ONNX has it and elements are not narrow."""
    if any(a.dtype.name in ("float16", "bfloat16") for a in given(example)):
        return None
    try:
        return to_onnx(graph_of(example))
    except OnnxExportError:
        return None


def _feeds(model: onnx.ModelProto, example: Example) -> dict[str, Any]:
    return {i.name: a for i, a in zip(model.graph.input, given(example), strict=True)}


def check_onnx_reference(example: Example) -> None:
    """onnx.reference agrees, where it is an oracle (NOT_IN_REFERENCE)."""
    model = _model(example)
    empty = any(a.size == 0 for a in given(example))
    if model is None or empty or example.op.name in NOT_IN_REFERENCE:
        return
    with np.errstate(all="ignore"):
        got = ReferenceEvaluator(model).run(None, _feeds(model, example))
    arrays = [np.asarray(r) for r in got]
    assert_close(arrays, reference(example), max(example.rtol, 1e-5), max(example.atol, 1e-5))


def check_onnxruntime(example: Example) -> None:
    """ONNX Runtime agrees, where it has a kernel and is an oracle (NOT_IN_RUNTIME)."""
    model = _model(example)
    dies = example.op.name == "scan" and any(a.size == 0 for a in given(example))
    if model is None or dies or example.op.name in NOT_IN_RUNTIME:
        return  # a scan over no rows: "dim0_offset < dim0_size", or a division by 0
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        got = session.run(None, _feeds(model, example))
    except Exception as e:
        if not any(reason in str(e) for reason in RUNTIME_REFUSES):
            raise
        return
    assert_close(got, reference(example), max(example.rtol, 1e-5), max(example.atol, 1e-5))


CHECKS = (
    check_type_rule,
    check_text,
    check_interpret,
    check_compute_type,
    check_loops,
    check_decomposition,
    check_onnx,
    check_onnx_reference,
)


def check_op(cls: type[Op], check: Callable[[Example], None]) -> None:
    """Run one check on every example of an op; the first failure names its example."""
    examples = list(cls.examples())
    assert examples, f"{cls.name} has no examples"
    for example in examples:
        try:
            check(example)
        except Exception as e:
            e.add_note(f"example: {describe(example)}")
            raise


def check_all(cls: type[Op]) -> None:
    """Every check that needs no LLVM."""
    for check in CHECKS:
        check_op(cls, check)
