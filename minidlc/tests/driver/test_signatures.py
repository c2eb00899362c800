"""Models of open sizes: compiled at the first call of each signature, once, and explained."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import minidlc as mc
from minidlc import driver
from minidlc.support.errors import CallError, OnnxImportError, OptionError
from minidlc.tests.driver.conftest import case
from minidlc.tests.frontend.helpers import F, model, node

pytestmark = pytest.mark.llvm

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RELU = model([node("Relu", "x", "y")], {"x": (FLOAT, ["N", 3])})
TWO = model([node("Add", "a b", "y")], {"a": (FLOAT, ["N", 3]), "b": (FLOAT, ["N", 1])})
RESHAPE = model([node("Reshape", "x s", "y")], {"x": (FLOAT, ["N", 6]), "s": (INT64, [2])})


def rows(n: int, columns: int = 3) -> np.ndarray:
    return np.linspace(-1, 1, n * columns, dtype=F).reshape(n, columns)


def compiled(built: Any, **options: Any) -> mc.Executable:
    return mc.compile(built, threads=1, **options)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many graphs were compiled since."""
    done: list[int] = []
    original = driver.compile_graph

    def counting(*args: Any) -> mc.Executable:
        exe = original(*args)
        done.append(1)
        return exe

    monkeypatch.setattr(driver, "compile_graph", counting)
    monkeypatch.setattr(driver.model_cache, "read", lambda key: None)
    return done


# --- shapes ---


def test_ten_batch_sizes_are_compiled_once_each_and_the_eleventh_is_explained(
    count: list[int],
) -> None:
    exe = compiled(RELU, max_specializations=10)
    for _ in range(2):
        for n in range(1, 11):
            np.testing.assert_array_equal(exe(rows(n))[0], np.maximum(rows(n), 0))
    assert len(count) == 10
    text = "input 'x': axis 0 was 1, 2, 3 … 10, now 11"
    with pytest.raises(CallError, match=text) as caught:
        exe(rows(11))
    assert caught.value.code == "MDLC0915"
    assert "max_specializations=" in (caught.value.hint or "")
    assert caught.value.notes[0] == "compiled for x: f32[1, 3]"
    assert len(count) == 10
    exe(rows(4))  # the others still run


def test_the_input_that_changes_most_is_named() -> None:
    exe = compiled(RESHAPE, max_specializations=3)
    x = rows(2, 6)
    for shape in ([4, 3], [3, 4], [2, 6]):
        exe(x, np.array(shape))
    with pytest.raises(CallError, match=r"input 's': its value was \[4, 3\], .*, now \[6, 2\]"):
        exe(x, np.array([6, 2]))


def test_a_static_model_is_compiled_at_once(count: list[int]) -> None:
    exe = compiled(RELU, shapes={"N": 2})
    assert len(count) == 1
    assert list(exe.specializations) == ["x: f32[2, 3]"]
    assert exe.specializations["x: f32[2, 3]"] is exe
    assert exe.specialize({"x": (2, 3)}) is exe
    with pytest.raises(OptionError, match="'N' is no input of test: all its sizes are known"):
        exe.specialize({"N": 3})
    with pytest.raises(CallError, match=r"expected f32\[2, 3\], got shape \(3, 3\)"):
        exe(rows(3))


def test_some_sizes_given_the_others_open() -> None:
    built = model([node("Relu", "x", "y")], {"x": (FLOAT, ["N", "M"])})
    exe = compiled(built, shapes={"M": 3})
    assert exe(rows(2))[0].shape == (2, 3)
    with pytest.raises(CallError, match="got shape"):
        exe(rows(2, 4))
    assert compiled(built, shapes={"x": (2, 3)})(rows(2))[0].shape == (2, 3)


def test_sizes_without_a_name_and_inputs_without_a_rank() -> None:
    exe = compiled(model([node("Relu", "x", "y")], {"x": (FLOAT, [None, 3])}))
    assert exe(rows(5))[0].shape == (5, 3)
    exe = compiled(model([node("Softmax", "x", "y")], {"x": (FLOAT, None)}, opset=11))
    x = np.zeros((2, 3, 4), F)  # FAULTS 74, 71: of what opset 11 flattens from axis 1 on
    np.testing.assert_allclose(exe(x)[0], np.full((2, 3, 4), 1 / 12), rtol=1e-6)
    assert exe(np.zeros((5, 2), F))[0].shape == (5, 2)


