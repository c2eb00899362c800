"""Which statement each machine instruction came from: LLVM's own line tables, filled by us.

    rows = asm_origins(kernel)
    # [Row("vfmadd231ps (%rdi,%rax), %ymm1, %ymm0", Store("C_c", …)), Row(".LBB0_3:", None), …]

Every line of LLVM text that a statement made gets that statement's number as its "source line";
the assembler's `.loc` directives then carry the numbers through LLVM's passes. What LLVM mixes from
several statements it gives to one of them, or to none. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minidlc.codegen.compile import Kernel, assemble
from minidlc.loop.nodes import Stmt

_LOC = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_LABEL = re.compile(r"^(\.?[A-Za-z_$][\w.$]*):")
_NO_JUMP = re.compile(r"^\.?L(?:tmp|func_begin|func_end|cfi|debug)\w*")  # marks of the line tables
_NODES: tuple[str, ...] = (
    '!0 = !DIFile(filename: "loops", directory: "")',
    "!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !0, emissionKind: LineTablesOnly)",
    '!2 = !{i32 2, !"Debug Info Version", i32 3}',
    "!3 = !DISubroutineType(types: !{})",
)


@dataclass(frozen=True)
class Row:
    """A line of assembly and the statement it came from."""

    text: str
    statement: Stmt | None


def asm_origins(kernel: Kernel) -> tuple[Row, ...]:
    """The instructions and jump targets of a kernel, in order, each with its statement."""
    numbers: dict[int, int] = {}
    statements: list[Stmt] = []
    for s in kernel.origins:
        if s is not None and id(s) not in numbers:
            statements.append(s)
            numbers[id(s)] = len(statements)
    lines = [0 if s is None else numbers[id(s)] for s in kernel.origins]
    asm = assemble(_with_lines(kernel.llvm, lines), kernel.target)
    return tuple(
        Row(text, statements[number - 1] if number else None) for text, number in _rows(asm)
    )


def _with_lines(llvm: str, lines: Sequence[int]) -> str:
    """The module with a debug location on every instruction that has a number."""
    nodes, out = list(_NODES), list[str]()
    known: dict[tuple[str, int], str] = {}
    scope = ""
    for text, line in zip(llvm.split("\n"), lines, strict=True):
        if text.startswith("define "):
            scope = f"!{len(nodes)}"
            name = text.partition("@")[2].partition("(")[0]
            nodes.append(
                f'{scope} = distinct !DISubprogram(name: "{name}", scope: !0, file: !0, '
                "type: !3, spFlags: DISPFlagDefinition, unit: !1)"
            )
            text = f"{text.removesuffix('{')}!dbg {scope} {{"
        elif text.startswith("  ") and not text.lstrip().startswith(";"):
            key = (scope, line)  # 0: of no statement; LLVM keeps that apart as well
            if key not in known:
                known[key] = f"!{len(nodes)}"
                nodes.append(f"{known[key]} = !DILocation(line: {line}, scope: {scope})")
            text = f"{text}, !dbg {known[key]}"
        out.append(text)
    named = ("!llvm.dbg.cu = !{!1}", "!llvm.module.flags = !{!2}")
    return "\n".join((*out, *named, *nodes)) + "\n"


def _rows(asm: str) -> Iterator[tuple[str, int]]:
    """Instructions and labels of the code sections, with the number in force."""
    number, code = 0, True
    for line in asm.splitlines():
        text = line.partition("#")[0].rstrip() if "##" in line or "\t#" in line else line.rstrip()
        stripped = text.strip()
        label, loc = _LABEL.match(text), _LOC.match(text)
        if loc:
            number = int(loc[1])
        elif stripped.startswith((".text", ".section")):
            code = stripped.startswith(".text") or "text" in stripped
        elif not code or not stripped or (stripped.startswith((".", "#", "//")) and not label):
            continue
        elif label:
            number = 0
            if not _NO_JUMP.match(label[1]):
                yield text, 0
        else:
            yield text, number
