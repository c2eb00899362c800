"""The text of one LLVM module: declarations and functions, each once.

    m = Module("k1"); m.declare("declare float @expf(float)")
    m.function("define void @k1(ptr %a)", "entry:\\n  ret void"); m.text()

Intrinsics (`llvm.…`) need no declaration. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from minidlc.loop.nodes import Stmt

MARK = "  ; #"  # behind a line, the number of the statement it came from


class Module:
    """Collects the functions of a kernel; names start with the kernel's symbol.

    With `marked`, every line ends in a comment: the number, in `statements`, of what it came from.
    """

    def __init__(self, symbol: str, marked: bool = False) -> None:
        self.symbol = symbol
        self.statements: list[Stmt] = []
        self._marked = marked
        self._numbers: dict[int, int] = {}
        self._declared: dict[str, None] = {}
        self._functions: list[str] = []
        self._count = 0

    def mark(self, s: Stmt) -> str:
        """What to write behind the lines of a statement."""
        if not self._marked:
            return ""
        if id(s) not in self._numbers:
            self._numbers[id(s)] = len(self.statements)
            self.statements.append(s)
        return f"{MARK}{self._numbers[id(s)]}"

    def declare(self, text: str) -> None:
        """Add a declaration; the same one again changes nothing."""
        self._declared[text] = None

    def fresh(self, name: str) -> str:
        """An unused name for a function."""
        self._count += 1
        return f"{self.symbol}.{name}.{self._count}"

    def function(self, header: str, body: str) -> None:
        """Add a function."""
        self._functions.append(f"{header} nounwind {{\n{body}\n}}")

    def text(self) -> str:
        """The module."""
        return "\n\n".join(("\n".join(self._declared), *self._functions)).strip() + "\n"


def stem(name: str) -> str:
    """A part of an LLVM name: program names that are not ASCII become `v`."""
    return name if name.isascii() else "v"