def test_shapes_computed_from_open_shapes() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Concat", "n minus", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    weights = {"zero": np.array([0]), "minus": np.array([-1])}
    exe = compiled(model(nodes, {"x": (FLOAT, ["N", 2, 3])}, weights=weights))
    for n in (1, 4):
        assert exe(np.zeros((n, 2, 3), F))[0].shape == (n, 6)


def test_a_graph_with_symbols(count: list[int]) -> None:
    x, w = mc.Input("x", mc.f32["N", 3]), mc.Input("w", mc.f32[3, "M"])
    graph = mc.Graph.of("f", [x, w], [x @ w])
    exe = compiled(graph)
    assert not count
    for n, m in ((1, 2), (5, 7)):
        a, b = rows(n), rows(3, m)
        np.testing.assert_allclose(exe(a, b)[0], a @ b, rtol=1e-5, atol=1e-6)
    assert list(exe.specializations)[-1] == "x: f32[5, 3], w: f32[3, 7]"
    assert str(compiled(graph, shapes={"N": 4, "M": 2}).graph.outputs[0].type) == "f32[4, 2]"
    assert exe.specialize({"x": (2, 3), "M": 1}).graph.outputs[0].type == mc.f32[2, 1]


def test_same_padding_of_an_open_width() -> None:
    """FAULTS 145: MaxPool k 2, s 1 of shape (N, 3, 48, W)."""
    pool = node("MaxPool", "x", "y", auto_pad="SAME_UPPER", kernel_shape=[2, 2])
    exe = compiled(model([pool], {"x": (FLOAT, ["N", 3, 48, "W"])}))
    for width in (5, 8):
        x = np.random.default_rng(0).standard_normal((1, 3, 48, width)).astype(F)
        wide = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=-np.inf)
        right = np.maximum(wide[..., 1:, :], wide[..., :-1, :])
        right = np.maximum(right[..., 1:], right[..., :-1])
        np.testing.assert_array_equal(exe(x)[0], right)


def test_max_of_a_slice_with_run_time_bounds() -> None:
    """FAULTS 149, and 147: bounds and target shapes that only a call gives."""
    nodes = [node("Slice", "x a b", "t"), node("Max", "t z", "y")]
    feeds = {"x": (FLOAT, ["N", 3]), "a": (INT64, [1]), "b": (INT64, [1])}
    exe = compiled(model(nodes, feeds, weights={"z": F(0)}))
    x = rows(6)
    for low, high in ((0, 3), (2, 6)):
        (y,) = exe(x, np.array([low]), np.array([high]))
        np.testing.assert_array_equal(y, np.maximum(x[low:high], 0))


# --- values ---


@pytest.mark.parametrize(
    ("nodes", "inputs", "right"),
    [
        ([node("Reshape", "x s", "y")], {"s": np.array([3, -1])}, lambda x: x.reshape(3, -1)),
        ([node("Tile", "x s", "y")], {"s": np.array([2, 1])}, lambda x: np.tile(x, (2, 1))),
        ([node("Expand", "x s", "y")], {"s": np.array([2, 1, 1])}, lambda x: np.stack([x, x])),
        ([node("ReduceSum", "x s", "y", keepdims=0)], {"s": np.array([1])}, lambda x: x.sum(1)),
        (
            [node("Pad", "x s", "y")],
            {"s": np.array([1, 0, 0, 2])},
            lambda x: np.pad(x, ((1, 0), (0, 2))),
        ),
        ([node("Trilu", "x s", "y")], {"s": np.array(1)}, lambda x: np.triu(x, 1)),
        ([node("Unsqueeze", "x s", "y")], {"s": np.array([0])}, lambda x: x[None]),
        ([node("Split", "x s", "y z", axis=0)], {"s": np.array([1, 3])}, lambda x: x[:1]),
        ([node("Dropout", "x r t", "y")], {"r": F(0.5), "t": np.array(False)}, lambda x: x),
    ],
    ids=lambda v: v[0].op_type if isinstance(v, list) else None,
)
def test_inputs_whose_value_decides(nodes: Any, inputs: dict[str, Any], right: Any) -> None:
    x = rows(4)
    exe = compiled(model(nodes, {"x": x, **inputs}))
    np.testing.assert_allclose(exe(x, *inputs.values())[0], right(x), rtol=1e-6)


