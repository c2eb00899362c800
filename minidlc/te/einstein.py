"""One tensor expression as a line of text; how far each index runs follows from the tensors.

    C = te.einstein("C[i, j] += A[i, k] * B[k, j]", A=A, B=B)           # k is summed over
    y = te.einstein("y[n] += x[n + t] * w[t]", x=x, w=w)                # y has len(x) - len(w) + 1
    m = te.einstein("m[c, i] max= x[c, 2*i + u]", {"u": 2}, x=x)        # a pool: u is given
    t = te.einstein("t[i, j] = exp(x[j, i]) + b[j]", x=x, b=b)

After Tensor Comprehensions (N. Vasilache et al., 2018). Reads text and tensors, writes a tensor.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from minidlc.expr.index import Index, Interval, Var, value_range
from minidlc.expr.nodes import Expr, Load, Reduce
from minidlc.expr.source import Source, parse_python
from minidlc.expr.text import ExprReader
from minidlc.expr.walk import rewrite
from minidlc.loop.regions import loads
from minidlc.support.arguments import expect
from minidlc.support.errors import LoweringError, nearest
from minidlc.support.locations import FileLoc
from minidlc.te.tensor import Tensor, compute

_FORMS = "C[i, j] += A[i, k] * B[k, j]; also =, *=, max= and min="
_WORD = re.compile(r"^([^=]*?)\b(max|min)=(?!=)")  # no operators of Python: written |= and &=
_SIGNS = {"max": "  |=", "min": "  &="}
_REDUCTIONS: dict[type[ast.operator], str] = {ast.Add: "sum", ast.Mult: "prod"}
_WORDS: dict[type[ast.operator], str] = {ast.BitOr: "max", ast.BitAnd: "min"}


def einstein(text: str, extents: Mapping[str, int] | None = None, /, **tensors: Tensor) -> Tensor:
    """The tensor that `text` defines, of the tensors it names.

    Indices that stand on the right only are reduced over: `+=` sums, `*=` multiplies, `max=` and
    `min=` take the largest and the smallest; `=` has no such index. An index that stands alone in a
    subscript runs over that axis; one inside a sum such as `x[2*i + k]` runs as far as the access
    stays inside, once the others are known. `extents` gives what no tensor says.
    Raises ParseError for malformed text, LoweringError for an index whose extents contradict each
    other or that leaves an axis (MDLC0727), and for one that nothing bounds (MDLC0728).
    """
    expect("einstein", "text", text, str, hint=f"such as {_FORMS}")
    expect("einstein", "extents", extents, Mapping, type(None), hint='{"k": 3}')
    for name, tensor in tensors.items():
        expect("einstein", name, tensor, Tensor, hint="te.placeholder(f32[4], 'A')")
    statement, source, word = _statement(text)
    with source.reading():
        left, op, right = _parts(statement, source, word)
        name, axes = _result(left, source)
        value = ExprReader(source, {n: t.dtype for n, t in tensors.items()}).value(right)
    _check_tensors(statement, source, tensors, value)
    sites = tuple(_sites(value, tensors))
    ranges = _Ranges(source.loc(statement), sites)
    wanted = (*axes, *(v for site in sites for v in site.variables))
    for index, extent in (extents or {}).items():
        expect("einstein", f"extents[{index!r}]", extent, int)
        if index not in wanted or extent < 0:
            known = index in wanted
            message = f"{index!r} runs to {extent}" if known else f"no index {index!r}"
            hint = "0 or more" if known else nearest(index, wanted)
            raise source.error(statement, message, "MDLC0321", hint)
        ranges.bind(index, extent, "the extents given")
    ranges.infer(wanted)
    reduced = tuple((v, n) for v, (n, _) in ranges.bound.items() if v not in axes)
    if reduced and op is None:
        message = f"{reduced[0][0]!r} stands on the right only: say what to do with its values"
        raise source.error(statement, message, "MDLC0352", "+=, *=, max= or min= reduce over it")

    def read(e: Expr) -> Expr:
        return tensors[e.buffer][e.index] if isinstance(e, Load) else e

    def element(*_: Index) -> Expr:
        body = rewrite(value, read)
        return Reduce(op, body, reduced) if op and reduced else body

    return compute([ranges.bound[a][0] for a in axes], element, name, axes=axes)


def _statement(text: str) -> tuple[ast.stmt, Source, bool]:
    """The one statement of the text; True if its operator was a word."""
    line = text.strip()
    word = _WORD.match(line)
    python = _WORD.sub(lambda m: m[1] + _SIGNS[m[2]], line)
    module, _ = parse_python(python, "<einstein>")
    source = Source("<einstein>", tuple(line.splitlines()))
    if len(module.body) != 1:
        raise source.error(None, f"expected one expression, got {len(module.body)}", "MDLC0350")
    return module.body[0], source, word is not None


def _parts(
    statement: ast.stmt, source: Source, word: bool
) -> tuple[ast.expr, str | None, ast.expr]:
    """Left side, reduction and right side."""
    match statement:
        case ast.Assign(targets=[left], value=right):
            return left, None, right
        case ast.AugAssign(target=left, op=op, value=right):
            name = (_WORDS if word else _REDUCTIONS).get(type(op))
            if name is not None:
                return left, name, right
        case _:
            pass
    raise source.error(statement, "no tensor expression", "MDLC0350", f"such as {_FORMS}")


def _result(left: ast.expr, source: Source) -> tuple[str, tuple[str, ...]]:
    """Name and axes of the tensor that is defined."""
    match left:
        case ast.Name(name):
            return name, ()
        case ast.Subscript(ast.Name(name), ast.Tuple(elts=items)):
            pass
        case ast.Subscript(ast.Name(name), item):
            items = [item]
        case _:
            message = f"cannot define {ast.unparse(left)}"
            raise source.error(left, message, "MDLC0350", f"such as {_FORMS}")
    axes: list[str] = []
    for item in items:
        if not isinstance(item, ast.Name):
            message = f"an index of the result is a name, got {ast.unparse(item)}"
            raise source.error(item, message, "MDLC0350", "put arithmetic on the right")
        if item.id in axes:
            raise source.error(item, f"axis {item.id!r} is bound twice", "MDLC0351")
        axes.append(item.id)
    return name, tuple(axes)


def _check_tensors(
    statement: ast.stmt, source: Source, tensors: Mapping[str, Tensor], value: Expr
) -> None:
    """Every tensor is read, with a position for each of its axes."""
    found = loads(value)
    for load in found:
        rank = len(tensors[load.buffer].axes)
        if rank != len(load.index):
            message = f"{load.buffer} has {rank} axes, got {len(load.index)} indices"
            raise source.error(statement, message, "MDLC0352")
    for name in tensors:
        if name not in {load.buffer for load in found}:
            raise source.error(statement, f"nothing reads the tensor {name!r}", "MDLC0321")


@dataclass(frozen=True)
class _Site:
    """A position in an axis of `size` elements, as it stands in the text."""

    buffer: str
    axis: int
    position: Index
    size: int

    @property
    def variables(self) -> tuple[str, ...]:
        """The indices in the position, by name."""
        return tuple(sorted(v.name for v in self.position.vars()))

    @property
    def alone(self) -> str | None:
        """The index that is the whole position."""
        (name,) = self.variables if len(self.variables) == 1 else ("",)
        return name if name and self.position == Index.of(Var(name)) else None

    def __str__(self) -> str:
        return f"axis {self.axis} of {self.buffer} ({self.size}) at [{self.position}]"


def _sites(value: Expr, tensors: Mapping[str, Tensor]) -> Iterable[_Site]:
    for load in loads(value):
        sizes = tensors[load.buffer].shape
        for axis, (position, size) in enumerate(zip(load.index, sizes, strict=True)):
            yield _Site(load.buffer, axis, position, size)


@dataclass
class _Ranges:
    """The extent of each index, and what says so."""

    loc: FileLoc
    sites: tuple[_Site, ...]
    bound: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])

    def bind(self, name: str, extent: int, why: str) -> None:
        """An index runs from 0 to extent - 1; refused if something says otherwise."""
        known, reason = self.bound.setdefault(name, (extent, why))
        if known != extent:
            raise self.error(f"{name!r} runs to {known} and to {extent}", (reason, why))

    def infer(self, wanted: Iterable[str]) -> None:
        """Bind every index: those that stand alone first, then those inside sums."""
        for site in self.sites:
            if site.alone and self.bound.get(site.alone, ("", ""))[1] != "the extents given":
                self.bind(site.alone, site.size, str(site))
        while found := self.solvable():
            for name, extent, site in found:
                self.bind(name, extent, str(site))
        for name in wanted:
            if name not in self.bound:
                places = [str(s) for s in self.sites if name in s.variables]
                raise LoweringError(
                    f"nothing says how far {name!r} runs",
                    loc=self.loc,
                    notes=places or (f"{name!r} is in no subscript on the right",),
                    hint=f'give it: einstein(…, {{"{name}": 8}}, …)',
                    code="MDLC0728",
                )
        for site in self.sites:
            self.check(site)

    def solvable(self) -> list[tuple[str, int, _Site]]:
        """The positions with one index that is not bound yet, and how far it may run there."""
        found: list[tuple[str, int, _Site]] = []
        for site in self.sites:
            unbound = [v for v in site.variables if v not in self.bound]
            if len(unbound) == 1 and all(isinstance(a, Var) for a, _ in site.position.terms):
                found.append((unbound[0], self.room(site, Var(unbound[0])), site))
        return found

    def room(self, site: _Site, v: Var) -> int:
        """The largest extent of `v` with which the access stays inside its axis."""
        step = dict(site.position.terms)[v]
        span = value_range(site.position - step * v, self.intervals())
        assert span is not None, "all other indices are bound"
        room = site.size - 1 - span[1] if step > 0 else span[0]
        extent = room // abs(step) + 1
        if extent < 0:
            raise self.error(f"no {v} fits: {site} leaves the axis", self.reasons(site))
        return extent

    def check(self, site: _Site) -> None:
        """Refuse an access outside its axis."""
        if any(self.bound[v][0] == 0 for v in site.variables):
            return
        span = value_range(site.position, self.intervals())
        if span is None or span[0] < 0 or span[1] >= site.size:
            reach = f"{span[0]} to {span[1]}" if span else "an unknown range"
            raise self.error(f"{site} reaches {reach}", self.reasons(site))

    def intervals(self) -> dict[Var, Interval]:
        """The values of every index."""
        return {Var(v): (0, max(extent, 1) - 1) for v, (extent, _) in self.bound.items()}

    def reasons(self, site: _Site) -> tuple[str, ...]:
        """What bound the indices of a position."""
        bound = [(v, *self.bound[v]) for v in site.variables if v in self.bound]
        return tuple(f"{v} runs to {extent}: {why}" for v, extent, why in bound)

    def error(self, message: str, notes: tuple[str, ...]) -> LoweringError:
        """A contradiction."""
        return LoweringError(message, loc=self.loc, notes=notes, code="MDLC0727")
