"""Reading assembly: the innermost loops of a kernel, and what is in them.

    loops = inner_loops(kernel.asm)
    max(count(loop).fma for loop in loops)          # vector FMAs in the busiest loop
    sum(count(loop).spills for loop in loops)       # vector registers saved on the stack

For tests and for tuning: a tile that spills is not worth measuring. x86-64 and aarch64.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"^(\.?[A-Za-z_][\w.$]*):")
_JUMP = re.compile(r"^\s+(?:j[a-z]+|b\.?[a-z]*|cbn?z|tbn?z)\s+(?:[\w#]+,\s*)*(\.?L[\w.]+)")
_FMA = re.compile(r"\bv?fn?m(?:add|sub|la|ls)(?:\d+)?(?:ps|pd|ph)?\b")
_FMA_VECTOR = re.compile(r"%[xyz]mm|\bv\d+\.\d[sdh]|\.\d?[sdh]\b")
# rbp is the base of an array: also in a frame that has it, LLVM finds its spills from rsp, as no
# kernel has an array on the stack whose size is known at run time only
_X86_STACK = re.compile(r"\(%rsp(?:\)|,)")
_ARM_STACK = re.compile(r"\[(?:sp|x29)\b")
_VECTOR_REGISTER = re.compile(r"%[xyz]mm\d|\bq\d+\b")


@dataclass(frozen=True)
class Counts:
    """Instructions of a piece of assembly; `spills` are vector registers moved to or from stack."""

    instructions: int
    fma: int
    spills: int
    calls: int


def instructions(asm: str) -> list[str]:
    """The lines that are instructions."""
    return [
        line.strip()
        for line in asm.splitlines()
        if line.startswith(("\t", " ")) and not line.strip().startswith((".", "#", "//"))
    ]


def inner_loops(asm: str) -> list[str]:
    """The text of each innermost loop: from a label to the jump back to it, no loop inside."""
    lines = asm.splitlines()
    labels: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for n, line in enumerate(lines):
        label = _LABEL.match(line)
        if label:
            labels[label[1]] = n
        jump = _JUMP.match(line)
        if jump and jump[1] in labels:
            spans.append((labels[jump[1]], n))
    inner = [
        (a, b)
        for a, b in spans
        if not any((c, d) != (a, b) and a <= c and d <= b for c, d in spans)
    ]
    return ["\n".join(lines[a : b + 1]) for a, b in inner]


def count(asm: str) -> Counts:
    """Count the instructions of a text, such as one of `inner_loops`."""
    code = instructions(asm)
    return Counts(
        instructions=len(code),
        fma=sum(bool(_FMA.search(x) and _FMA_VECTOR.search(x)) for x in code),
        spills=sum(
            bool(_VECTOR_REGISTER.search(x) and (_X86_STACK.search(x) or _ARM_STACK.search(x)))
            for x in code
        ),
        calls=sum(x.startswith(("call", "bl\t", "bl ")) for x in code),
    )