def test_a_range_of_float_bounds() -> None:
    exe = compiled(model([node("Range", "a b c", "y")], {n: (FLOAT, []) for n in "abc"}))
    for a, b, c in ((0.0, 2.0, 0.5), (3.0, 0.0, -1.0)):
        np.testing.assert_array_equal(exe(F(a), F(b), F(c))[0], np.arange(a, b, c, dtype=F))


def test_values_that_decide_nothing_do_not_count(count: list[int]) -> None:
    feeds = {"x": (FLOAT, ["N"]), "i": (INT64, ["N"]), "s": (INT64, [2])}
    nodes = [node("Cast", "i", "f", to=FLOAT), node("Add", "x f", "t"), node("Reshape", "t s", "y")]
    exe = compiled(model(nodes, feeds))
    for value in range(4):
        (y,) = exe(F([1, 2]), np.array([value, value]), np.array([2, 1]))
        np.testing.assert_array_equal(y, [[1 + value], [2 + value]])
    assert len(count) == 1
    assert list(exe.specializations) == ["x: f32[2], i: i64[2], s: i64[2] = [2, 1]"]


def test_a_specialisation_is_only_for_its_values() -> None:
    exe = compiled(RESHAPE).specialize({"N": 2, "s": np.array([3, 4])})
    assert exe(rows(2, 6), np.array([3, 4]))[0].shape == (3, 4)
    for call in (exe, exe.run_dict):
        with pytest.raises(CallError, match=r"'s': compiled for \[3, 4\], got \[4, 3\]") as caught:
            call(rows(2, 6), np.array([4, 3]))
        assert caught.value.code == "MDLC0916"


def test_the_caller_may_change_an_array_of_values_afterwards() -> None:
    exe, shape = compiled(RESHAPE), np.array([2, 3])
    assert exe(rows(1, 6), shape)[0].shape == (2, 3)
    shape[:] = [3, 2]
    assert exe(rows(1, 6), shape)[0].shape == (3, 2)


def test_a_value_that_does_not_fit_is_refused_like_a_constant() -> None:
    exe = compiled(RESHAPE)
    with pytest.raises(OnnxImportError, match="12 elements do not fill") as caught:
        exe(rows(2, 6), np.array([5, 5]))
    assert "compiling for x: f32[2, 6], s: i64[2] = [5, 5]" in caught.value.notes
    assert exe(rows(2, 6), np.array([4, 3]))[0].shape == (4, 3)


def test_specialize_takes_values_as_arrays(count: list[int]) -> None:
    exe = compiled(RESHAPE)
    exe.specialize({"N": 2, "s": np.array([3, 4])})
    assert exe(rows(2, 6), np.array([3, 4]))[0].shape == (3, 4)
    assert len(count) == 1


# --- calls ---


def test_every_way_to_call() -> None:
    exe = compiled(TWO)
    a, b = rows(2), rows(2, 1)
    out = np.zeros((2, 3), F)
    assert exe(a, b, out=[out])[0] is out
    for result in (exe(a, b), exe(a=a, b=b), exe({"a": a, "b": b}), exe(a, b=b), [out]):
        np.testing.assert_array_equal(result[0], a + b)
    np.testing.assert_array_equal(exe.run_dict(a, b)["y"], a + b)


def test_inputs_by_their_onnx_names() -> None:
    for sizes in (["N", 3], [2, 3]):
        built = model([node("Relu", "in/x:0", "y")], {"in/x:0": (FLOAT, sizes)})
        np.testing.assert_array_equal(
            compiled(built)({"in/x:0": rows(2)})[0], np.maximum(rows(2), 0)
        )


