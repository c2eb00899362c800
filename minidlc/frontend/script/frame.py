"""Runs the statements of a function on stand-ins: Python as it is, until a tensor decides.

    call(program, (x,), {})                         # what the function returns: graph values

A `Frame` holds the variables of one call. Simple statements are run by Python itself. `if`, `while`
and `for` look at their condition: a Python value chooses here and now, a tensor makes the statement
an op (control.py, loops.py). `and`, `==`, `a if c else b` and calls come here by the names that
source.py put in their place. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import ast
import inspect
import operator
import types
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from minidlc.expr.types import bool_
from minidlc.frontend.guards import of_library
from minidlc.frontend.pytree import is_container
from minidlc.frontend.script.control import (
    Flow,
    Outcome,
    Returned,
    branches,
    conditional,
    is_value,
    truth,
)
from minidlc.frontend.script.loops import counted, looped, range_of
from minidlc.frontend.script.refusals import refuse
from minidlc.frontend.script.region import Missing, Region, mutables, unpacked
from minidlc.frontend.script.source import Program, read_source
from minidlc.graph import TupleType, apply
from minidlc.support.errors import TypeRuleError
from minidlc.support.locations import caller
from minidlc.support.names import Names

MOST_STATEMENTS = 20_000  # of one function while it is captured: loops of Python are unrolled
DEEPEST_CALL = 60


@dataclass
class Budget:
    """Statements left, calls deep; shared by everything that one `script` runs."""

    statements: int = field(default_factory=lambda: MOST_STATEMENTS)
    depth: int = 0


def call(
    program: Program,
    args: Sequence[object],
    kwargs: dict[str, object],
    budget: Budget | None = None,
    region: Region | None = None,
) -> object:
    """What the function returns for these arguments; its statements build the nodes.

    `region`: that of the call, if a tensor decides whether it happens.
    """
    budget = budget or Budget()
    fn = cast(Any, program.fn)
    bound = inspect.signature(fn).bind(*program.bound, *args, **kwargs)
    bound.apply_defaults()
    outside: dict[str, Any] = fn.__globals__
    scope = {name: value for name, value in outside.items() if name not in program.names}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not assigned yet: reading it is Python's NameError
            scope.pop(name, None)
    given = mutables(tuple(bound.arguments.values()))
    seen = {id(m) for m in given if budget.depth > 0}
    frame = Frame(program, {**scope, **bound.arguments}, budget, region, seen)
    if region is not None:
        region.watch(frame.outside())
    budget.depth += 1
    if budget.depth > DEEPEST_CALL:
        text = f"{fn.__name__} is called inside itself more than {DEEPEST_CALL} times"
        refuse(program.place(program.body[0]), "recursion", text)
    outcome = frame.block(program.body)
    budget.depth -= 1
    return outcome.value if isinstance(outcome, Returned) else None


class Frame:
    """The variables of one call, or of a part of it that a tensor decides about (`region`)."""

    def __init__(
        self,
        program: Program,
        scope: dict[str, Any],
        budget: Budget,
        region: Region | None,
        seen: Set[int],
    ) -> None:
        self.program, self.budget, self.region = program, budget, region
        self.seen = seen  # ids of lists and dicts that others hold, too: arguments of a call
        self.loops = 0  # of Python, around the statement that runs
        self.scope = scope
        scope.update(
            __and=self.all_of, __or=self.any_of, __not=self.negated, __compare=self.compared,
            __choose=self.chosen, __call=self.called,
        )  # fmt: skip

    def variables(self) -> dict[str, object]:
        """The function's variables that have a value now."""
        return {name: self.scope[name] for name in self.program.names if name in self.scope}

    def outside(self) -> list[object]:
        """What the function can reach besides its variables: globals it names, objects it holds."""
        names = (n for n in self.program.fn.__code__.co_names if n not in self.program.names)
        held = [v for v in self.variables().values() if not is_container(v)]
        return [*(self.scope[n] for n in names if n in self.scope), *held]

    def inside(self, *, shared: bool = True, **more: object) -> Frame:
        """A frame on copies of the variables (and of `more`), for a branch or a loop's body."""
        self.scope.update({name: unpacked(tree) for name, tree in self.variables().items()})
        region = Region.of({**self.variables(), **more}, Names(["i", "c"]), shared=shared)
        region.watch(self.outside())
        seen = {id(twin.copy) for twin in region.twins if id(twin.original) in self.seen}
        scope = {**self.scope, **region.variables}
        return Frame(self.program, scope, self.budget, region, seen)

    def block(self, statements: Sequence[ast.stmt]) -> Outcome:
        """Run statements in order until one jumps."""
        for number, statement in enumerate(statements):
            if isinstance(statement, ast.If):
                rest = statements[number + 1 :] if _returns(statement) else ()
                outcome = self.if_(statement, rest)  # after an early return the rest is a branch
                if rest:
                    return outcome
            else:
                outcome = self.statement(statement)
            if outcome is not Flow.NEXT:
                return outcome
        return Flow.NEXT

    def statement(self, statement: ast.stmt) -> Outcome:
        self._spend(statement)
        match statement:
            case ast.Return(value):
                return Returned(None if value is None else self.eval(value))
            case ast.Break():
                return Flow.BREAK
            case ast.Continue():
                return Flow.CONTINUE
            case ast.While():
                return self.while_(statement)
            case ast.For():
                return self.for_(statement)
            case _:
                self.run(statement)
                return Flow.NEXT

    def run(self, statement: ast.stmt) -> None:
        """A simple statement, by Python itself."""
        self._check_reads(statement)
        if self.region is not None:
            self._check_effects(statement)
        exec(self.program.code(statement), self.scope)

    def eval(self, expression: ast.expr) -> Any:
        """The value of an expression, by Python itself."""
        self._check_reads(expression)
        return eval(self.program.code(expression), self.scope)

    # Statements that a tensor may decide about.

    def if_(self, statement: ast.If, rest: Sequence[ast.stmt]) -> Outcome:
        self._spend(statement)
        test = truth(self.program.place(statement.test), self.eval(statement.test))
        if is_value(test):
            return conditional(self, statement, test, rest)
        return self.block([*(statement.body if test else statement.orelse), *rest])

    def while_(self, statement: ast.While) -> Outcome:
        while True:
            self._spend(statement)
            test = truth(self.program.place(statement.test), self.eval(statement.test))
            if is_value(test):
                return looped(self, statement, test)
            if not test:
                return Flow.NEXT
            outcome = self._once(statement.body)
            if outcome is Flow.BREAK or isinstance(outcome, Returned):
                return Flow.NEXT if outcome is Flow.BREAK else outcome

    def for_(self, statement: ast.For) -> Outcome:
        bounds = range_of(self, statement)
        if bounds is not None and any(map(is_value, bounds)):
            return counted(self, statement, bounds)
        things = self.eval(statement.iter) if bounds is None else range(*cast(Any, bounds))
        if is_value(things):
            place = self.program.place(statement.iter)
            refuse(place, "for-tensor", f"the loop iterates over a tensor, {things.type}")
        for thing in things:
            self._spend(statement)
            self._bind(statement.target, thing)
            outcome = self._once(statement.body)
            if outcome is Flow.BREAK or isinstance(outcome, Returned):
                return Flow.NEXT if outcome is Flow.BREAK else outcome
        return Flow.NEXT

    def _once(self, body: Sequence[ast.stmt]) -> Outcome:
        self.loops += 1
        try:
            return self.block(body)
        finally:
            self.loops -= 1

    def _bind(self, target: ast.expr, thing: object) -> None:
        if isinstance(target, ast.Name):
            self.scope[target.id] = thing
            return
        self.scope["__item"] = thing
        assign = ast.copy_location(ast.Assign([target], ast.Name("__item", ast.Load())), target)
        tree = ast.fix_missing_locations(ast.Module([assign], []))
        exec(compile(tree, self.program.fn.__code__.co_filename, "exec"), self.scope)

    # What expressions call; see source.py.

    def all_of(self, *operands: Callable[[], object]) -> object:
        """`a and b`: Python's where the first is a Python value, else logical_and."""
        return self._logical("logical_and", False, operands)

    def any_of(self, *operands: Callable[[], object]) -> object:
        """`a or b`."""
        return self._logical("logical_or", True, operands)

    def _logical(self, op: str, decided: bool, operands: Sequence[Callable[[], object]]) -> object:
        result = operands[0]()
        for operand in operands[1:]:
            if not is_value(result) and bool(result) is decided:
                return result
            following = operand()
            if is_value(result):
                following = apply(op, _one_bool(op, result), _one_bool(op, following))
            result = following
        return result

    def negated(self, operand: object) -> object:
        """`not a`."""
        test = truth(caller(), operand)
        return apply("logical_not", test) if is_value(test) else not test

    def compared(self, symbols: Sequence[str], *operands: Callable[[], object]) -> object:
        """`a == b`, `a < b < c`: each operand once, and no further than needed."""
        left, result = operands[0](), None
        for number, (symbol, operand) in enumerate(zip(symbols, operands[1:], strict=True)):
            right = operand()
            one = _compare(symbol, left, right)
            if number == 0:
                result = one
            elif is_value(result):
                result = apply("logical_and", _one_bool(symbol, result), _one_bool(symbol, one))
            else:
                result = one
            if not is_value(result) and not result:
                return result
            left = right
        return result

    def chosen(self, test: object, number: int) -> object:
        """`a if c else b`."""
        yes, no = self.program.pairs[number]
        place = self.program.place(yes)
        test = truth(place, test)
        if not is_value(test):
            return self.eval(yes if test else no)
        frames = self.inside(), self.inside()
        values = frames[0].eval(yes), frames[1].eval(no)
        return branches(self, place, test, frames, {"the value": values})["the value"]

    def called(self, fn: Any) -> Any:
        """A function of the reader is run from its source, too; any other is called as it is."""
        if not isinstance(fn, (types.FunctionType, types.MethodType)) or of_library(fn):
            return fn
        try:
            program = read_source(fn)
        except TypeRuleError:  # tracing takes it, as long as no tensor decides in it
            return fn
        return partial(_called, program, self.budget, self.region)

    # Checks.

    def _spend(self, statement: ast.stmt) -> None:
        self.budget.statements -= 1
        if self.budget.statements < 0:
            text = f"more than {MOST_STATEMENTS:,} statements run while capturing"
            refuse(self.program.place(statement), "unrolled", text)

    def _check_reads(self, node: ast.AST) -> None:
        """Refuse reading a variable that exists on one way only."""
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load):
                value = self.scope.get(name.id)
                if isinstance(value, Missing):
                    refuse(self.program.place(name), value.rule, f"{name.id!r} {value.why}")

    def _check_effects(self, statement: ast.stmt) -> None:
        """Under a tensor only variables, and lists and dicts in them, may change."""
        place = self.program.place(statement)
        match statement:
            case ast.Raise():
                refuse(place, "raise", "`raise` where a tensor decides")
            case ast.Assign(targets=targets):
                changed = targets
            case ast.AugAssign(target=target):
                changed = [target]
            case ast.Expr(value=ast.Constant()):
                changed = []
            case ast.Expr(value=ast.Call(func=ast.Call(args=[ast.Attribute(value=owner)]))):
                changed = [ast.Subscript(owner, ast.Constant(0))]  # xs.append(y): it changes xs
            case ast.Expr():
                refuse(place, "side-effect", "a result that is not used, where a tensor decides")
            case _:
                changed = []
        for target in changed:
            self._check_target(target, place)

    def _check_target(self, target: ast.expr, place: Any) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._check_target(part, place)
        owner = target
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        kept = (
            isinstance(owner, ast.Name)
            and owner.id in self.program.names
            and isinstance(self.scope.get(owner.id), (list, dict))
        )
        if isinstance(target, ast.Attribute) or (owner is not target and not kept):
            refuse(place, "side-effect", "an object of outside is changed where a tensor decides")


