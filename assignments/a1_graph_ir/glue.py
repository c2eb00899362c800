"""How each task's function is called inside the worker, and how its result becomes plain data.

GLUE["1.2"](function, *args): what a test hands to `student.call("1.2", *args)` arrives here. A task
without an entry is called as it is. This file is given to students; it holds no expected values.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minidlc as mc
from minidlc.expr.types import TensorType, dtype
from minidlc.graph import Constant, Graph, Input, Node, apply, infer, op_class
from minidlc.graph.graph import make_op
from minidlc.support.extension import counting

GLUE: dict[str, Callable[..., object]] = {}

# ---- 1.1 -----------------------------------------------------------------------------------


def run_1_1(function: Any, *types: TensorType, op: str = "add", arrays: Any = None) -> object:
    """The rule alone; with `arrays` as the type rule of add in a graph x + y, which then runs.

    In the graph the result is [type of x + y, its elements].
    """
    if arrays is None:
        return function(op_class(op)(), *types)

    def added(op: Any, *arrays: Any) -> Any:
        """The meaning of add in the element type that the rule gives."""
        given = [TensorType(dtype(a.dtype), a.shape) for a in arrays]
        element = function(op, *given).dtype.numpy
        return arrays[0].astype(element) + arrays[1].astype(element)

    with mc.use(**{"type_rule.add": function, "reference.add": added}):
        x, y = (Input(name, t) for name, t in zip("xy", types, strict=True))
        graph = Graph.of("sum", [x, y], [apply("add", x, y)])
        mc.verify(graph)
        return [graph.outputs[0].type, *mc.interpret(graph, arrays)]


GLUE["1.1"] = run_1_1


# ---- graphs from recipes (1.2, 1.3) --------------------------------------------------------


def built(recipe: dict[str, Any]) -> Graph:
    """The graph of a recipe. Unlike text, a recipe can describe a graph that is wrong.

    "inputs" {key: type}, "constants" {key: array}, "nodes" {key: [op, reads, attributes, type]}: if
    the last two are left out, the type is the one of the rule. "outputs" [key]. If given,
    "names" {key: name} where a name is not the key, "takes" the inputs and "lists" the nodes of the
    graph, which are else all of them.
    """
    names, values = recipe.get("names", {}), dict[str, Any]()
    for key, type in recipe.get("inputs", {}).items():
        values[key] = Input(names.get(key, key), type)
    for key, array in recipe.get("constants", {}).items():
        values[key] = Constant(key, array)
    for key, (op_name, reads, *more) in recipe["nodes"].items():
        op = make_op(op_name, more[0] if more else {})
        types = [None if r is None else values[r].type for r in reads] if len(more) < 2 else []
        type = more[1] if len(more) > 1 else infer(op, types)
        values[key] = Node(op, (), type, names.get(key, key))
    for key, (_, reads, *_) in recipe["nodes"].items():  # only now can a node read a later one
        inputs = tuple(None if r is None else values[r] for r in reads)
        object.__setattr__(values[key], "inputs", inputs)

    def all_of(keys: Any) -> tuple[Any, ...]:
        return tuple(values[key] for key in keys)

    takes = recipe.get("takes", recipe.get("inputs", {}))
    lists = recipe.get("lists", recipe["nodes"])
    return Graph("g", all_of(takes), all_of(lists), all_of(recipe["outputs"]))


def chain(length: int) -> Graph:
    """relu of relu of relu …: `length` nodes in a row."""
    x, op, values = Input("x", mc.f32[1]), make_op("relu", {}), list[Any]()
    for n in range(length):
        values.append(Node(op, (values[-1] if values else x,), x.type, f"n{n}"))
    return Graph("chain", (x,), tuple(values), (values[-1],))


def _graph_of(given: Any) -> Graph:
    """A graph, a recipe, or the length of a chain."""
    if isinstance(given, Graph):
        return given
    return chain(given) if isinstance(given, int) else built(given)


# ---- 1.2 -----------------------------------------------------------------------------------


def run_1_2(function: Any, given: Any, *, plugged: bool = False) -> object:
    """The order as names; `plugged`: the graph that the compiler makes with it."""
    graph = _graph_of(given)
    if plugged:
        with mc.use(toposort=function):
            return Graph.of(graph.name, graph.inputs, graph.outputs)
    return [value.name for value in function(graph.outputs)]


GLUE["1.2"] = run_1_2


# ---- 1.3 -----------------------------------------------------------------------------------


def run_1_3(function: Any, given: Any, *, plugged: bool = False) -> object:
    """The verifier on a graph; `plugged`: called by the compiler."""
    graph = _graph_of(given)
    if plugged:
        with mc.use(verify=function):
            return mc.verify(graph)
    return function(graph)


GLUE["1.3"] = run_1_3


# ---- 1.4 -----------------------------------------------------------------------------------

Meaning = Callable[..., Any]
BROKEN: dict[str, Callable[[Meaning], Meaning]] = {  # what a test can do to the meaning of an op
    "element": lambda f: lambda op, *arrays: f(op, *arrays).astype(np.float16),
    "kind": lambda f: lambda op, *arrays: f(op, *arrays).astype(np.int32),
    "shape": lambda f: lambda op, *arrays: f(op, *arrays)[None],
    "size": lambda f: lambda op, *arrays: f(op, *arrays)[1:],
    "twice": lambda f: lambda op, *arrays: (f(op, *arrays),) * 2,
    "fewer": lambda f: lambda op, *arrays: f(op, *arrays)[:1],
    "second": lambda f: lambda op, *arrays: (f(op, *arrays)[0], f(op, *arrays)[1][1:]),
    "swapped": lambda f: lambda op, *arrays: f(op, *arrays)[::-1],
    "one more": lambda f: lambda op, *arrays: f(op, *arrays) + 1,
}


def run_1_4(
    function: Any,
    graph: Graph,
    inputs: Any,
    *,
    broken: dict[str, str] | None = None,
    plugged: bool = False,
    watched: bool = True,
) -> object:
    """Give {"outputs", "seen", "kept", "own", "made"}: what came out, and how arrays were used.

    "seen" is what the observer heard; "own" says which outputs are new arrays; "kept" has a row for
    each call of the observer: the results that still existed then, numbered as they were made;
    "made" is how many `evaluate` made.
    `broken` {op: how} replaces the meaning of an op; `plugged`: called by `mc.interpret`;
    `watched`: with an observer.
    """
    made: list[weakref.ref[Any]] = []  # the results in the order in which they were made
    seen: list[object] = []
    kept: list[list[int]] = []

    def watch(meaning: Meaning) -> Meaning:
        def watched(op: Any, *arrays: Any) -> Any:
            result = meaning(op, *arrays)
            made.append(weakref.ref(result[0] if isinstance(result, tuple) else result))
            return result

        return watched

    def observe(name: str, held: int) -> None:
        seen.append([name, held])
        kept.append([n for n, ref in enumerate(made) if ref() is not None])

    meanings: dict[str, Meaning] = {}
    for name in {node.op.name for node in graph.nodes}:
        meaning = op_class(name).reference
        if broken and name in broken:
            meaning = BROKEN[broken[name]](meaning)
        meanings[f"reference.{name}"] = watch(meaning)
    with mc.use(**meanings):
        if plugged:
            with mc.use(interpret=function):
                outputs = mc.interpret(graph, inputs)
        elif watched:
            outputs = function(graph, inputs, observe)
        else:
            outputs = function(graph, inputs)
    given = inputs.values() if isinstance(inputs, dict) else inputs
    own = owned(outputs, [*given, *(c.array for c in graph.constants)])
    return {"outputs": list(outputs), "seen": seen, "kept": kept, "own": own, "made": len(made)}


def owned(outputs: Sequence[Any], others: Sequence[Any]) -> list[bool]:
    """For each output: may the caller write into it, and nothing else changes?"""
    rows: list[bool] = []
    for n, array in enumerate(outputs):
        rest = [*others, *outputs[:n], *outputs[n + 1 :]]
        shared = any(np.shares_memory(array, other) for other in rest)
        rows.append(bool(array.flags.writeable) and not shared)
    return rows


GLUE["1.4"] = run_1_4


# ---- 1.5 -----------------------------------------------------------------------------------


# ---- 1.6 -----------------------------------------------------------------------------------


def run_1_6(function: Any, source: str, steps: list[dict[str, Any]]) -> object:
    """Define functions by `source`, then trace once a step; what each step gave.

    A step: `types`, and where wanted `do` (a statement that runs before), `fn` (which function,
    "fn" if left out) and `may_raise`. The source may write `TRACED.append(1)` in a function, which
    counts its runs.
    """
    traced, found = list[int](), list[dict[str, Any]]()
    cache: dict[Any, Any] = {}
    space: dict[str, Any] = {"mc": mc, "TRACED": traced, "__name__": "program"}
    exec(source, space)
    for step in steps:
        exec(step.get("do", ""), space)
        fn, runs = space[step.get("fn", "fn")], len(traced)
        result: dict[str, Any] = {}
        try:
            result["graph"] = function(fn, step["types"], cache)
        except Exception as error:
            if not step.get("may_raise"):
                raise
            result["raised"] = type(error).__name__
        entries = cache.get(fn, [])
        found.append(
            {
                **result,
                "runs": len(traced) - runs,
                "reasons": [entry.reason for entry in entries],
                "kept": any(entry.graph is result.get("graph") for entry in entries),
            }
        )
    return found


GLUE["1.6"] = run_1_6


# ---- 1.7 -----------------------------------------------------------------------------------


def run_1_7(function: Any, model: bytes) -> object:
    """The graph of an ONNX model (bytes), every Reshape imported by the student's function."""
    faults: list[Exception] = []

    def reshape(node: Any, *values: Any) -> Any:
        try:
            return function(node, *values, *[None] * (2 - len(values)))
        except mc.CompileError:
            raise
        except Exception as fault:
            faults.append(fault)
            raise

    try:
        with mc.use(**{"onnx.Reshape": reshape}):
            return mc.load_onnx(model)
    except mc.CompileError:
        if faults:  # the student's own error says more than the importer's report
            raise faults[0] from None
        raise


