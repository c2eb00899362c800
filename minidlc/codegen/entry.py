"""The one native function of a static model: it calls the kernels in order.

    call = KernelCall("k_1", (Operand("input", 0), Operand("arena", offset=64)), Operand("arena"))
    text = emit_entry("main", (call,))
    # define void @main(ptr %arena, ptr %inputs, ptr %outputs, ptr %constants, i32 %threads)

Treated in course chapter 05_codegen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from minidlc.codegen.compile import compile_text
from minidlc.support.errors import CodegenError
from minidlc.target import Target

Space: TypeAlias = Literal["arena", "input", "output", "constant"]
_BASES = {"arena": "%arena", "constant": "%constants", "input": "%inputs", "output": "%outputs"}


@dataclass(frozen=True)
class Operand:
    """A place in memory: byte `offset` of the arena, of the constant block, or of an array.

    `index` says which input or output; it means nothing for 'arena' and 'constant'.
    """

    space: Space
    index: int = 0
    offset: int = 0


@dataclass(frozen=True)
class KernelCall:
    """One kernel on its operands, in parameter order, and where its workspace is."""

    symbol: str
    operands: tuple[Operand, ...]
    workspace: Operand = Operand("arena")


def emit_entry(name: str, calls: Sequence[KernelCall]) -> str:
    """Return the LLVM text of the entry `name`; the kernels are declared, not defined."""
    arity: dict[str, int] = {}
    lines: list[str] = []
    loaded: dict[tuple[str, int], str] = {}
    for call in calls:
        if arity.setdefault(call.symbol, len(call.operands)) != len(call.operands):
            raise CodegenError(
                f"{call.symbol} is called with {len(call.operands)} and with "
                f"{arity[call.symbol]} operands",
                code="MDLC0822",
            )
        places = [_place(x, lines, loaded) for x in (*call.operands, call.workspace)]
        arguments = ", ".join(f"ptr {p}" for p in places)
        lines.append(f"call void @{call.symbol}({arguments}, i32 %threads)")
    declared = [
        f"declare void @{symbol}({', '.join(['ptr'] * (n + 1))}, i32)"
        for symbol, n in arity.items()
    ]
    header = (
        f"define void @{name}(ptr %arena, ptr %inputs, ptr %outputs, ptr %constants, i32 %threads)"
    )
    body = "\n".join(f"  {line}" for line in [*lines, "ret void"])
    return "\n".join(declared) + f"\n\n{header} nounwind {{\n{body}\n}}\n"


def _place(x: Operand, lines: list[str], loaded: dict[tuple[str, int], str]) -> str:
    """The SSA name of an operand's address."""
    base = _BASES[x.space]
    if x.space in ("input", "output"):
        key = (x.space, x.index)
        if key not in loaded:
            loaded[key] = f"%{x.space}.{x.index}"
            slot = f"%{x.space}.{x.index}.slot"
            lines.append(f"{slot} = getelementptr ptr, ptr {base}, i64 {x.index}")
            lines.append(f"{loaded[key]} = load ptr, ptr {slot}, align 8")
        base = loaded[key]
    if not x.offset:
        return base
    name = f"%at.{len(lines)}"
    lines.append(f"{name} = getelementptr i8, ptr {base}, i64 {x.offset}")
    return name


def compile_entry(name: str, calls: Sequence[KernelCall], target: Target) -> bytes:
    """Return the object file of the entry; errors as for `compile_text`."""
    return compile_text(emit_entry(name, calls), target, what=name)
