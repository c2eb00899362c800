"""Models and calls that must be refused: each with its code, its place and a hint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import minidlc as mc
from minidlc.support.errors import CallError, CompileError, MemoryLimitError

PACKAGED = Path(__file__).parents[2] / "models"
MNIST = PACKAGED / "mnist_cntk.onnx"


def model(nodes, initializers=(), inputs=None, opset=17):
    """A model of f32[2, 3] inputs `x` (or as given) and output `y`."""
    inputs = inputs or {"x": (2, 3)}
    graph = helper.make_graph(
        nodes,
        "bad",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in initializers],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op_type, inputs, output="y", **attributes):
    return helper.make_node(op_type, inputs, [output], name=f"{output}_node", **attributes)


def batch_norm(epsilon=1e-5, scale=(1, 1, 1)):
    ones = np.ones(3)
    parameters = [("s", scale), ("b", ones), ("m", ones), ("v", ones)]
    return model(
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], epsilon=epsilon)], parameters
    )


BAD_MODELS = {
    "cycle": (
        model([node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b"), node("Relu", ["a"])]),
        "cycle",
    ),
    "missing initializer": (model([node("Add", ["x", "weights"])]), "weights"),
    "wrong rank": (model([node("MatMul", ["x", "w"])], [("w", np.ones((4, 4)))]), "3 != 4"),
    "conv of a matrix": (model([node("Conv", ["x", "w"])], [("w", np.ones((1, 1)))]), "conv"),
    "unknown op": (model([node("Frobnicate", ["x"])]), "Frobnicate"),
    "nan epsilon": (batch_norm(epsilon=float("nan")), "epsilon"),
    "infinite epsilon": (batch_norm(epsilon=float("inf")), "epsilon"),
    "nan scale": (
        model([node("Gemm", ["x", "w"], alpha=float("nan"))], [("w", np.ones((3, 4)))]),
        "alpha",
    ),
    "infinite scale": (
        model([node("Gemm", ["x", "w"], beta=float("-inf"))], [("w", np.ones((3, 4)))]),
        "beta",
    ),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_model_is_refused(name):
    bad, word = BAD_MODELS[name]
    with pytest.raises(CompileError) as e:
        mc.load_onnx(bad)
    check(e.value, word)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"# a text, not a model\n" * 20, "a text file, not an ONNX model"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "a PNG image, not an ONNX model"),
        (bytes(range(256)) * 4, "protobuf"),
    ],
)
def test_file_is_refused(tmp_path, content, word):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(CompileError) as e:
        mc.load_onnx(path)
    check(e.value, word)
    assert "model.onnx" in str(e.value)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_truncated_file_is_refused(tmp_path, keep):
    data = MNIST.read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(CompileError) as e:
        mc.load_onnx(path)
    check(e.value, "")
    assert "cut.onnx" in str(e.value)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(CompileError) as e:
        mc.load_onnx(tmp_path / "nothing.onnx")
    check(e.value, "nothing.onnx")


@pytest.mark.llvm
def test_a_call_of_the_wrong_type_or_shape():
    exe = mc.compile(MNIST, threads=1)
    x = np.zeros((1, 1, 28, 28), np.float32)
    for wrong, word in ((x.astype(np.int64), "i64"), (x[..., :27], "(1, 1, 28, 27)"), (x[0], "28")):
        with pytest.raises(CallError) as e:
            exe(wrong)
        check(e.value, word)
        assert "Input3" in str(e.value)


@pytest.mark.llvm
def test_an_arena_above_max_bytes():
    with pytest.raises(MemoryLimitError) as e:
        mc.compile(MNIST, max_bytes=10_000)
    check(e.value, "10,000")


def check(error: CompileError, word: str) -> None:
    """A code, a place, a hint, and the word in the message."""
    text = str(error)
    assert word in text
    assert error.code.startswith("MDLC")
    assert error.loc is not None, text
    assert error.hint, text
    assert "\n  --> " in text


def test_the_models_here_are_otherwise_right():
    """The builder itself makes models that load, so each refusal has the one reason it names."""
    for good in (
        model([node("Add", ["x", "x"])]),
        model([node("MatMul", ["x", "w"])], [("w", np.ones((3, 4)))]),
        batch_norm(),
    ):
        mc.load_onnx(good)