GLUE["1.7"] = run_1_7


# ---- 1.8 -----------------------------------------------------------------------------------

POINTS = {  # where each part runs
    "1.1": "type_rule.add",
    "1.2": "toposort",
    "1.3": "verify",
    "1.4": "interpret",
    "1.5": "parse",
    "1.6": "trace",
    "1.7": "onnx.Reshape",
}


def run_1_8(
    functions: dict[str, Any],
    own: list[str],
    model: bytes,
    image: Any,
    text: str,
    source: str,
    calls: list[dict[str, Any]],
    optimise: bool = False,
) -> object:
    """One run of the compiler's front half with the parts `own`, the shipped ones for the rest.

    Loads the model, parses the text, traces the function `fn` of the source once for each of
    `calls`, verifies all graphs, interprets the model on the image, and optimises it if asked to.
    "ran" says how often each point was called.
    """
    missing = [task for task in own if task not in functions]
    if missing:
        raise LookupError(f"there is no function for {', '.join(missing)}")
    space: dict[str, Any] = {"mc": mc, "__name__": "program"}
    exec(source, space)
    with mc.use(**{POINTS[task]: functions[task] for task in own}), counting() as ran:
        loaded = mc.load_onnx(model)
        parsed = mc.parse(text)
        traced = [mc.trace(space["fn"], **types) for types in calls]
        for graph in (loaded, parsed, *traced):
            mc.verify(graph)
        values = mc.interpret(loaded, [image])
        optimised = mc.Pipeline.default().run(loaded)[0] if optimise else None
    graphs = {"loaded": loaded, "parsed": parsed, "traced": traced, "optimised": optimised}
    return {**graphs, "values": values, "ran": dict(ran)}


GLUE["1.8"] = run_1_8
