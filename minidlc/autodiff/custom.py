"""`custom_gradient`: a function that says what its gradient is.

    @mc.custom_gradient
    def rounded(x):                                 # straight through: as if nothing was rounded
        return mc.round(x), lambda dy: dy

Called on values of a graph it makes one node, which holds the function and its gradient as graphs.
On arrays, inside `mc.eager()`, the function alone is run. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Never, cast

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, apply, building, results_of
from minidlc.ops.gradients import zeros_like
from minidlc.support.arguments import expect
from minidlc.support.errors import GradientError
from minidlc.support.locations import PyLoc
from minidlc.support.names import Names

_NESTED = 50  # containers inside containers; one that holds itself ends here


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `function`, which returns its result and a function of dy, an op with this gradient.

    `function(x, …)` returns `y, gradient` (several results as a tuple or a list);
    `gradient(dy, …)` takes one dy for each result and returns one value for each tensor among the
    arguments, also for those inside lists, tuples and dicts; None means zero. Their order is that
    of the parameters, however the call names them; behind them come those of `**kwargs`, as the
    call orders them. `gradient` may use what `function` computed. Arguments that are no tensors
    are handed on as they are.

    A gradient that is not linear in dy, such as one that clips it, is for reverse mode alone:
    `mc.jvp` and `mc.hvp` refuse one whose slope depends on dy, that steps, or has a part that
    does not follow dy, such as `x` in `dy + x` (MDLC1214). They do not see such a part inside a
    branch or a loop, and take the slope. After the passes of the compiler, which open the function,
    `mc.grad` refuses the node too (MDLC1201).

    Calls raise GradientError: MDLC1210 for a function or a gradient that takes or returns something
    else, MDLC1211 for one that reads a tensor which is no argument, MDLC1204 for a gradient of
    another type, MDLC1212 for arguments in too many containers.
    """
    expect("custom_gradient", "function", function, Callable)  # pyright: ignore[reportArgumentType]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _in_order(function, args, kwargs)
        given = list(_tensors(function, (args, kwargs)))
        if not given:
            return _without_tensors(function, args, kwargs)
        taken = Names()
        inputs = [Input(taken.fresh(v.name), cast(TensorType, v.type), v.loc) for v in given]
        with building():
            args, kwargs = cast(Any, _replaced((args, kwargs), iter(inputs)))
            found, gradient = _returned(function, function(*args, **kwargs))
            results = _values(function, found)
            dys = [Input(taken.fresh(f"d{r.name}"), cast(TensorType, r.type)) for r in results]
            _check_parameters(function, gradient, dys)
            grads = _grads(function, gradient(*dys), inputs)
        body = _closed(function, function.__name__, inputs, results)
        back = _closed(function, f"{function.__name__}_gradient", [*inputs, *dys], grads)
        node = apply("custom_gradient", *given, body=body, backward=back)
        return _replaced(found, iter(results_of(node)))

    return wrapper


def _in_order(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments in the order of the parameters; f(b=y, a=x) is f(x, y)."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):  # they do not fit: the call says so in the words of Python
        return args, kwargs
    return bound.args, bound.kwargs


def _tensors(function: Callable[..., Any], thing: object, depth: int = 0) -> Iterator[Value]:
    """Every value of a graph inside lists, tuples and dicts, in order."""
    if depth > _NESTED:
        text = f"has an argument of more than {_NESTED} containers inside each other"
        _refuse(function, text, "hand over the tensors themselves, or a list of them", "MDLC1212")
    if isinstance(thing, (Input, Constant, Node)):
        yield thing
    for part in _parts(thing):
        yield from _tensors(function, part, depth + 1)


def _parts(thing: object) -> list[object]:
    """What a list, tuple or dict holds; nothing for anything else."""
    if isinstance(thing, dict):
        return list(cast("dict[object, object]", thing).values())
    return list(cast("Sequence[object]", thing)) if isinstance(thing, (list, tuple)) else []


def _replaced(thing: object, new: Iterator[Value]) -> object:
    """The same with the next new value in place of each value."""
    if isinstance(thing, (Input, Constant, Node)):
        return next(new)
    parts = [_replaced(part, new) for part in _parts(thing)]
    if isinstance(thing, dict):
        return dict(zip(cast("dict[object, object]", thing), parts, strict=True))
    if isinstance(thing, tuple):
        kind = cast(Any, type(cast(object, thing)))
        return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)  # _fields: it is named
    return parts if isinstance(thing, list) else thing


