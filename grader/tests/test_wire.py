"""What crosses, crosses whole; what cannot is refused by the sender, in one sentence."""

from __future__ import annotations

import contextlib
import io
import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minidlc as mc
from grader import wire
from grader.exchange import exchange
from grader.student import StudentRaised
from minidlc.graph.types import TupleType


def crossed(value: object) -> Any:
    stream = io.BytesIO(wire.pack(value))
    back = wire.read(stream)
    assert stream.read() == b""
    return back


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(b) is dict and same(list(a.items()), list(b.items()))
    return type(a) is type(b) and a == b


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | WORDS
VALUES = st.recursive(
    SCALARS | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(WORDS | st.integers(-9, 9), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_plain_values(value: object) -> None:
    assert same(value, crossed(value))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "i8", "u8", "i64", "u64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_arrays(name: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(wire.DTYPES[name].numpy)
    back = crossed(array)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_views_and_scalars_become_arrays() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(crossed(x.T[::2]), x.T[::2])
    assert crossed(np.float32(2.5)).shape == ()


def test_nan_keeps_its_bits() -> None:
    array = np.array([0x7FC00001, 0x80000000], np.uint32).view(np.float32)
    assert crossed(array).tobytes() == array.tobytes()
    assert crossed(np.array([1.5], ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16


def test_types() -> None:
    symbolic = mc.f32["N", 4]
    for value in (mc.f32, mc.f32[()], mc.i64[2, 3], symbolic):
        assert crossed(value) == value
    tuple_type = TupleType((mc.f32[4], mc.i64["N"]))
    assert crossed(tuple_type) == tuple_type


def test_a_type_with_a_computed_dim() -> None:
    graph = mc.parse('def f(x: f32["2*N + 1"]):\n    return x')
    type = graph.inputs[0].type
    assert crossed(type) == type


def test_graphs_get_fresh_values() -> None:
    big = np.arange(4096, dtype=np.float32)
    graph = mc.trace(lambda x: mc.relu(x + mc.Constant("w", big)), mc.f32[4096])
    back = crossed(graph)
    assert back == graph
    assert back.inputs[0] is not graph.inputs[0]
    assert str(back) == str(graph)


def test_functions_are_numbered() -> None:
    handed: list[Any] = []

    def number(function: Any) -> int:
        handed.append(function)
        return len(handed) - 1

    data = wire.pack({"f": len, "x": [max]}, number)
    back = wire.read(io.BytesIO(data), lambda n: f"stand-in {n}")
    assert back == {"f": "stand-in 0", "x": ["stand-in 1"]}
    assert handed == [len, max]
    with pytest.raises(wire.Refused, match="kind 'function'"):
        wire.read(io.BytesIO(data))


class Equal:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Lying(np.ndarray):
    """An array that shows others than it holds."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.full(2, 42.0, np.float32)

    def __eq__(self, other: object) -> Any:
        return np.array(True)

    @property
    def shape(self) -> Any:
        return (99,)


def test_an_array_that_lies_crosses_as_its_bytes() -> None:
    lying = np.zeros(2, np.float32).view(Lying)
    back = crossed(lying)
    assert type(back) is np.ndarray
    assert back.tolist() == [0.0, 0.0]


_DEEP: list[Any] = []
for _ in range(100):
    _DEEP = [_DEEP]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Equal(), "a Equal cannot cross"),
        (len, "cannot cross"),
        (1j, "a complex cannot cross"),
        ({1, 2}, "a set cannot cross"),
        (type("Text", (str,), {})("x"), "a Text cannot cross"),
        (np.array([object()]), "an array of object cannot cross"),
        (np.array(["x"]), "cannot cross"),
        (np.zeros(2, ">f4"), "an array of >f4 cannot cross"),
        (np.zeros(2, np.complex64), "an array of complex64 cannot cross"),
        (np.zeros(2, [("a", "f4")]), "cannot cross"),
        (np.broadcast_to(np.float32(0), (1 << 40,)), "too large"),
        (2**64, "more than 64 bits"),
        ("\ud800", "half a character"),
        (_DEEP, "nested deeper than 60"),
        ([0] * 300_000, "more data"),
        (b"x" * (wire.MAX_FRAME + 1), "more data"),
    ],
    ids=lambda v: v if isinstance(v, str) and v.isascii() else "",
)
def test_what_cannot_cross(value: object, words: str) -> None:
    with pytest.raises(wire.Refused, match=words):
        wire.encode(value)


def test_a_list_that_holds_itself() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(wire.Refused, match="nested deeper"):
        wire.encode(value)


def test_another_nonce_is_no_message() -> None:
    with pytest.raises(wire.Broken):
        wire.read(io.BytesIO(wire.pack(1)), nonce=b"n" * wire.NONCE)


@pytest.mark.parametrize("cut", [0, 5, 24, 30])
def test_a_cut_message_is_the_end(cut: int) -> None:
    data = wire.pack({"x": np.zeros(3)})
    with pytest.raises(EOFError):
        wire.read(io.BytesIO(data[:cut]))


@given(st.binary(max_size=60), st.binary(max_size=10))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_a_value_or_refused(head: bytes, blob: bytes) -> None:
    frame = wire._HEAD.pack(bytes(wire.NONCE), len(head), 1) + wire._SIZE.pack(len(blob))
    with contextlib.suppress(wire.Refused, mc.CompileError):
        wire.read(io.BytesIO(frame + head + blob))


JSON = st.recursive(
    SCALARS
    | st.sampled_from(["float", "bytes", "array", "dtype", "type", "types", "graph", "tuple"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["$", "value", "blob", "dtype", "shape", "text", "items", "weights"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(JSON)
@settings(max_examples=150, deadline=None)
def test_any_records_are_a_value_or_refused(data: object) -> None:
    with contextlib.suppress(wire.Refused, mc.CompileError):
        wire.decode(json.dumps(data), [b"", bytes(4)])


def test_an_illegal_graph_is_a_compile_error_at_its_place() -> None:
    text = "def f(x: f32[4]):\n    y: f32[5] = relu(x)\n    return y"
    record = {"$": "graph", "text": text, "weights": {}}
    with pytest.raises(mc.CompileError, match=r"f32\[5\] is declared"):
        wire.decode(json.dumps(record), [])


class Script:
    """The other side: answers what is listed, keeps what was sent."""

    def __init__(self, *replies: Any) -> None:
        self.replies, self.sent = list(replies), []

    def send(self, value: object, number: Any) -> None:
        self.sent.append(value)
        wire.encode(value, number)

    def receive(self) -> Any:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def asked(*replies: Any, answer: Any = None, functions: int = 1) -> tuple[Any, Script]:
    script, message = Script(*replies), {"args": [len] * functions}
    numbers = iter(range(functions))
    request = {"message": message, "number": lambda f: next(numbers)}
    return exchange(script.send, script.receive, request, answer or (lambda n, a: sum(a))), script


ASK = {"do": "ask", "number": 0, "args": [3, 4]}


def test_questions_are_answered() -> None:
    reply, script = asked(ASK, {"value": 5, "calls": {"1.2": 1, 3: "x"}})
    assert script.sent[1] == {"value": 7}
    assert reply == {"value": 5, "calls": {"1.2": 1}}


def test_an_error_of_the_answer_is_raised_in_the_worker() -> None:
    def answer(number: int, args: list[Any]) -> Any:
        raise TypeError("takes 1 argument")

    reply, script = asked(ASK, {"value": 5}, answer=answer)
    assert script.sent[1] == {"raised": "TypeError", "message": "takes 1 argument"}
    assert reply["value"] == 5


def test_a_verdict_is_kept_to_the_end() -> None:
    def answer(number: int, args: list[Any]) -> Any:
        raise AssertionError("more than 10 trials")

    with pytest.raises(AssertionError, match="10 trials"):
        asked(ASK, ASK, {"value": 5}, answer=answer)


@pytest.mark.parametrize(
    "reply",
    [
        {"do": "ask", "number": 1, "args": []},
        {"do": "ask"},
        {"do": "ask", "number": True, "args": []},
    ],
)
def test_what_was_not_given_cannot_be_asked(reply: Any) -> None:
    with pytest.raises(wire.Broken, match="not given"):
        asked(reply)


def test_a_refused_answer_is_the_students() -> None:
    with pytest.raises(StudentRaised, match="too large"):
        asked(wire.Refused("too large"))
    error = mc.CompileError("y is not defined", code="MDLC0307")
    with pytest.raises(StudentRaised, match="does not read back") as caught:
        asked(error)
    assert caught.value.code == "MDLC0307"
