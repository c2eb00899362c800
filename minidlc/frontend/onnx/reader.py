"""A path, bytes or ModelProto → a ModelProto that is certainly ONNX, with its weights in place.

    proto, name = read_model("lenet.onnx")          # name = 'lenet.onnx', for messages
    read_model("photo.png")     # OnnxImportError: photo.png is a PNG image, not an ONNX model

The file is looked at before protobuf sees it, so that the message can say what it is instead.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from minidlc.frontend.onnx.order import subgraphs
from minidlc.support.errors import OnnxImportError, nearest

Source: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"

KNOWN_FILES = (
    (b"\x89PNG", "a PNG image", None),
    (b"\xff\xd8\xff", "a JPEG image", None),
    (b"PK\x03\x04", "a zip archive", "a PyTorch file or a packed model: export or unpack it first"),
    (b"\x1f\x8b", "a gzip file", "unpack it first"),
    (b"\x89HDF", "an HDF5 file", "a Keras model? convert it with tf2onnx"),
    (b"\x80\x02", "a Python pickle", "export the model with torch.onnx.export"),
    (b"%PDF", "a PDF document", None),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "run: git lfs pull"),
)
_LENGTH_DELIMITED = 2  # protobuf wire type of strings and messages
_FIXED = {1: 8, 5: 4}


def source_name(source: Source) -> str:
    """What messages call the model: its file, or the name of its graph."""
    if isinstance(source, onnx.ModelProto):
        return str(source.graph.name or "model")
    return "bytes" if isinstance(source, (bytes, bytearray)) else Path(source).name


def read_model(source: Source) -> tuple[onnx.ModelProto, str]:
    """The model and a name for messages. Raises OnnxImportError.

    MDLC0102 no such file, 0103 empty, 0104 another kind of file, 0105 truncated or damaged, 0106
    protobuf that is no ONNX model, 0111 external data missing.
    """
    name, folder = source_name(source), None
    if isinstance(source, onnx.ModelProto):
        model = source
    elif isinstance(source, (bytes, bytearray)):
        model = _parse(bytes(source), name)
    else:
        path = Path(source)
        folder = path.parent
        model = _parse(_read_file(path), name)
    _check_is_onnx(model, name)
    for graph in _graphs(model):
        _check_names(graph, name)
    return _with_weights(model, name, folder), name


def _read_file(path: Path) -> bytes:
    if path.is_dir():
        inside = ", ".join(sorted(p.name for p in path.glob("*.onnx"))[:5])
        hint = f"it holds {inside}" if inside else None
        raise OnnxImportError(f"{path} is a folder, not a file", hint=hint, code="MDLC0102")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = nearest(path.name, there) if len(there) < 50 else None
        raise OnnxImportError(f"no such file: {path}", hint=hint, code="MDLC0102") from None
    except OSError as e:
        text = f"cannot read {path}: {e.strerror}"
        raise OnnxImportError(text, hint="check its permissions", code="MDLC0102") from None


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    if not data:
        hint = "was the download or the export interrupted?"
        raise OnnxImportError(f"{name} is empty", hint=hint, code="MDLC0103")
    for magic, what, hint in KNOWN_FILES:
        if data.startswith(magic):
            raise OnnxImportError(
                f"{name} is {what}, not an ONNX model", hint=hint, code="MDLC0104"
            )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise _undecodable(data, name) from None
    return model


def _undecodable(data: bytes, name: str) -> OnnxImportError:
    """Say what is wrong with bytes that protobuf refuses."""
    missing = missing_bytes(data)
    if missing:
        text = f"{name} is truncated: a field needs {missing} bytes more than the file has"
        return OnnxImportError(text, hint="copy or download it again", code="MDLC0105")
    if _is_text(data):
        text = f"{name} is a text file, not an ONNX model"
        hint = "graph text is read with mc.parse; ONNX models are binary"
        return OnnxImportError(text, hint=hint, code="MDLC0104")
    text = f"{name} is no ONNX model, or damaged: it does not decode as protobuf"
    return OnnxImportError(text, hint="copy or download it again", code="MDLC0105")


def _is_text(data: bytes) -> bool:
    try:
        head = data[:4096].decode("utf-8", "ignore")
    except UnicodeDecodeError:
        return False
    return all(c.isprintable() or c.isspace() for c in head)


def missing_bytes(data: bytes) -> int:
    """How many bytes the last field of a ModelProto lacks; 0 if it is framed otherwise."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        field, wire = tag >> 3, tag & 7
        if field not in onnx.ModelProto.DESCRIPTOR.fields_by_number:
            return 0
        if wire == 0:
            _, position = _varint(data, position)
        elif wire == _LENGTH_DELIMITED:
            length, position = _varint(data, position)
            position += length
        elif wire in _FIXED:
            position += _FIXED[wire]
        else:
            return 0
    return position - len(data)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift > 63:
            break
    return value, position


def _check_is_onnx(model: onnx.ModelProto, name: str) -> None:
    problem = None
    if not model.HasField("graph"):
        problem = "it has no graph"
    elif not model.ir_version:
        problem = "it has no IR version"
    elif not model.opset_import:
        problem = "it imports no operator set"
    elif not model.graph.output:
        problem = "its graph has no outputs"
    if problem:
        text = f"{name} is protobuf, but no ONNX model: {problem}"
        hint = "another format, or cut off; python -m onnx.checker FILE says more"
        raise OnnxImportError(text, hint=hint, code="MDLC0106")


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto | onnx.FunctionProto]:
    """The graph, the model's functions, and every subgraph inside."""
    found: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    for graph in found:  # grows on the way
        for node in graph.node:
            found += subgraphs(node)
    return found


def _check_names(graph: onnx.GraphProto | onnx.FunctionProto, name: str) -> None:
    """Names must be text: protobuf hands out bytes where they are no UTF-8."""
    texts: list[object] = [graph.name]
    for node in graph.node:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        texts += [a.name for a in node.attribute]
    if isinstance(graph, onnx.FunctionProto):
        texts += [*graph.input, *graph.output, graph.domain]
    else:
        texts += [t.name for t in graph.initializer]
        for info in (*graph.input, *graph.output):
            dims = info.type.tensor_type.shape.dim
            texts += [info.name, *(d.dim_param for d in dims)]
    if not all(isinstance(text, str) for text in texts):
        text = f"{name} is damaged: a name in it is no UTF-8 text"
        raise OnnxImportError(text, hint="copy or download it again", code="MDLC0105")


def _with_weights(model: onnx.ModelProto, name: str, folder: Path | None) -> onnx.ModelProto:
    """The model with external tensors read in."""
    outside = [t.name for t in model.graph.initializer if uses_external_data(t)]
    if not outside:
        return model
    if folder is None:
        text = f"{name} keeps {len(outside)} tensors in other files, first {outside[0]!r}"
        hint = "load the model by its path, so that they can be found"
        raise OnnxImportError(text, hint=hint, code="MDLC0111")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        load_external_data_for_model(copy, str(folder))
    except Exception as e:  # several types, from the file system and from onnx
        text = f"{name}: external data of {len(outside)} tensors cannot be read: {e}"
        hint = f"the files lie beside the model, in {folder.resolve()}"
        raise OnnxImportError(text, hint=hint, code="MDLC0111") from None
    return copy