def _without_tensors(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A call on arrays and numbers: the result alone, which must not hide a tensor of a graph."""
    found = _returned(function, function(*args, **kwargs))[0]
    _closed(function, "constant", [], list(_tensors(function, found)))
    return found


def _returned(function: Callable[..., Any], found: object) -> tuple[Any, Callable[..., Any]]:
    if isinstance(found, tuple):
        pair = cast("tuple[object, ...]", found)
        if len(pair) == 2 and callable(pair[1]):
            if isinstance(pair[0], dict):
                hint = "results are a tensor, or a tuple or a list of tensors"
                _refuse(function, f"returned {_shown(pair[0])} as results", hint)  # pyright: ignore
            return pair[0], pair[1]
    hint = "return y, gradient: a tensor and a function of dy"
    _refuse(function, f"returned {_shown(cast(object, found))}", hint)


def _shown(thing: object) -> str:
    """What something is, in a few words."""
    if isinstance(thing, (Input, Constant, Node)):
        return f"{thing.name}: {thing.type}"
    if isinstance(thing, (str, int, float)):
        return f"{thing!r:.40}"
    kind, parts = type(thing).__name__, ", ".join(map(_shown, _parts(thing)[:3]))
    return f"a {kind} of {parts}" if parts else f"a {kind}"


def _values(function: Callable[..., Any], found: object) -> list[Value]:
    items = [found] if isinstance(found, (Input, Constant, Node)) else _parts(found) or [found]
    for item in items:
        if not isinstance(item, (Input, Constant, Node)) or not isinstance(item.type, TensorType):
            _refuse(function, f"returned {_shown(item)} as a result", "results are tensors")
    return cast("list[Value]", items)


def _check_parameters(
    function: Callable[..., Any], gradient: Callable[..., Any], dys: Sequence[Value]
) -> None:
    """Refuse a gradient that cannot be called with one dy for each result."""
    try:
        parameters = inspect.signature(gradient)
    except ValueError:  # some functions of C say nothing about themselves
        return
    try:
        parameters.bind(*dys)
    except TypeError:
        results = "1 result" if len(dys) == 1 else f"{len(dys)} results"
        text = f"has {results}, but a gradient with the parameters {parameters}"
        _refuse(function, text, "the gradient takes one dy for each result")


def _grads(function: Callable[..., Any], found: object, inputs: Sequence[Input]) -> list[Value]:
    items = list(_unnested(found))
    if len(items) != len(inputs):
        text = f"has a gradient that returns {len(items)} values for {len(inputs)} tensors"
        _refuse(function, text, "one for each, None where nothing flows", "MDLC1204")
    grads: list[Value] = []
    for x, item in zip(inputs, items, strict=True):
        dx = zeros_like(x) if item is None else item
        if not isinstance(dx, (Input, Constant, Node)) or dx.type != x.type:
            shown = dx.type if isinstance(dx, (Input, Constant, Node)) else _shown(dx)
            text = f"has a gradient that returns {shown} for {x.name}: {x.type}"
            _refuse(function, text, "a gradient has the type of its input", "MDLC1204")
        grads.append(dx)
    return grads


def _unnested(found: object) -> Iterator[object]:
    """What stands in lists and tuples, one after another."""
    if isinstance(found, (list, tuple)):
        for part in _parts(cast(object, found)):
            yield from _unnested(part)
    else:
        yield found


def _closed(
    function: Callable[..., Any], name: str, inputs: Sequence[Input], outputs: Sequence[Value]
) -> Graph:
    """The graph of the outputs, which may read `inputs` alone."""
    graph = Graph.of(name, inputs, outputs)
    read = [v for node in graph.nodes for v in node.inputs] + list(outputs)
    inside: set[Value | None] = {*inputs}
    outside: set[Value | None] = {v for v in read if isinstance(v, Input) and v not in inside}
    for node in graph.nodes if outside else ():
        if not inside.isdisjoint(node.inputs):
            inside.add(node)
        elif not outside.isdisjoint(node.inputs):
            outside.add(node)
    crossing = [v for node in graph.nodes if node in inside for v in node.inputs] + list(outputs)
    for v in crossing:
        if v is not None and v in outside:
            made = "," if isinstance(v, Input) else f", made at {v.loc},"
            hint = "hand it over as an argument, then it gets a gradient too"
            _refuse(function, f"reads {v.name}{made} which is no argument", hint, "MDLC1211")
    return graph


def _refuse(function: Callable[..., Any], text: str, hint: str, code: str = "MDLC1210") -> Never:
    code_ = function.__code__ if hasattr(function, "__code__") else None
    loc = None if code_ is None else PyLoc(code_.co_filename, code_.co_firstlineno)
    name = getattr(function, "__name__", "the function")
    raise GradientError(f"custom_gradient: {name} {text}", loc=loc, hint=hint, code=code)
