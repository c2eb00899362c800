"""Records of named arrays in one file, found by number: a data set that need not fit into memory.

    with RecordWriter("digits.rec", {"x": mc.f32[8, 8], "y": mc.i64[()]}) as writer:
        writer.append(x=image, y=label)             # as often as there are records
    records = Records("digits.rec")                 # len(records), records[17]["x"]
    mc.train.dataset(records)                       # shuffled, in batches

    header   magic, length, CRC; JSON: version, the type of each array
    records  each: the sizes that its types leave open, then the arrays as they lie in memory
    index    of each record where it begins, its length, its CRC (20 bytes)
    footer   where the index begins, how many records, CRC of the index, magic

A size may be a symbol: `mc.u8["N"]` holds texts of any length; in one record a symbol is one number
wherever it stands. Every record has a checksum (CRC-32,
that of Ethernet and zip), so damage is found and named. All numbers are little-endian. The idea of
an index behind the records is that of the zip format. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, BinaryIO, Never, cast
from zlib import crc32

import numpy as np

from minidlc.expr.index import Index, Var
from minidlc.expr.types import DTYPES, Array, Dim, TensorType
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
from minidlc.train.atomic import atomic_file, path_of, refusing

_MAGIC = b"mdlc-records\n"
_END = b"mdlc-rec-end"
_VERSION = 1
_HEAD = struct.Struct("<II")  # bytes and CRC of the JSON text
_FOOT = struct.Struct("<QQI")  # where the index begins, number of records, CRC of the index
_INDEX = np.dtype([("offset", "<u8"), ("length", "<u8"), ("crc", "<u4")])
_SIZE = np.dtype("<u4")


class RecordWriter:
    """Writes a record file; it stands under its name when the `with` block ends, else not at all.

    `schema` names the arrays of a record and their types. A record that is refused is left out, and
    the next may follow; after a write that failed there is no file. Raises TrainError: MDLC1265 the
    file cannot be written, MDLC1268 a schema or record that does not fit, a second `with`.
    """

    def __init__(self, path: str | os.PathLike[str], schema: Mapping[str, TensorType]) -> None:
        self._path = path_of("RecordWriter", "path", path)
        expect("RecordWriter", "schema", schema, Mapping, hint='{"x": mc.f32[8, 8]}')
        if not schema:
            raise TrainError("RecordWriter: schema names no array", code="MDLC1268")
        for name, type in schema.items():
            expect("RecordWriter", "a name in schema", name, str)
            expect("RecordWriter", f"schema[{name!r}]", type, TensorType, hint="mc.f32[8, 8]")
            for dim in type.shape:
                _expect_plain(name, dim)
        self.schema = dict(schema)
        self._file: BinaryIO | None = None
        self._place = 0  # bytes written so far
        self._used = False
        self._failed: TrainError | None = None  # a write that did: the file is not whole
        self._index: list[tuple[int, int, int]] = []

    def __enter__(self) -> RecordWriter:
        if self._used:
            text = "RecordWriter: this one has had its with block"
            hint = "a second RecordWriter writes the file anew; none adds to a file"
            raise TrainError(text, hint=hint, code="MDLC1268")
        self._used = True
        text = json.dumps({"version": _VERSION, "schema": _schema_as_json(self.schema)}).encode()
        with contextlib.ExitStack() as stack:
            self._file = stack.enter_context(atomic_file(self._path))
            self._write(_MAGIC + _HEAD.pack(len(text), crc32(text)) + text)
            self._stack = stack.pop_all()
        return self

    def append(self, /, **arrays: object) -> None:
        """Add a record: one array for each name of the schema, of its type."""
        number = len(self._index)
        if self._file is None:
            _refuse_record(number, "comes outside of the with block that makes the file")
        if arrays.keys() != self.schema.keys():
            got, wanted = ", ".join(arrays) or "nothing", ", ".join(self.schema)
            _refuse_record(number, f"has {got}, expected {wanted}")
        sizes: dict[str, int] = {}
        parts = [_bytes_of(number, n, arrays[n], type, sizes) for n, type in self.schema.items()]
        data = b"".join(parts)
        begin = self._place
        self._write(data)
        self._index.append((begin, len(data), crc32(data)))

    def _write(self, data: bytes) -> None:
        if self._failed is not None:
            raise self._failed
        assert self._file is not None, "the with block has begun"
        try:
            with refusing(self._path):
                self._file.write(data)
        except TrainError as e:
            self._failed = e
            raise
        self._place += len(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None:
                self._stack.__exit__(kind, error, trace)
                return
            with self._stack:
                index = np.array(self._index, _INDEX).tobytes()
                foot = _FOOT.pack(self._place, len(self._index), crc32(index))
                self._write(index + foot + _END)
        finally:
            self._file = None


class Records(Sequence[dict[str, Array]]):
    """A record file, open for reading: `records[n]` is a dict of fresh arrays.

    Threads may read at the same time. Opening reads the index; each record is read from the disk
    when it is asked for. The file is not mapped into memory, because a process that touches a page
    of a file that somebody has shortened is killed. Close it, or use `with`.

    Raises TrainError: MDLC1266 a file that is missing, foreign, cut off or damaged, with the place;
    MDLC1267, when a record is read, for one that is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_of("Records", "path", path)
        try:
            self._file = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as e:
            self._refuse(f"cannot be read: {e.strerror or e}")
        except ValueError as e:  # a path with a zero byte
            text = f"{str(self.path)!r} cannot be read: {e}"
            raise TrainError(text, code="MDLC1266") from None
        self._close = weakref.finalize(self, os.close, self._file)
        self._lock = threading.Lock()
        try:
            self._size = os.fstat(self._file).st_size
            self._index = self._read_index(self._read_header())
        except OSError as e:
            self.close()
            self._refuse(f"cannot be read: {e.strerror or e}")
        except TrainError:
            self.close()
            raise

    def _read(self, begin: int, length: int) -> bytes:
        """Bytes of the file; fewer, if it ends before.

        `pread` moves no position, which threads, and processes copied from this one, would share.
        """
        parts: list[bytes] = []
        while length > 0:
            if hasattr(os, "pread"):
                part = os.pread(self._file, length, begin)
            else:  # Windows, which does not copy processes
                with self._lock:
                    os.lseek(self._file, begin, os.SEEK_SET)
                    part = os.read(self._file, length)
            if not part:
                break
            parts.append(part)
            begin, length = begin + len(part), length - len(part)
        return b"".join(parts)

    def _read_header(self) -> int:
        """Read the schema; the records begin where the header ends."""
        begin = len(_MAGIC) + _HEAD.size
        head = self._read(0, begin)
        if head[: len(_MAGIC)] != _MAGIC:
            self._refuse("is no record file", "mc.train.RecordWriter writes them")
        if len(head) < begin:
            self._refuse(f"is cut off at byte {len(head)}, in its header")
        length, crc = _HEAD.unpack(head[len(_MAGIC) :])
        if begin + length > self._size:
            self._refuse(f"is cut off at byte {self._size}, in its header")
        text = self._read(begin, length)
        if crc32(text) != crc:
            self._refuse("has a damaged header: its checksum is wrong")
        header = json.loads(text)
        if header["version"] > _VERSION:
            self._refuse(f"is of version {header['version']}, this minidlc reads {_VERSION}")
        self.schema = {name: _type_of(fields) for name, fields in header["schema"].items()}
        return begin + length

    def _read_index(self, start: int) -> Array:
        foot_size = _FOOT.size + len(_END)
        end = self._size - foot_size
        foot = self._read(max(end, 0), foot_size)
        if end < start or foot[_FOOT.size :] != _END:
            text = f"has no index at its end, byte {self._size}: it is cut off, or has more"
            self._refuse(f"{text} behind it")
        begin, count, crc = _FOOT.unpack(foot[: _FOOT.size])
        index = self._read(begin, end - begin) if start <= begin <= end else b""
        if begin < start or len(index) != count * _INDEX.itemsize or crc32(index) != crc:
            self._refuse(f"has a damaged index, at byte {begin}: its checksum is wrong")
        return np.frombuffer(index, _INDEX)

    def _refuse(self, text: str, hint: str | None = None) -> Never:
        raise TrainError(f"{self.path} {text}", hint=hint, code="MDLC1266") from None

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, number: Any) -> Any:
        expect("Records", "number", number, int, np.integer)
        if not self._close.alive:
            self._refuse("is closed")
        entry = self._index[number]  # IndexError ends a loop, as for every sequence
        begin, length = int(entry["offset"]), int(entry["length"])
        try:
            data = self._read(begin, length)
        except OSError as e:
            self._refuse_record(number, f"cannot be read: {e.strerror or e}")
        if len(data) != length:
            self._refuse_record(number, "is gone: the file was shortened after it was opened")
        if crc32(data) != entry["crc"]:
            self._refuse_record(number, "is damaged: its checksum is wrong")
        return self._arrays(data)

    def _refuse_record(self, number: int, text: str) -> Never:
        number = int(number) % len(self)
        text = f"record {number} of {self.path} {text} (byte {self._index[number]['offset']})"
        raise TrainError(text, hint="write it again", code="MDLC1267") from None

    def _arrays(self, data: bytes) -> dict[str, Array]:
        """The arrays of a record of its bytes."""
        found: dict[str, Array] = {}
        place = 0
        for name, type in self.schema.items():
            sizes = [d for d in type.shape if not isinstance(d, int)]
            read = np.frombuffer(data, _SIZE, len(sizes), place).tolist()
            place += len(sizes) * _SIZE.itemsize
            open_sizes = iter(read)
            shape = [d if isinstance(d, int) else next(open_sizes) for d in type.shape]
            element = type.dtype.numpy.newbyteorder("<")
            array = np.frombuffer(data, element, math.prod(shape), place).reshape(shape)
            found[name] = array.astype(type.dtype.numpy)  # a copy: aligned, and it may be changed
            place += array.nbytes
        return found

    def close(self) -> None:
        """Let go of the file; reading it is an error from now on."""
        self._close()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bytes_of(
    number: int, name: str, value: object, type: TensorType, sizes: dict[str, int]
) -> bytes:
    """An array as it lies in the file, its open sizes first; `sizes` are those of the record."""
    try:
        array = np.asarray(value)
    except Exception as e:  # of NumPy, or of an `__array__` of somebody's
        _refuse_record(number, f"has {name}, which is no array: {e}")
    fits = array.ndim == type.rank and all(
        d == n if isinstance(d, int) else sizes.setdefault(str(d), n) == n
        for d, n in zip(type.shape, array.shape, strict=True)
    )
    if array.dtype != type.dtype.numpy or not fits:
        shape = ", ".join(map(str, array.shape))
        known = {str(d): sizes[str(d)] for d in type.shape if str(d) in sizes}
        where = f", {', '.join(f'{d} is {n}' for d, n in known.items())}" if known else ""
        _refuse_record(number, f"has {name}: {array.dtype}[{shape}], expected {type}{where}")
    open_sizes = [n for d, n in zip(type.shape, array.shape, strict=True) if not isinstance(d, int)]
    element = array.dtype.newbyteorder("<")
    return np.array(open_sizes, _SIZE).tobytes() + array.astype(element).tobytes()


def _refuse_record(number: int, text: str) -> Never:
    raise TrainError(f"RecordWriter: record {number} {text}", code="MDLC1268") from None


def _expect_plain(name: str, dim: Dim) -> None:
    """A size is a number or a symbol: the file has no formulas."""
    match dim:
        case int() | Index(((Var(), 1),), 0):
            pass
        case _:
            text = f"RecordWriter: schema[{name!r}] has the size {dim}"
            raise TrainError(text, hint="a number, or a symbol of its own", code="MDLC1268")


def _schema_as_json(schema: Mapping[str, TensorType]) -> dict[str, list[object]]:
    """Of each array the element type, then the sizes; a symbol as text."""
    return {
        name: [str(t.dtype), *(d if isinstance(d, int) else str(d) for d in t.shape)]
        for name, t in schema.items()
    }


def _type_of(fields: Sequence[object]) -> TensorType:
    element, *dims = fields
    return DTYPES[str(element)][cast("tuple[int | str, ...]", tuple(dims))]
