"""What a hostile worker can send: the parent refuses it, quickly, and does not grow."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import pytest

from grader.model import Status
from grader.sandbox import ForkServer, Isolation, Limits
from grader.student import Died, StudentRaised
from grader.tests.sandboxes import run, server_at, started

pytestmark = pytest.mark.long

FRAME = r"""
import json, os, struct, sys, time
frame = sys._getframe()
while "nonce" not in frame.f_locals: frame = frame.f_back
NONCE = frame.f_locals["nonce"]
def send(text, blobs=(), length=None, count=None):
    text = text.encode() if isinstance(text, str) else text
    sizes = len(text) if length is None else length, len(blobs) if count is None else count
    data = NONCE + struct.pack("!II", *sizes)
    data += b"".join(struct.pack("!Q", len(b)) for b in blobs) + text + b"".join(blobs)
    while data: data = data[os.write(3, data):]
    time.sleep(0.1)
def record(*pairs, blobs=()):
    send('{"$": "dict", "items": [' + ", ".join(f'["{k}", {v}]' for k, v in pairs) + "]}", blobs)
def value(text, *blobs):
    record(("value", text), blobs=blobs)
def array(shape, data=b"", kind="f32"):
    value(json.dumps({"$": "array", "dtype": kind, "shape": shape, "blob": 0}), data)
def graph(text):
    value(json.dumps({"$": "graph", "text": text, "weights": {}}))
"""
FRAMES = {  # what is sent, and words of what the parent says
    "a list": ("send('[1, 2]')", "no record"),
    "a number": ("send('7')", "no record"),
    "no value": ("record()", "without a value"),
    "no JSON": ("send('{')", "JSONDecodeError"),
    "no UTF-8": (r"send(b'\xff\xfe')", "no UTF-8"),
    "unknown kind": ("""value('{"$": "code", "text": "1"}')""", "kind 'code'"),
    "no kind": ("""value('{"$": null}')""", "kind None"),
    "a function": ("""value('{"$": "function", "number": 0}')""", "kind 'function'"),
    "half a key": ("""value('{"\\\\ud800": 1}')""", "lone surrogate"),
    "unhashable key": ("""value('{"$": "dict", "items": [[[], 1]]}')""", "unhashable"),
    "long head": ("send('', length=1 << 31)", "too large"),
    "many blobs": ("send('', count=1 << 31)", "too large"),
    "large blobs": ("value('1', bytes(40 << 20), bytes(40 << 20))", "too large"),
    "no blobs": ("send(bytes(8) + b'\\xff' * 8, count=2, length=2)", "too large"),
    "deep": ("send('[' * 100_000)", "RecursionError"),
    "deep value": ("value('[' * 300 + ']' * 300)", "nested deeper"),
    "wide": ("value('[' + '[],' * 900_000 + '[]]')", "too large"),
    "big integer": ("value('9' * 4000)", "more than 64 bits"),
    "longer integer": ("value('9' * 9000)", "4300 digits"),
    "infinite": ("value('Infinity')", "not JSON"),
    "half a character": (r"""value('"\\ud800"')""", "half a character"),
    "ask what was not given": (
        "record(('do', '\"ask\"'), ('number', 5), ('args', []))",
        "not given",
    ),
    "ask with text": ("record(('do', '\"ask\"'), ('number', '\"0\"'), ('args', []))", "not given"),
    "object array": ("array([1], bytes(8), 'object')", "KeyError: 'object'"),
    "wrong bytes": ("array([3], bytes(8))", "f32[3] with 8 bytes"),
    "negative": ("array([-1])", "shape [-1]"),
    "overflowing": ("array([1 << 40, 1 << 40])", "of shape"),
    "overflowing product": ("array([1 << 26] * 32)", "with 0 bytes"),
    "float dim": ("array([1.0], bytes(4))", "shape [1.0]"),
    "huge rank": ("array([1] * 65, bytes(4))", "of shape"),
    "boolean bytes": ("array([4], bytes([0, 1, 2, 255]), 'bool')", "other than 0 and 1"),
    "text shape": ("array('ab', bytes(4))", "shape 'ab'"),
    "shape of lists": ("array([[1]], bytes(4))", "shape [[1]]"),
    "one blob many times": (
        """value("[" + ",".join(['{"$": "array", "dtype": "i8", "shape": [9], "blob": 0}'] * 3)"""
        """ + "]", bytes(9))""",
        "the same bytes twice",
    ),
    "very many types": (
        """value("[" + ",".join('{"$": "type", "text": "f32[%d]"}' % n for n in range(6000))"""
        """ + "]")""",
        "more IR texts",
    ),
    "absent blob": ("""value('{"$": "bytes", "blob": -1}', b'')""", "does not have"),
    "wrong weights": ("""value('{"$": "graph", "text": "", "weights": [1]}')""", "AttributeError"),
    "type text": ("""value('{"$": "type", "text": "f32[open()]"}')""", "not a dim"),
}
_LONG_SUM = "+".join(f"N{i}" for i in range(8000))
TEXTS = {
    "nested": ("def f(x: f32" + "[" * 5000 + "]" * 5000 + "):\n    return x", "nested deeper"),
    "unary": ("def f(x: f32[" + "-" * 50_000 + "1]):\n    return x", "cannot be read"),
    "sum": ('def f(x: f32["' + "N+" * 20_000 + '1"]):\n    return x', "200 characters"),
    "product": ('def f(x: f32["' + "N*" * 20_000 + '1"]):\n    return x', "200 characters"),
    "sum of names": (f'def f(x: f32["{_LONG_SUM}"]): pass', "200 characters"),
    "code in a dim": ("""def f(x: f32["__import__('os').abort()"]):\n    return x""", "not a dim"),
    "code as a value": (
        "def f(x: f32[4]):\n    y = __import__('os')\n    return y",
        "unknown op",
    ),
    "code as an element": (
        "def f():\n    y: f32[1] = const([exit()])\n    return y",
        "not an attribute",
    ),
    "long number": ("def f(x: f32[" + "9" * 400 + "]):\n    return x", "64 bits"),
    "spelt number": ("def f(x: f32[0x" + "f" * 400 + "]):\n    return x", "64 bits"),
    "huge constant": ("def f():\n    y: f32[1000000000000] = const([])\n    return y", "list of"),
    "long": ("#" * (1 << 19), "longer than 64 KiB"),
    "zeros": ("\0" * 100, "null bytes"),
    "elif": ("if 1:\n pass\n" + "elif 1:\n pass\n" * 4_000, ""),
    "decorators": ("@a\n" * 9_000 + "def f(): return x", "parameters"),
    "attributes": ("a" + ".b" * 30_000, ""),
    "calls": ("f" + "()" * 30_000, ""),
    "many lines": ("def f(x: f32[4]):\n" + "  y\n" * 12_000, "lines and dims"),
    "wide and long": (
        "def f(x: f32["
        + "1, " * 900
        + "1]):\n"
        + "".join(f"    a{i} = relu(x)\n" for i in range(900)),
        "lines and dims",
    ),
    "large and legal": (
        "def f(x: f32[4]):\n" + "".join(f"    a{i} = concat(x, x, axis=0)\n" for i in range(1500)),
        "return",
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with server_at(Isolation.RLIMITS) as server:
        yield server


def refused(server: ForkServer, source: str, *args: object) -> StudentRaised:
    """What the parent says of it, within its bounds of time and memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with pytest.raises(StudentRaised) as caught:
        run(server, source, *args)
    assert time.monotonic() - began < 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 << 10
    return caught.value


