"""`custom_gradient`: a function that says what its gradient is.

    @mc.custom_gradient
    def rounded(x):                                 # straight through: as if nothing was rounded
        return mc.round(x), lambda dy: dy

Called on values of a graph it makes one node, which holds the function and its gradient as graphs.
On arrays, inside `mc.eager()`, the function alone is run. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Never, cast

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, apply, building, results_of
from minidlc.ops.gradients import zeros_like
from minidlc.support.arguments import expect
from minidlc.support.errors import GradientError
from minidlc.support.locations import PyLoc


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `function`, which returns its result and a function of dy, an op with this gradient.

    `function(x, …)` returns `y, gradient` (several results as a tuple); `gradient(dy, …)` takes one
    dy for each result and returns one value for each tensor among the arguments, None meaning zero.
    It may use what `function` computed. Arguments that are no tensors are handed on as they are.

    Calls raise GradientError: MDLC1210 for a function that returns something else, MDLC1211 for one
    that reads a tensor which is no argument, MDLC1204 for a gradient of another type.
    """
    expect("custom_gradient", "function", function, Callable)  # pyright: ignore[reportArgumentType]

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, (Input, Constant, Node))]
        if not given:
            return _returned(function, function(*args, **kwargs))[0]
        inputs = [Input(v.name, cast(TensorType, v.type), v.loc) for v in given]
        stand_ins = iter(inputs)

        def stand_in(a: object) -> object:
            return next(stand_ins) if isinstance(a, (Input, Constant, Node)) else a

        with building():
            args = tuple(stand_in(a) for a in args)
            kwargs = {name: stand_in(a) for name, a in kwargs.items()}
            found, gradient = _returned(function, function(*args, **kwargs))
            results = _values(function, found)
            dys = [Input(f"d{r.name}", cast(TensorType, r.type)) for r in results]
            grads = _grads(function, gradient(*dys), inputs)
        body = _closed(function, function.__name__, inputs, results)
        back = _closed(function, f"{function.__name__}_gradient", [*inputs, *dys], grads)
        node = apply("custom_gradient", *given, body=body, backward=back)
        return tuple(results_of(node)) if isinstance(found, (tuple, list)) else node

    return wrapper


def _returned(function: Callable[..., Any], found: object) -> tuple[Any, Callable[..., Any]]:
    if isinstance(found, tuple):
        pair = cast("tuple[object, ...]", found)
        if len(pair) == 2 and callable(pair[1]):
            return pair[0], pair[1]
    _refuse(
        function, f"returned {found!r:.60}", "return y, gradient: a tensor and a function of dy"
    )


def _values(function: Callable[..., Any], found: object) -> list[Value]:
    items = list(cast("Sequence[object]", found)) if isinstance(found, (tuple, list)) else [found]
    for item in items:
        if not isinstance(item, (Input, Constant, Node)) or not isinstance(item.type, TensorType):
            _refuse(function, f"returned {item!r:.60} as a result", "results are tensors")
    return cast("list[Value]", items)


def _grads(function: Callable[..., Any], found: object, inputs: Sequence[Input]) -> list[Value]:
    items = list(cast("Sequence[object]", found)) if isinstance(found, (tuple, list)) else [found]
    if len(items) != len(inputs):
        text = f"has a gradient that returns {len(items)} values for {len(inputs)} tensors"
        _refuse(function, text, "one for each, None where nothing flows", "MDLC1204")
    grads: list[Value] = []
    for x, item in zip(inputs, items, strict=True):
        dx = zeros_like(x) if item is None else item
        if not isinstance(dx, (Input, Constant, Node)) or dx.type != x.type:
            shown = dx.type if isinstance(dx, (Input, Constant, Node)) else repr(dx)
            text = f"has a gradient that returns {shown} for {x.name}: {x.type}"
            _refuse(function, text, "a gradient has the type of its input", "MDLC1204")
        grads.append(dx)
    return grads


def _closed(
    function: Callable[..., Any], name: str, inputs: Sequence[Input], outputs: Sequence[Value]
) -> Graph:
    """The graph of the outputs, which may read `inputs` alone."""
    graph, own = Graph.of(name, inputs, outputs), set(inputs)
    read = [v for node in graph.nodes for v in node.inputs] + list(outputs)
    for v in read:
        if isinstance(v, Input) and v not in own:
            hint = "hand it over as an argument, then it gets a gradient too"
            _refuse(function, f"reads {v.name}, which is no argument", hint, "MDLC1211")
    return graph


def _refuse(function: Callable[..., Any], text: str, hint: str, code: str = "MDLC1210") -> Never:
    code_ = function.__code__ if hasattr(function, "__code__") else None
    loc = None if code_ is None else PyLoc(code_.co_filename, code_.co_firstlineno)
    name = getattr(function, "__name__", "the function")
    raise GradientError(f"custom_gradient: {name} {text}", loc=loc, hint=hint, code=code)
