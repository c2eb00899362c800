"""Random Python functions of NumPy arrays, as source: straight lines, or with if and loops.

They use what NumPy arrays and graph values both have, in f64 with factors that are powers of two,
so that sums are exact and no condition hangs on a rounding.
"""

from __future__ import annotations

import itertools
import linecache
import random

_numbers = itertools.count()


def function(source: str, name: str = "fn", **names):
    """The function of that name in `source`, which `inspect` can read."""
    file = f"<random function {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = dict(names)
    exec(compile(source, file, "exec"), scope)
    return scope[name]


class Writer:
    """Writes a function of a, b: f64[3] and n: i64[()]; `jumps` allows if and loops of tensors."""

    def __init__(self, seed: int, *, jumps: bool) -> None:
        self.random = random.Random(seed)
        self.jumps = jumps
        self.lines: list[str] = []
        self.counters = 0

    def source(self) -> str:
        self.lines = ["def fn(a, b, n):", "    s = 1.0", "    t = [a, {'k': b}]"]
        for _ in range(self.random.randint(2, 5)):
            self.statement(1, 0)
        if self.jumps and self.random.random() < 0.4:
            self.line(1, f"if {self.condition()}:")
            self.line(2, "return b, s, t[0], t[1]['k']")
            self.statement(1, 0)
        self.line(1, "return a, s, t[0], t[1]['k']")
        return "\n".join(self.lines) + "\n"

    def line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def vector(self, depth: int = 0) -> str:
        pick = self.random.choice
        if depth > 1 or self.random.random() < 0.3:
            return pick(["a", "b", "t[0]", "t[1]['k']"])
        x, y = self.vector(depth + 1), self.vector(depth + 1)
        forms = [f"({x} + {y}) * 0.5", f"{x} - 0.5 * {y}", f"abs({x})", f"-{x}", f"{x} + s"]
        if self.jumps:
            forms += [f"({x} if {self.condition()} else {y})"]
        return pick(forms)

    def scalar(self) -> str:
        x = self.vector(1)
        return self.random.choice([f"({x}).sum() * 0.25", f"({x}).max()", "s * 0.5", "s + 1.0"])

    def condition(self) -> str:
        x = self.random.choice("ab")
        one = [f"{x}.sum() > s", f"{x}.max() <= 2.0", "s < 3.0", f"-1.0 < {x}.min() < s", "n == 2"]
        c = self.random.choice(one)
        form = self.random.choice(["{}", "{}", "not {}", "({} and n > 1)", "({} or s != 1.0)"])
        return form.format(f"({c})")

    def assignment(self, indent: int) -> None:
        target = self.random.choice(["a", "b", "s", "t[0]", "t[1]['k']", "a, b"])
        value = self.scalar() if target == "s" else self.vector()
        self.line(indent, f"{target} = {f'{value}, a' if target == 'a, b' else value}")

    def statement(self, indent: int, depth: int) -> None:
        kinds = ["assign", "assign", "for"] + ["if", "for n", "while"] * self.jumps
        kind = self.random.choice(kinds) if depth < 2 else "assign"
        if kind == "assign":
            self.assignment(indent)
            return
        counter = f"k{self.counters}"
        self.counters += 1
        if kind == "while":
            self.line(indent, f"{counter} = 0")
            self.line(indent, f"while {counter} < n and {self.condition()}:")
            self.line(indent + 1, f"{counter} += 1")
        else:
            bounds = self.random.choice(["n", "1, n", "4, n, -2"])
            head = {
                "for": f"for {counter} in range({self.random.randint(0, 2)}):",
                "for n": f"for {counter} in range({bounds}):",
                "if": f"if {self.condition()}:",
            }
            self.line(indent, head[kind])
        for _ in range(self.random.randint(1, 2)):
            self.statement(indent + 1, depth + 1)
        if kind == "if" and self.random.random() < 0.6:
            self.line(indent, "else:")
            self.statement(indent + 1, depth + 1)
