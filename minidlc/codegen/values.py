"""Values of the emitted function and the writer that lays its instructions down.

    b = Builder()
    p = b.pure("add nsw i64 %i, 1", "%i")           # '%t0'; the same text again gives '%t0' again
    b.line(f"store i64 {p}, ptr %x")

Instructions go to the innermost open *region* (function body, loop body, branch). A region's text
joins its parent's when it closes; until then the parent can still grow in front of it. So `pure`
moves address arithmetic out of the loops it does not depend on, without any LLVM pass.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from minidlc.expr.nodes import Number
from minidlc.expr.types import DType


@dataclass(frozen=True)
class Value:
    """An SSA name or a constant; `width` lanes of it, 0 for a scalar.

    `dtype` is the element type of the program; f16 and bf16 are held as f32, bool as i1.
    """

    text: str
    dtype: DType
    width: int = 0

    @property
    def type(self) -> str:
        """Its LLVM type."""
        return vector_type(register_type(self.dtype), self.width)

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def register_type(dtype: DType) -> str:
    """LLVM type in which values of `dtype` are computed."""
    if dtype.is_float:
        return "double" if dtype.bits == 64 else "float"
    return "i1" if dtype.kind == "bool" else f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """LLVM type in which an element of `dtype` lies in memory."""
    if dtype.kind == "bool":
        return "i8"
    return f"i{dtype.bits}" if dtype.is_float and dtype.bits == 16 else register_type(dtype)


def vector_type(element: str, width: int) -> str:
    """`<8 x float>`, or `float` for width 0."""
    return f"<{width} x {element}>" if width else element


def suffix(element: str, width: int) -> str:
    """The overload suffix of intrinsics: `v8f32`, `f32`, `v4i1`."""
    short = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(element, element)
    return f"v{width}{short}" if width else short


def number(value: Number, element: str) -> str:
    """A literal of an LLVM scalar type; floats by their bits, exact."""
    if element in ("float", "double"):
        with_type = float(value)
        if element == "float":
            try:
                with_type = struct.unpack("<f", struct.pack("<f", with_type))[0]
            except OverflowError:
                with_type = float("inf") if with_type > 0 else float("-inf")
        return f"0x{struct.unpack('<Q', struct.pack('<d', with_type))[0]:016X}"
    if element == "i1":
        return "true" if value else "false"
    bits = int(element[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def splat_number(value: Number, element: str, width: int) -> str:
    """A literal with the same number in each of `width` lanes."""
    text = number(value, element)
    return f"splat ({element} {text})" if width else text


def lane_numbers(values: list[int] | list[bool], element: str) -> str:
    """A vector literal: `<i64 0, i64 1, …>`."""
    return "<" + ", ".join(f"{element} {number(v, element)}" for v in values) + ">"


@dataclass
class Region:
    """The text of one open region, what is known in it, and the block it writes to now."""

    block: str
    lines: list[str] = field(default_factory=list[str])
    known: dict[str, str] = field(default_factory=dict[str, str])
    loads: dict[tuple[str, ...], Value] = field(default_factory=dict[tuple[str, ...], Value])


class Builder:
    """Writes the body of one function."""

    def __init__(self) -> None:
        self._regions = [Region("entry")]
        self._depth: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self.allocas: list[str] = []
        self.instructions = 0
        self.mark = ""  # behind every line: see Module.mark

    # names and plain instructions

    def fresh(self, stem: str, mark: str = "%") -> str:
        """An unused name: `%t0`, `%t1`, …"""
        n = self._counts.get(stem, 0)
        self._counts[stem] = n + 1
        return f"{mark}{stem}.{n}"

    @property
    def block(self) -> str:
        """Label of the block being written."""
        return self._regions[-1].block

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self._regions[-1].lines.append(f"  {text}{self.mark}")
        self.instructions += 1

    def comment(self, text: str) -> None:
        """Append a comment."""
        self._regions[-1].lines.append(f"  ; {text}")

    def label(self, name: str) -> None:
        """Begin a block."""
        self._regions[-1].lines.append(f"{name}:")
        self._regions[-1].block = name

    def value(self, text: str, stem: str = "t") -> str:
        """Append an instruction with a result; return the result's name."""
        name = self.fresh(stem)
        self.line(f"{name} = {text}")
        self._depth[name] = len(self._regions) - 1
        return name

    # value numbering

    def same(self, text: str, stem: str = "t") -> str:
        """Like `value` for an instruction without effects: written once, found again later."""
        for region in reversed(self._regions):
            if text in region.known:
                return region.known[text]
        name = self.value(text, stem)
        self._regions[-1].known[text] = name
        return name

    def pure(self, text: str, *operands: str, stem: str = "t") -> str:
        """Like `same`, written in the outermost region where all `operands` are known."""
        depth = max((self._depth.get(x, 0) for x in operands), default=0)
        region = self._regions[depth]
        name = region.known.get(text)
        if name is None:
            name = self.fresh(stem)
            region.lines.append(f"  {name} = {text}{self.mark}")
            self.instructions += 1
            self._depth[name] = depth
            region.known[text] = name
        return name

    def depth(self, name: str) -> int:
        """How many regions enclose the definition of `name` (0 for constants and arguments)."""
        return self._depth.get(name, 0)

    # loads that are still valid

    def recall(self, key: tuple[str, ...]) -> Value | None:
        """What was loaded for `key`, if nothing was stored to its buffer (`key[0]`) since."""
        return next((r.loads[key] for r in reversed(self._regions) if key in r.loads), None)

    def remember(self, key: tuple[str, ...], value: Value) -> None:
        """Keep a loaded value for `recall`."""
        self._regions[-1].loads[key] = value

    def forget(self, buffer: str) -> None:
        """Drop what was loaded from `buffer`: it is being written."""
        for region in self._regions:
            for key in [k for k in region.loads if k[0] == buffer]:
                del region.loads[key]

    # regions

    @contextmanager
    def region(self, block: str) -> Generator[Region, None, None]:
        """Write into a new region that begins with the label `block`; its text is the caller's."""
        region = Region(block, [f"{block}:"])
        self._regions.append(region)
        try:
            yield region
        finally:
            self._regions.pop()

    def append(self, region: Region) -> None:
        """Add the text of a closed region here."""
        self._regions[-1].lines += region.lines

    def define(self, name: str) -> None:
        """Say that `name` (a phi) is defined in the innermost region."""
        self._depth[name] = len(self._regions) - 1

    def alloca(self, type: str, align: int, stem: str) -> str:
        """Reserve stack memory on entry to the function."""
        name = self.fresh(stem)
        self.allocas.append(f"  {name} = alloca {type}, align {align}{self.mark}")
        return name

    def text(self) -> str:
        """Everything written, allocas first."""
        return "\n".join(["entry:", *self.allocas, *self._regions[0].lines])