@pytest.mark.parametrize("what", FRAMES)
def test_frames(what: str, server: ForkServer) -> None:
    code, words = FRAMES[what]
    error = refused(server, f"{FRAME}\ndef f():\n    {code}")
    assert error.kind == "UnreadableAnswer"
    assert words in error.message


@pytest.mark.parametrize("what", TEXTS)
def test_graph_texts(what: str, server: ForkServer) -> None:
    text, words = TEXTS[what]
    error = refused(server, f"{FRAME}\ndef f(text):\n    graph(text)", text)
    assert error.kind == "UnreadableAnswer"
    assert words in error.message
    assert len(error.message) <= 2000


def test_an_exception_that_is_none(server: ForkServer) -> None:
    pairs = "('raised', 5), ('message', [1]), ('frames', 1), ('notes', '\"x\"'), ('calls', 7)"
    error = refused(server, f"{FRAME}\ndef f():\n    record({pairs})")
    assert (error.kind, error.message) == ("Exception", "")


def test_an_exception_that_breaks_when_shown(server: ForkServer) -> None:
    source = """
class E(BaseException):
    def __str__(self): raise SystemExit
def f():
    raise E
"""
    assert refused(server, source).kind in ("E", "SystemExit")


def test_half_a_frame(server: ForkServer) -> None:
    with pytest.raises(Died) as caught:
        run(server, FRAME + "\ndef f():\n    send('{}', length=1000)\n    os._exit(0)")
    assert caught.value.status == Status.CRASHED


def test_after_a_refused_value_the_next_call_works(server: ForkServer) -> None:
    source = "def f(x): return object() if x else 'whole'"
    message = {"do": "call", "task": "1.2", "kwargs": {}}
    with started(server, source) as worker:
        bad = worker.request({"message": {**message, "args": [1]}}, lambda n, a: None)
        assert "a object cannot cross" in bad["message"]
        good = worker.request({"message": {**message, "args": [0]}}, lambda n, a: None)
        assert good["value"] == "whole"


def test_endless_questions(server: ForkServer) -> None:
    source = FRAME.replace("time.sleep(0.1)", "pass") + (
        """\ndef f(g):\n    while True: record(('do', '"ask"'), ('number', 0), ('args', []))"""
    )
    message = {"do": "call", "task": "1.2", "args": [len], "kwargs": {}}
    with started(server, source, Limits(seconds=1)) as worker:
        with pytest.raises(Died) as caught:
            worker.request({"message": message, "number": lambda f: 0}, lambda n, asked: 1)
        assert caught.value.status == Status.TIMEOUT
