"""What may cross between the three roles: plain data, arrays as bytes, graphs as text.

    head, blobs = encode({"graph": g, "x": array})  # JSON text, list of bytes
    value = decode(head, blobs)                     # new objects; Refused if it is malformed
    write(stream, value); value = read(stream)      # the same, framed

Never pickle. Both ends may be hostile to each other: whatever is read is bounded, typed and parsed
before it becomes an object. Graphs are printed and parsed; what is received is verified by the
parser and gets fresh values. Read by parent, worker and evaluator.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, cast

import numpy as np

import minidlc as mc
from minidlc.expr.types import DTYPES, Array, DType, TensorType, dtype
from minidlc.graph.text import parse, print_graph, weights_of
from minidlc.graph.types import TupleType
from minidlc.support.errors import CompileError

MAX_FRAME = 64 << 20  # bytes of one message
MAX_TEXT = 1 << 20  # characters of one IR text
MAX_DEPTH = 60
_HEAD = struct.Struct("!II")  # bytes of JSON, number of blobs
_SIZE = struct.Struct("!Q")


class Refused(Exception):
    """A message that is malformed or too large."""


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
    return json.dumps(_plain(value, blobs, callback, 0), ensure_ascii=True), blobs


def _plain(value: Any, blobs: _Blobs, callback: Callable[[Any], int] | None, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise Refused(f"values nested deeper than {MAX_DEPTH}")
    kind = cast(type, type(value))
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "value": str(value)}
    if kind is bytes:
        return {"$": "bytes", "blob": blobs.put(value)}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain_array(np.asarray(value), blobs)
    if isinstance(value, DType):
        return {"$": "dtype", "name": value.name}
    if isinstance(value, TensorType):
        dims = [d if isinstance(d, int) else str(d) for d in value.shape]
        return {"$": "type", "dtype": value.dtype.name, "dims": dims}
    if isinstance(value, mc.Graph):
        weights = {k: _plain_array(a, blobs) for k, a in weights_of(value).items()}
        return {"$": "graph", "text": print_graph(value), "weights": weights}

    def inner(part: object) -> Any:
        return _plain(part, blobs, callback, depth + 1)

    if isinstance(value, TupleType):
        return {"$": "types", "items": [inner(t) for t in value.types]}
    if isinstance(value, list):
        return [inner(v) for v in cast(list[object], value)]
    if isinstance(value, tuple):
        return {"$": "tuple", "items": [inner(v) for v in cast(tuple[object, ...], value)]}
    if isinstance(value, dict):
        return {"$": "dict", "items": [[inner(k), inner(v)] for k, v in value.items()]}
    if callback is not None and callable(value):
        return {"$": "function", "number": callback(value)}
    raise Refused(f"a {kind.__name__} cannot cross: give numbers, text, arrays, types or graphs")


def _plain_array(array: Array, blobs: _Blobs) -> dict[str, Any]:
    try:
        name = dtype(array.dtype).name
    except CompileError:
        raise Refused(f"an array of {array.dtype} cannot cross") from None
    data = np.ascontiguousarray(array).tobytes()
    return {"$": "array", "dtype": name, "shape": list(array.shape), "blob": blobs.put(data)}


def decode(head: str, blobs: Sequence[bytes], function: Callable[[int], Any] | None = None) -> Any:
    """The value that `encode` wrote; `function` gives the stand-in of a numbered function.

    Raises Refused for anything malformed, CompileError for a graph text that is not valid.
    """
    try:
        return _value(json.loads(head), blobs, function)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as e:
        raise Refused(f"a malformed message: {type(e).__name__}: {e}") from None


def _value(data: Any, blobs: Sequence[bytes], function: Callable[[int], Any] | None) -> Any:
    if isinstance(data, list):
        return [_value(part, blobs, function) for part in cast(list[object], data)]
    if not isinstance(data, dict):
        return data
    record = cast(dict[str, Any], data)
    match record["$"]:
        case "float":
            return float(record["value"])
        case "bytes":
            return blobs[record["blob"]]
        case "array":
            return _array(record, blobs)
        case "dtype":
            return DTYPES[record["name"]]
        case "type":
            return DTYPES[record["dtype"]][tuple(record["dims"])]
        case "types":
            return TupleType(tuple(_value(t, blobs, function) for t in record["items"]))
        case "graph":
            return _graph(record, blobs)
        case "tuple":
            return tuple(_value(part, blobs, function) for part in record["items"])
        case "dict":
            pairs = record["items"]
            return {_value(k, blobs, None): _value(v, blobs, function) for k, v in pairs}
        case "function" if function is not None:
            return function(record["number"])
        case kind:
            raise Refused(f"a value of kind {kind!r} is not expected here")


def _array(record: Mapping[str, Any], blobs: Sequence[bytes]) -> Array:
    kind, shape, data = DTYPES[record["dtype"]], tuple(record["shape"]), blobs[record["blob"]]
    if len(shape) > 32 or not all(type(d) is int and 0 <= d <= MAX_FRAME for d in shape):
        raise Refused(f"an array of shape {shape!r:.60}")
    if math.prod(shape) * kind.itemsize != len(data):
        raise Refused(f"an array of {kind.name}{list(shape)} with {len(data)} bytes")
    return np.frombuffer(data, dtype=kind.numpy).reshape(shape).copy()


def _graph(record: Mapping[str, Any], blobs: Sequence[bytes]) -> mc.Graph:
    text = record["text"]
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise Refused("a graph text that is no text, or longer than a megabyte")
    weights = {str(k): _array(a, blobs) for k, a in record["weights"].items()}
    graph = parse(text, weights, file="<received>")
    mc.verify(graph)
    return graph


def pack(value: object, callback: Callable[[Any], int] | None = None) -> bytes:
    """One framed message."""
    head, blobs = encode(value, callback)
    text = head.encode()
    sizes = b"".join(_SIZE.pack(len(blob)) for blob in blobs)
    return b"".join([_HEAD.pack(len(text), len(blobs)), sizes, text, *blobs])


def write(stream: BinaryIO, value: object, callback: Callable[[Any], int] | None = None) -> None:
    """Send one message."""
    stream.write(pack(value, callback))
    stream.flush()


def read(stream: BinaryIO, function: Callable[[int], Any] | None = None) -> Any:
    """Receive one message. Raises EOFError at the end, Refused for what is malformed."""
    length, count = _HEAD.unpack(_exactly(stream, _HEAD.size))
    if length > MAX_FRAME or count > 100_000:
        raise Refused("a message that is too large")
    sizes = [_SIZE.unpack(_exactly(stream, _SIZE.size))[0] for _ in range(count)]
    if length + sum(sizes) > MAX_FRAME:
        raise Refused("a message that is too large")
    text = _exactly(stream, length)
    blobs = [_exactly(stream, size) for size in sizes]
    try:
        return decode(text.decode(), blobs, function)
    except UnicodeDecodeError:
        raise Refused("a message that is no UTF-8") from None


def _exactly(stream: BinaryIO, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = stream.read(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