def _called(
    program: Program, budget: Budget, region: Region | None, *args: object, **kwargs: object
) -> object:
    return call(program, args, kwargs, budget, region)


_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne, "is": operator.is_, "is not": operator.is_not,
    "in": lambda a, b: a in b, "not in": lambda a, b: a not in b,
}  # fmt: skip


def _compare(symbol: str, left: object, right: object) -> object:
    """One comparison; `==` of tensors compares elements."""
    tensors = is_value(left) or is_value(right)
    if symbol in ("==", "!=") and tensors and left is not None and right is not None:
        equal = apply("equal", left, right)
        return equal if symbol == "==" else apply("logical_not", equal)
    return _PYTHON[symbol](left, right)


def _one_bool(op: str, operand: object) -> object:
    """An operand of `and`, `or`: one element of bool, or a Python bool."""
    if isinstance(operand, bool):
        return operand
    if not is_value(operand) or isinstance(operand.type, TupleType):
        refuse(caller(), "logical", f"{op} of a {type(operand).__name__} and a tensor")
    one = operand.type.is_static and operand.type.size == 1
    if operand.type.dtype != bool_ or not one:
        refuse(caller(), "logical", f"{op} of {operand.type}, expected one bool")
    return truth(caller(), operand)


def _returns(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Return) for node in ast.walk(statement))