def test_onnx_names_that_look_like_another_input() -> None:
    kinds = {"x.1": (FLOAT, ["N", 3]), "x_1": (FLOAT, ["N", 1])}
    for shapes in (None, {"N": 2}):
        exe = compiled(model([node("Sub", "x.1 x_1", "y")], kinds), shapes=shapes)
        a, b = rows(2), rows(2, 1)
        np.testing.assert_array_equal(exe({"x_1": b, "x.1": a})[0], a - b)
        np.testing.assert_array_equal(exe({"x_1": a, "x_1_1": b})[0], a - b)  # names in the graph


def test_a_model_whose_batch_is_open() -> None:
    c = case("mlp_b64")
    built = onnx.ModelProto.FromString(c.model.SerializeToString())
    name = built.graph.input[0].name
    for info in (*built.graph.input, *built.graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = "N"
    exe = compiled(built)
    for n in (64, 1, 3):
        (y,) = exe({name: c.feeds[name][:n]})
        np.testing.assert_allclose(y, c.expected[0][:n], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        (lambda f: f(rows(2).astype(np.float64), rows(2, 1)), "MDLC0903", "got element type f64"),
        (lambda f: f(rows(2, 4), rows(2, 1)), "MDLC0904", r"expected f32\[\"N\", 3\], got shape"),
        (lambda f: f(rows(2)[0], rows(2, 1)), "MDLC0904", r"got shape \(3,\)"),
        (lambda f: f(rows(2), rows(3, 1)), "MDLC0910", "'N' is 3 here and 2 elsewhere"),
        (lambda f: f(rows(2)), "MDLC0902", "missing input 'b'"),
        (lambda f: f(rows(2), rows(2, 1), out=[]), "MDLC0905", "expected writable"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, code: str, message: str) -> None:
    exe = compiled(TWO)
    with pytest.raises(CallError, match=message) as caught:
        call(exe)
    assert caught.value.code == code
    if code != "MDLC0905":
        assert not exe.specializations


def test_two_threads_with_one_new_signature_compile_it_once(count: list[int]) -> None:
    exe, start, results = compiled(RELU), threading.Barrier(8), []

    def call() -> None:
        start.wait()
        results.append(exe(rows(7))[0])

    threads = [threading.Thread(target=call) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(count) == 1
    assert len(results) == 8
    for result in results:
        np.testing.assert_array_equal(result, np.maximum(rows(7), 0))


# --- compile ---


def test_unknown_ops_are_refused_by_compile_not_by_the_first_call() -> None:
    built = model([node("Twist", "x", "y")], {"x": (FLOAT, ["N"])})
    with pytest.raises(OnnxImportError, match="Twist: no such op in this kit"):
        compiled(built)


def test_a_declared_output_that_no_size_makes_right() -> None:
    built = onnx.ModelProto.FromString(RELU.SerializeToString())
    built.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", FLOAT, ["N", 4]))
    with pytest.raises(OnnxImportError, match="its nodes compute f32"):
        compiled(built)


def test_overrides_of_compile_time_count_at_the_first_call() -> None:
    def square(node: Any, x: mc.graph.Value) -> Any:
        return x * x

    with mc.use(**{"onnx.Relu": square}):
        exe = compiled(RELU)
    np.testing.assert_allclose(exe(rows(2))[0], rows(2) ** 2)
    assert exe.report().overrides == {"onnx.Relu": 1}
    np.testing.assert_array_equal(compiled(RELU)(rows(2))[0], np.maximum(rows(2), 0))


def test_the_caller_may_change_the_model_afterwards() -> None:
    built = onnx.ModelProto.FromString(RELU.SerializeToString())
    exe = compiled(built)
    built.graph.node[0].op_type = "Neg"
    np.testing.assert_array_equal(exe(rows(2))[0], np.maximum(rows(2), 0))


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    onnx.save(RELU, path)
    exe = compiled(path)
    path.unlink()
    assert exe(rows(3))[0].shape == (3, 3)
