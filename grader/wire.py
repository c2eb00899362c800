"""What may cross between the three roles: plain data, arrays as bytes, graphs as text.

    head, blobs = encode({"graph": g, "x": array})  # JSON text, list of bytes
    value = decode(head, blobs)                     # new objects; Refused if it is malformed
    write(stream, value); value = read(stream)      # the same, framed

Never pickle. Both ends may be hostile to each other: whatever is read is bounded, typed and parsed
before it becomes an object. Graphs are printed and parsed; what is received is verified and gets
fresh values. A frame begins with the nonce of its connection. Read by parent, worker and evaluator.
Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import ast
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

import minidlc as mc
from minidlc import ops as _ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  # to be parsed
from minidlc.expr.types import DTYPES, Array, DType, TensorType, dtype
from minidlc.graph.literals import Reader
from minidlc.graph.parser import parse
from minidlc.graph.printer import text_and_weights
from minidlc.graph.types import TupleType
from minidlc.support.errors import CompileError
from minidlc.support.source import Source

MAX_FRAME = 64 << 20  # bytes of one message
MAX_HEAD = 4 << 20  # bytes of its JSON
MAX_ITEMS = 200_000  # of that JSON: commas, colons and brackets, also those in texts
MAX_BLOBS = 10_000
MAX_TEXT = 1 << 16  # characters of one IR text
MAX_WORK = 10_000  # its lines times the most dims or operands in one; of a message twice that
_LEAST_WORK = 4  # of the shortest text
MAX_DEPTH = 60
_SHORT = 100  # characters of a type's text
MAX_RANK = 32
NONCE = 16  # bytes
_HEAD = struct.Struct(f"!{NONCE}sII")  # nonce, bytes of JSON, number of blobs
_SIZE = struct.Struct("!Q")
_INTS = range(-(1 << 63), 1 << 64)
_LONG_NUMBER = re.compile(r"\d[\d_]{20,}|0[xXoObB][\da-fA-F_]{17,}")  # no dim, no element
_LONG_DIM = re.compile(r"""["'][^"'\n]{200,}""")
_SLOW_DIM = re.compile(r"min|max|//|%")
_ELEMENTS = re.compile(r"const\((?:[\d\s.,+eE\[\]-]|nan|inf|True|False)*\)")
_MARKS = re.compile(r"[\[\](){},]")


class Refused(Exception):
    """A message that is malformed or too large."""


class Broken(Refused):
    """Bytes that are no message of this connection: what follows cannot be read either."""


class Readable(Protocol):
    """What is read from: a binary stream, or a worker's channel."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; b"" at the end."""
        ...


class Writable(Protocol):
    """What is written to: a binary stream."""

    def write(self, data: bytes, /) -> object:
        """Takes all of it."""
        ...

    def flush(self) -> object:
        """Sends it off."""
        ...


class _Blobs(list[bytes]):
    """The bytes beside the JSON; each is named by its place."""

    def put(self, data: bytes) -> int:
        self.append(data)
        return len(self) - 1


def encode(value: object, callback: Callable[[Any], int] | None = None) -> tuple[str, list[bytes]]:
    """JSON text and the bytes beside it.

    `callback` numbers the functions that may be passed; without it a function is refused.
    Raises Refused for what cannot cross.
    """
    blobs = _Blobs()
    head = json.dumps(_Encoder(blobs, callback).value(value, 0), ensure_ascii=True)
    if len(head) + sum(map(len, blobs)) > MAX_FRAME or not _countable(head, blobs):
        raise Refused("more data than one message may hold")
    return head, blobs


def _countable(head: str, blobs: Sequence[bytes]) -> bool:
    items = sum(head.count(mark) for mark in ",:[{")
    return len(head) <= MAX_HEAD and items <= MAX_ITEMS and len(blobs) <= MAX_BLOBS


@dataclass(frozen=True)
class _Encoder:
    """Values of one message to JSON data."""

    blobs: _Blobs
    callback: Callable[[Any], int] | None

    def value(self, value: Any, depth: int) -> Any:
        kind = cast(type, type(value))  # pyright: ignore[reportUnnecessaryCast]
        if value is None or kind in (bool, int, str):
            return _checked(value)
        if depth > MAX_DEPTH:
            raise Refused(f"values nested deeper than {MAX_DEPTH}")
        if isinstance(value, list):
            return [self.value(v, depth + 1) for v in cast(list[object], value)]
        if isinstance(value, tuple):
            items = cast(tuple[object, ...], value)
            return {"$": "tuple", "items": [self.value(v, depth + 1) for v in items]}
        if isinstance(value, dict):
            pairs = cast(dict[object, object], value).items()
            if all(type(k) is str and k.isascii() and k != "$" for k, _ in pairs):
                return {cast(str, k): self.value(v, depth + 1) for k, v in pairs}
            items = [[self.value(k, depth + 1), self.value(v, depth + 1)] for k, v in pairs]
            return {"$": "dict", "items": items}
        return self.leaf(value, kind)

    def leaf(self, value: Any, kind: type) -> Any:
        """What holds no other values."""
        if kind is float:
            return value if math.isfinite(value) else {"$": "float", "value": str(value)}
        if isinstance(value, TensorType):
            return {"$": "type", "text": str(value)}
        if kind is bytes:
            return {"$": "bytes", "blob": self.blobs.put(value)}
        if isinstance(value, (np.ndarray, np.generic)):
            return _plain_array(np.asarray(cast(Array, value)), self.blobs)
        if isinstance(value, DType):
            return {"$": "dtype", "name": value.name}
        if isinstance(value, mc.Graph):
            text, weights = text_and_weights(value)
            plain = {name: _plain_array(array, self.blobs) for name, array in weights.items()}
            return {"$": "graph", "text": text, "weights": plain}
        if isinstance(value, TupleType):
            return {"$": "types", "items": [self.leaf(t, TensorType) for t in value.items]}
        if self.callback is not None and callable(value):
            return {"$": "function", "number": self.callback(value)}
        raise Refused(
            f"a {kind.__name__} cannot cross: give numbers, text, arrays, types or graphs"
        )


def _checked(value: object) -> object:
    """A number or a text that every later reader can hold."""
    if type(value) is int and value not in _INTS:
        raise Refused("an integer of more than 64 bits")
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused("a text with half a character (a lone surrogate)") from None
    return value


def _plain_array(array: Array, blobs: _Blobs) -> dict[str, Any]:
    try:
        name = dtype(array.dtype).name
    except CompileError:
        raise Refused(f"an array of {array.dtype} cannot cross") from None
    if array.nbytes > MAX_FRAME or array.ndim > MAX_RANK:
        raise Refused(f"an array of {name}{list(array.shape)} is too large to cross")
    data = np.ascontiguousarray(array).tobytes()
    return {"$": "array", "dtype": name, "shape": list(array.shape), "blob": blobs.put(data)}


def decode(
    head: str,
    blobs: Sequence[bytes],
    function: Callable[[int], Any] | None = None,
    check: bool = True,
) -> Any:
    """The value that `encode` wrote; `function` gives the stand-in of a numbered function.

    Graphs are verified, unless `check` is off: a worker trusts the parent, and its verifier may be
    withheld. Raises Refused for anything malformed, CompileError for a text that is no valid graph.
    """
    if not _countable(head, blobs):
        raise Refused("a message that is too large")
    try:
        data = json.loads(head, parse_constant=_no_constant)
        return _Decoder(blobs, function, check).value(data, 0)
    except (Refused, CompileError):
        raise
    except Exception as e:  # it is the sender's text: whatever it sets off is the sender's fault
        raise Refused(f"a malformed message: {type(e).__name__}: {e!s:.200}") from None


def _no_constant(name: str) -> float:
    raise Refused(f"a malformed message: {name} is not JSON")


@dataclass
class _Decoder:
    """JSON data of one message to values; what all of it may cost is bounded."""

    blobs: Sequence[bytes]
    function: Callable[[int], Any] | None
    check: bool
    named: set[int] = field(default_factory=set[int])  # blobs that have become a value
    work: int = 0  # of the texts so far

    def value(self, data: Any, depth: int) -> Any:
        if not isinstance(data, (list, dict)):
            return _checked(data)
        if depth > MAX_DEPTH * 3:  # a level of ours is up to three of JSON
            raise Refused(f"values nested deeper than {MAX_DEPTH}")
        if isinstance(data, list):
            return [self.value(part, depth + 1) for part in cast(list[object], data)]
        record, deeper = cast(dict[str, Any], data), depth + 1
        if "$" not in record:
            return {_checked(k): self.value(v, deeper) for k, v in record.items()}
        match record["$"]:
            case "dict":
                pairs = record["items"]
                return {self.value(k, deeper): self.value(v, deeper) for k, v in pairs}
            case "tuple":
                return tuple(self.value(part, deeper) for part in record["items"])
            case _:
                return self.leaf(record)

    def leaf(self, record: Mapping[str, Any]) -> Any:
        """What holds no other values."""
        match record["$"]:
            case "type":
                return self.type(record["text"])
            case "array":
                return self.array(record)
            case "graph":
                return self.graph(record)
            case "float":
                return float(record["value"])
            case "bytes":
                return self.blob(record["blob"])
            case "dtype":
                return DTYPES[record["name"]]
            case "types":
                return TupleType(tuple(self.type(part["text"]) for part in record["items"]))
            case "function" if self.function is not None:
                return self.function(record["number"])
            case kind:
                raise Refused(f"a value of kind {kind!r:.40} is not expected here")

    def blob(self, place: object) -> bytes:
        """The bytes of that number."""
        if type(place) is not int or not 0 <= place < len(self.blobs):
            raise Refused("a message that names bytes it does not have")
        if place in self.named:  # each would be a copy more
            raise Refused("a message that names the same bytes twice")
        self.named.add(place)
        return self.blobs[place]

    def array(self, record: Mapping[str, Any]) -> Array:
        """An array whose bytes are exactly those of its shape."""
        kind, shape, data = DTYPES[record["dtype"]], record["shape"], self.blob(record["blob"])
        if len(shape) > MAX_RANK or not all(type(d) is int and 0 <= d <= MAX_FRAME for d in shape):
            raise Refused(f"an array of shape {shape!r:.60}")
        if math.prod(shape) * kind.itemsize != len(data):
            raise Refused(f"an array of {kind.name}{shape} with {len(data)} bytes")
        if kind.kind == "bool" and data.strip(b"\0\1"):
            raise Refused("an array of bool with bytes other than 0 and 1")
        return np.frombuffer(data, dtype=kind.numpy).reshape(shape).copy()

    def type(self, text: object) -> TensorType:
        """A type as it is printed: `f32["N", 4]`."""
        shown = self.text(text)
        return _read_type(shown) if len(shown) > _SHORT else _read_short_type(shown)

    def text(self, text: object) -> str:
        """IR text that may be given to a parser: what all of a message cost is bounded."""
        shown, work = _bounded(text)
        self.work += max(work, _LEAST_WORK)
        if self.check and self.work > 2 * MAX_WORK:
            raise Refused("more IR texts than the grader reads in one message")
        return shown

    def graph(self, record: Mapping[str, Any]) -> mc.Graph:
        """A graph with fresh values, verified."""
        weights = {str(k): self.array(a) for k, a in record["weights"].items()}
        text = self.text(record["text"]) if self.check else record["text"]
        graph = parse(text, weights, file="<received>")
        if self.check:
            mc.verify(graph)
        return graph


def _read_type(shown: str) -> TensorType:
    reader = Reader(Source("<received>", shown))
    return reader.tensor_type(ast.parse(shown, mode="eval").body)


_read_short_type = lru_cache(maxsize=1024)(_read_type)  # most messages name the same few types


def _bounded(text: object) -> tuple[str, int]:
    """An IR text and how much work it is to parse; Refused above about two seconds."""
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise Refused(f"an IR text that is no text, or longer than {MAX_TEXT >> 10} KiB")
    if _LONG_NUMBER.search(text):
        raise Refused("an IR text with a number of more than 64 bits")
    if _LONG_DIM.search(text):
        raise Refused("an IR text with a dim of more than 200 characters")
    slow = 10 if _SLOW_DIM.search(text) else 1
    work = (text.count("\n") + 1) * _widest(_ELEMENTS.sub("const()", text)) * slow
    if work > MAX_WORK:
        raise Refused("an IR text with more lines and dims than the grader reads")
    return text, work


def _widest(text: str) -> int:
    """The most items between two brackets; Refused if they are nested too deeply."""
    widest, open_brackets = 1, [1]
    for mark in _MARKS.findall(text):
        if mark == ",":
            open_brackets[-1] += 1
        elif mark in "[({":
            open_brackets.append(1)
        elif len(open_brackets) > 1:
            widest = max(widest, open_brackets.pop())
        if len(open_brackets) > MAX_DEPTH:
            raise Refused(f"an IR text with brackets nested deeper than {MAX_DEPTH}")
    return max(widest, *open_brackets)


def pack(
    value: object, callback: Callable[[Any], int] | None = None, nonce: bytes = bytes(NONCE)
) -> bytes:
    """One framed message."""
    head, blobs = encode(value, callback)
    text = head.encode()
    sizes = b"".join(_SIZE.pack(len(blob)) for blob in blobs)
    return b"".join([_HEAD.pack(nonce, len(text), len(blobs)), sizes, text, *blobs])


def write(
    stream: Writable,
    value: object,
    callback: Callable[[Any], int] | None = None,
    nonce: bytes = bytes(NONCE),
) -> None:
    """Send one message."""
    stream.write(pack(value, callback, nonce))
    stream.flush()


def read(
    stream: Readable,
    function: Callable[[int], Any] | None = None,
    nonce: bytes = bytes(NONCE),
    check: bool = True,
) -> Any:
    """Receive one message.

    Raises EOFError at the end, Broken for what is no message, Refused and CompileError for a
    message that cannot be accepted; the next one can be read.
    """
    seen, length, count = _HEAD.unpack(_exactly(stream, _HEAD.size))
    if seen != nonce:
        raise Broken("bytes that are not an answer")
    if length > MAX_HEAD or count > MAX_BLOBS:
        raise Broken("a message that is too large")
    sizes = [_SIZE.unpack(_exactly(stream, _SIZE.size))[0] for _ in range(count)]
    if length + sum(sizes) > MAX_FRAME:
        raise Broken("a message that is too large")
    text = _exactly(stream, length)
    blobs = [_exactly(stream, size) for size in sizes]
    try:
        return decode(text.decode(), blobs, function, check)
    except UnicodeDecodeError:
        raise Refused("a message that is no UTF-8") from None


def _exactly(stream: Readable, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = stream.read(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
