"""Random loop functions: compiled code does what the interpreter does, at every width."""

from __future__ import annotations

import random
import re

import pytest

from minidlc import target
from minidlc.support.errors import CodegenError
from minidlc.tests.codegen.helpers import WIDTHS, check

pytestmark = pytest.mark.llvm


class Program:
    """The text of one random function over i < rows, j < n."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.rows = self.r.choice([1, 2, 3, 5, 7])
        self.n = self.r.choice([1, 3, 4, 8, 13, 16, 17, 20, 33, 40])
        self.dtype = self.r.choice(["f32", "f32", "f32", "f64", "i32", "i64", "u8", "i8"])
        self.kind = self.r.choice(["vectorized"] * 4 + ["serial", "unrolled"])

    def constant(self) -> str:
        if self.dtype == "f32":
            return self.r.choice(["0.5", "2.0", "-1.0", "0.0"])
        return f"{self.dtype}({self.r.choice('0123')})"

    def load(self, sums: str) -> str:
        n = self.n
        near = ["A[i, j]", "B[j]", "D[j, i]", "A[i, 0]", f"A[i, {n - 1} - j]", sums]
        far = [f"B[(j + 3)%{n}]", "B[j//2]", f"B[min(j + 1, {n - 1})]"]
        found = [f"B[at(P[j], {n})]", f"A[i, at(P[j], {n})]", f"A[at(P[i%{n}], {self.rows}), j]"]
        return self.r.choice(near + far + found)

    def lazy(self, sums: str) -> str:
        """A select whose condition keeps its load in bounds."""
        by = self.r.choice([-2, -1, 1, 2])
        j = f"j + {by}" if by > 0 else f"j - {-by}"
        load = self.r.choice([f"B[{j}]", f"A[i, {j}]", f"D[{j}, i]", f"B[at(P[{j}], {self.n})]"])
        cond = f"{self.n - 1} - ({j}) >= 0" if by > 0 else f"{j} >= 0"
        if self.r.random() < 0.3:
            cond += f" and i - {self.r.choice([0, 1])} >= 0"
        return f"select({cond}, {load}, {self.value(0, sums)})"

    def value(self, depth: int, sums: str = "S[i]") -> str:
        x = self.r.random()
        if depth == 0 or x < 0.25:
            return self.r.choice([self.load(sums), self.load(sums), self.constant()])
        if x < 0.4:
            return self.lazy(sums)
        a, b = self.value(depth - 1, sums), self.value(depth - 1, sums)
        if x < 0.5 and self.dtype == "f32":
            return f"exp({a} * 0.1)"
        if x < 0.65:
            return f"{self.r.choice(['min', 'max'])}({a}, {b})"
        return f"({a} {self.r.choice('+-*')} {b})"

    def over_j(self, body: list[str], depth: int) -> list[str]:
        """The body in a loop over j, or in a split one with a tail."""
        pad, width = "    " * depth, self.r.choice([4, 8, 16])
        if self.n <= width or self.r.random() < 0.3:
            return [f"{pad}for j in {self.kind}(0, {self.n}):", *(f"{pad}    {b}" for b in body)]
        outer = self.r.choice(["serial", "unrolled"])
        extent = f"min({width}, {self.n} - {width}*jo)"
        whole = f"({width}*jo + ji)"
        text = [re.sub(r"\bj\b", whole, b) for b in body]
        return [
            f"{pad}for jo in {outer}(0, {-(-self.n // width)}):",
            f"{pad}    for ji in {self.kind}(0, {extent}):",
            *(f"{pad}        {b}" for b in text),
        ]

    def text(self) -> str:
        t, rows, n = self.dtype, self.rows, self.n
        head = f"def k(A: {t}[{rows}, {n}], B: {t}[{n}], D: {t}[{n}, {rows}], S: {t}[{rows}], "
        head += f"P: i64[{n}], "
        kind = self.r.choice(["serial", "parallel", "unrolled"])
        lines = [head + f"C: {t}[{rows}, {n}]):", f"    for i in {kind}(0, {rows}):"]
        scope = self.r.choice(["stack", "arena", "register", None])
        return "\n".join(lines + (self.staged(scope) if scope else self.plain())) + "\n"

    def staged(self, scope: str) -> list[str]:
        """Through a local row."""
        lines = [f'        t = alloc({self.dtype}[{self.n}], "{scope}")']
        lines += self.over_j([f"t[j] = {self.value(2)}"], 2)
        if self.r.random() < 0.5:
            lines.append("        for k in serial(0, 3):")
            lines += self.over_j([f"t[j] = t[j] + {self.value(1)}"], 3)
        found = "j" if scope == "register" else self.r.choice(["j", f"at(P[j], {self.n})"])
        lines += self.over_j([f"C[i, j] = t[{found}] + {self.value(1)}"], 2)
        if self.r.random() < 0.5:
            lines.append(f"        S[i] = {self.constant()}")
            lines += self.over_j(["S[i] = S[i] + t[j]"], 2)
        return lines

    def plain(self) -> list[str]:
        """Straight to the output, under a condition sometimes, with a reduction sometimes."""
        body = [f"C[i, j] = {self.value(3)}"]
        if self.r.random() < 0.3:
            cond = self.r.choice(["j - 1", f"{self.n // 2} - j", "i - 1"])
            body = [f"if {cond} >= 0:", "    " + body[0]]
        elif self.r.random() < 0.3:
            test = self.r.choice(["A[i, j] > B[j]", "B[0] < A[i, 0]", "P[j] > index(i)"])
            body = [f"if {test}:", "    " + body[0]]
        elif self.r.random() < 0.2:
            body = [f"C[i, at(P[j], {self.n})] = {self.value(2)}"]
        lines = self.over_j(body, 2)
        if self.r.random() < 0.5:
            op, e = self.r.choice("+<>"), self.value(1, "B[j]")
            update = f"S[i] + {e}" if op == "+" else f"{'min' if op == '<' else 'max'}(S[i], {e})"
            lines += self.over_j([f"S[i] = {update}"], 2)
        return lines


def run(seeds: range) -> int:
    """Run the programs of these seeds; the number that code generation refused."""
    refused = 0
    for seed in seeds:
        width = WIDTHS[seed % len(WIDTHS)]
        source = Program(seed).text()
        try:
            check(source, target.host(width), threads=1 + seed % 2, rtol=1e-4)
        except CodegenError as error:
            if error.code != "MDLC0804":  # registers at offsets that are no constants
                raise
            refused += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, width {width}:\n{source}\n{error}") from None
    return refused


def test_random_programs() -> None:
    assert run(range(100)) < 30


@pytest.mark.slow
def test_many_random_programs() -> None:
    assert run(range(1000, 6000)) < 1500
