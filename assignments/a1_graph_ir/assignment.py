# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] nbgrader={"grade": false, "grade_id": "text-start", "locked": true, "schema_version": 3, "solution": false, "task": false}
# # Assignment 1 · A graph IR of your own
#
# You write seven parts of the first level of a compiler, and then run them together. Each part has
# the signature of one extension point of minidlc, so it stands in for the shipped part inside the
# real compiler: `with mc.use(toposort=order_nodes): …`. In the last task all of them read, check,
# optimise and interpret a digit classifier.
#
# No part is a copy of the shipped one. Each is a variant, and the shipped code fails its tests. Read
# the rules of a task before the shipped code.
#
# How to work: write a function, run its cell, run the check below it. A check lists each public
# test. For the first failure it shows the input, what was expected and what you gave, and then one
# hint. It runs your code in a process of its own and stops it at a deadline. Hidden tests follow
# after you hand in; every rule that they ask for is stated here.
#
# Values (`Input`, `Constant`, `Node`) compare by identity and may be keys of dicts and members of sets.
# All errors are made alike: `VerifyError(message, code="MDLC0402", notes=["…", "…"])`.
#
# Helper functions of your own may stand in the same cell or in cells of their own. Give every
# helper a name of its own: task 1.8 runs all cells one after another, and of two functions `reads`
# the later one then serves both tasks. A cell that does not run, by a syntax error for example,
# stops all of 1.8.
#
# A task may use anything of minidlc but the parts that its text names as withheld: those are not
# there when your work is graded.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
import numpy as np

import grader
import minidlc as mc
from minidlc.expr.types import DTYPES, TensorType
from minidlc.graph import Constant, Input, Node, evaluate, infer, result_types
from minidlc.support.errors import CallError, TypeRuleError, VerifyError


def bytes_of(value):
    """Bytes of a value's elements, of all its results together; a symbol counts as a size of 1."""
    total = 0
    for t in result_types(value.type):
        total += t.with_shape(tuple(d for d in t.shape if isinstance(d, int))).nbytes
    return total


# %% [markdown] nbgrader={"grade": false, "grade_id": "text-1-1", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 1.1 · A type rule with broadcasting
#
# *10 points · about 45 minutes · lesson 02, 'The type of a result'*
#
# Every node gets its type the moment it is built, from the type rule of its op. The shipped rule of
# `add` wants equal element types, and it stops at the first axis that does not fit. Yours mixes
# element types, takes a symbol beside a number, and reports everything that is wrong at once.
#
# Write `add_type(op, *types)`, for the point `type_rule.add`. `op` is the op (`op.name` is its
# printed name), each of `types` is a `TensorType` with `.dtype`, `.shape` and `.rank`. Return a
# `TensorType`, or raise one `TypeRuleError`.
#
# **Number of inputs.** Other than two: `TypeRuleError` with code `MDLC0201`.
#
# **Element type.** A `DType` has `.name`, `.kind` ("float", "int", "uint", "bool") and `.bits`. The
# first row that fits decides; the order of the inputs does not matter.
#
# | inputs | result | example |
# |---|---|---|
# | bool and bool | none: a fault | |
# | bool and another | the other | bool, u8 → u8 |
# | equal types | that type | i32, i32 → i32 |
# | a float and an integer | the float, however narrow | i64, f16 → f16 |
# | f16 and bf16 | f32: neither holds the other's values | |
# | two of the same kind | the wider one | f16, f64 → f64 |
# | u64 and a signed type: 128 bits would be needed | none: a fault | u64, i64 |
# | signed of s bits and unsigned of u bits | signed of max(s, 2u) bits | u8, i8 → i16; u8, i32 → i32 |
#
# **Shape.** Shapes are aligned at the right. An axis that only one input has keeps its size. Where
# both have the axis, with sizes p and q:
#
# | p and q | result |
# |---|---|
# | equal: the same number, or the same symbol | p |
# | one of them is 1 | the other one; 1 and 0 give 0 |
# | a symbol and a number that is not 1 | the number: at run time the symbol is 1 or that number, else the call fails |
# | two different numbers, or two different symbols | none: a fault |
#
# A size is an `int`, or else it is symbolic. Compare sizes with `==`.
#
# **Faults.** Look at everything before you raise. One note for each fault: first
# `elements: A and B`, if there is no element type, then `axis -1: p and q` and so on, counted from
# the right and starting there. A and p belong to the first input. Pass them as
# `TypeRuleError(message, code=…, notes=[…])`. The code is `MDLC0202` if the element types are among
# the faults, else `MDLC0203`. The message begins with the op's name and a colon; the rest is yours.
#
# **Example.** `f32[5, 1, 4]` and `i32["N", 3]`, as add, have one fault: the error has code
# `MDLC0203` and the notes `("axis -1: 4 and 3",)`. With `i32["N", 4]` the result is
# `f32[5, "N", 4]`.
#
# *Withheld:* the type rule of elementwise ops, and `broadcast` and `elements` of
# `minidlc.ops.rules`.


# %% nbgrader={"grade": false, "grade_id": "task-1-1", "locked": false, "schema_version": 3, "solution": true, "task": false}
def promoted(a, b):
    """The element type of a + b for two DTypes, or None if there is none."""
    ### BEGIN SOLUTION
    if a.kind == b.kind == "bool":
        return None
    if "bool" in (a.kind, b.kind):
        return b if a.kind == "bool" else a
    if a == b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.kind == b.kind:
        if a.bits == b.bits:
            return mc.f32  # f16 and bf16 are the only two
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    return DTYPES.get(f"i{max(signed.bits, 2 * unsigned.bits)}")  # there is no i128
    ### END SOLUTION


def add_type(op, *types):
    """The TensorType of op(a, b), or one TypeRuleError with a note for each fault."""
    ### BEGIN SOLUTION
    if len(types) != 2:
        raise TypeRuleError(f"{op.name}: takes 2 inputs, got {len(types)}", code="MDLC0201")
    a, b = types
    element, shape, faults = promoted(a.dtype, b.dtype), [], []
    if element is None:
        faults.append(f"elements: {a.dtype} and {b.dtype}")
    for axis in range(-1, -1 - max(a.rank, b.rank), -1):
        p, q = (t.shape[axis] if t.rank >= -axis else 1 for t in types)
        if p == q or q == 1:
            shape.append(p)
        elif p == 1:
            shape.append(q)
        elif isinstance(p, int) != isinstance(q, int):
            shape.append(p if isinstance(p, int) else q)
        else:
            faults.append(f"axis {axis}: {p} and {q}")
    if faults:
        code = "MDLC0202" if element is None else "MDLC0203"
        message = f"{op.name}: {a} and {b} do not fit in {len(faults)} respects"
        raise TypeRuleError(message, code=code, notes=faults)
    return TensorType(element, tuple(reversed(shape)))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-1-1", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
grader.check_here("1.1")

# %% [markdown] nbgrader={"grade": false, "grade_id": "text-1-2", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 1.2 · A topological order that saves memory
#
# *15 points · about 75 minutes · lesson 02, 'In which order?'*
#
# Nodes have to run after what they read. That leaves many orders, and they differ in memory: a large
# array that is made early lies there until somebody reads it. The shipped order is a plain
# depth-first walk. Yours takes, at each step, the node that leaves the fewest bytes alive.
#
# Write `order_nodes(outputs)`, for the point `toposort`. `outputs` is a tuple of values (`Input`,
# `Constant` or `Node`); a `Node` has `.inputs`, a tuple of values, where an omitted one is `None`.
# Return a list of nodes.
#
# - **Which.** Every node that the outputs need, directly or through other nodes, once. Nothing else.
# - **Ready.** A node is ready when all nodes that it reads have been placed.
# - **Alive.** After a step, a placed node is alive if it is one of the outputs, or if a needed node
#   that is not placed yet reads it. Inputs and constants do not count: they are there all the time.
#   `bytes_of(node)` (in the first cell) gives the bytes of a node; a symbol counts as a size of 1.
# - **The step.** Of the ready nodes, place the one after which the nodes alive have the fewest bytes
#   together.
# - **Ties.** Of several such nodes take the one that a depth-first walk meets first. The walk goes
#   through the outputs from first to last; for each node it first goes through the node's inputs
#   from first to last, then notes the node, if it was not noted before. (The shipped order is this
#   walk.)
# - **Cycle.** If the needed nodes have a cycle, raise `VerifyError` with code `MDLC0402`. Its message
#   names a node of the cycle in single quotes, and no node that is not on a cycle.
# - **Depth.** A chain of 2,000 nodes must pass. Python allows about 1,000 calls inside each other.
#   **Width** stays small: in the tests fewer than 50 nodes are ready at a time, so you may look
#   through all of them at each step.
#
# **Example.** `a` has 50 elements of 4 bytes, `b` and `y` have 100, `s` has one:
# ```
# b = expand(x)    a = expand(x)    s = sum(a)    y = add(b, s)
# ```
# | step | depth-first walk | alive, bytes | yours | alive, bytes |
# |---|---|---|---|---|
# | 1 | b | 400 | a | 200 |
# | 2 | a | 600 | s | 4 |
# | 3 | s | 404 | b | 404 |
# | 4 | y | 400 | y | 400 |
#
# The most bytes alive after any step are the peak: 600 there, 404 here.
#
# *Withheld:* the shipped order (`_toposort` in `minidlc.graph.graph`).


# %% nbgrader={"grade": false, "grade_id": "task-1-2", "locked": false, "schema_version": 3, "solution": true, "task": false}
def order_nodes(outputs):
    """All nodes that `outputs` need, inputs first, fewest live bytes first; a list."""
    ### BEGIN SOLUTION
    walk, state, stack = [], {}, [(v, False) for v in reversed(outputs)]
    while stack:
        node, leaving = stack.pop()
        if leaving:
            state[node] = "done"
            walk.append(node)
        elif isinstance(node, Node) and state.get(node) == "open":
            raise VerifyError(f"cycle through {node.name!r}", code="MDLC0402")
        elif isinstance(node, Node) and node not in state:
            state[node] = "open"
            stack.append((node, True))
            stack += [(v, False) for v in reversed(node.inputs)]

    reads = {node: {v for v in node.inputs if isinstance(v, Node)} for node in walk}
    readers = {node: [] for node in walk}
    for node in walk:
        for value in reads[node]:
            readers[value].append(node)
    missing = {node: len(reads[node]) for node in walk}  # not placed yet, of what it reads
    holders = {node: len(readers[node]) + (node in outputs) for node in walk}

    def growth(node):
        freed = [value for value in reads[node] if holders[value] == 1]
        return bytes_of(node) - sum(map(bytes_of, freed))

    order, rank = [], {node: i for i, node in enumerate(walk)}
    ready = [node for node in walk if not missing[node]]
    while ready:
        best = min(ready, key=lambda node: (growth(node), rank[node]))
        ready.remove(best)
        order.append(best)
        for value in reads[best]:
            holders[value] -= 1
        for reader in readers[best]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-1-2", "locked": true, "points": 15, "schema_version": 3, "solution": false, "task": false}
grader.check_here("1.2")

# %% [markdown] nbgrader={"grade": false, "grade_id": "text-1-3", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 1.3 · A verifier that reports everything
#
# *15 points · about 60 minutes · lesson 03, 'A verifier'*
#
# A verifier runs after every pass and says which invariant a graph breaks. The shipped one stops at
# the first fault. Whoever debugs a pass wants the whole list, in the order of the graph. Yours
# collects it, and it knows one more invariant: a graph holds no node that nobody needs.
#
# Write `find_faults(graph)`, for the point `verify`. `graph` has `.name`, `.inputs`, `.nodes` and
# `.outputs`, all tuples; a node has `.name`, `.op`, `.inputs` and `.type`. Return `None` if there is
# no fault. Else raise one `VerifyError` with
#
# - a note for each fault, in the order below, which begins with `CODE NAME:`, as in
#   `MDLC0404 h: reads w, …`. NAME is the input, node or output at fault;
# - as its code the code of the first note;
# - a message that begins with the number of faults.
#
# | code | where | the fault | the note also says |
# |---|---|---|---|
# | MDLC0408 | an input | an earlier input has the same name | |
# | MDLC0405 | a node | it stands in `nodes` for the second time (or third …) | |
# | MDLC0404 | a node | it reads an input or a node that the graph does not list | the name of the value read |
# | MDLC0403 | a node | it reads a node that is listed, but does not stand before it | the name of the value read |
# | MDLC0406 | a node | its type is not the one that its type rule gives, or the rule refuses | the type it has; and, if the rule gives one, that type |
# | MDLC0490 | a node | no output needs it, directly or through other nodes | |
# | MDLC0407 | an output | it is an input or a node that the graph does not list | |
#
# - **Order.** Inputs from first to last, then nodes as they stand, then outputs. At one node: its
#   reads from first to last (0404 and 0403 mixed), then 0406, then 0490.
# - A node that stands again gets 0405 there, and nothing else there.
# - A value that one node reads twice is reported once.
# - A node that reads itself does not stand before itself: 0403. So a cycle always shows.
# - `infer(node.op, types)` runs the type rule on the types of what is read, `None` for an omitted
#   input. It raises `TypeRuleError` where the rule refuses. 0406 is checked at every node, with the
#   types that the values read state, right or wrong.
# - For 0490 follow the reads from the outputs, also through nodes that are not listed.
# - Constants need not be listed. Graphs inside of ops (branches, loops) are not looked into.
# - A chain of 2,000 nodes must pass.
#
# **Example.** Three faults, so the code of the error is `MDLC0403` and its message begins with 3.
# The type of `y` is right for the type that `h` states.
# ```
# g(x: f32[4]):
#     y: f32[8] = add(h, h)       MDLC0403 y: reads h, which does not stand before it
#     h: f32[8] = relu(x)         MDLC0406 h: is f32[8], its rule gives f32[4]
#     k: f32[4] = relu(x)         MDLC0490 k: no output needs it
#     return y
# ```
#
# *Withheld:* every check in `minidlc.graph.verify`.


# %% nbgrader={"grade": false, "grade_id": "task-1-3", "locked": false, "schema_version": 3, "solution": true, "task": false}
def find_faults(graph):
    """None, or one VerifyError that lists every fault of the graph in order."""
    ### BEGIN SOLUTION
    faults = []

    def report(code, value, text):
        faults.append(f"{code} {value.name}: {text}")

    needed, stack = set(), list(graph.outputs)
    while stack:
        value = stack.pop()
        if isinstance(value, Node) and value not in needed:
            needed.add(value)
            stack += value.inputs
    listed, names, before = {*graph.inputs, *graph.nodes}, set(), set(graph.inputs)
    for value in graph.inputs:
        if value.name in names:
            report("MDLC0408", value, "an earlier input has this name")
        names.add(value.name)
    for node in graph.nodes:
        if node in before:
            report("MDLC0405", node, "stands in the graph already")
            continue
        for value in dict.fromkeys(node.inputs):
            if isinstance(value, (Input, Node)) and value not in listed:
                report("MDLC0404", node, f"reads {value.name}, which the graph does not list")
            elif isinstance(value, Node) and value not in before:
                report("MDLC0403", node, f"reads {value.name}, which does not stand before it")
        try:
            wanted = infer(node.op, [None if v is None else v.type for v in node.inputs])
            if wanted != node.type:
                report("MDLC0406", node, f"is {node.type}, its rule gives {wanted}")
        except TypeRuleError as error:
            report("MDLC0406", node, f"is {node.type}, its rule refuses: {error.message}")
        if node not in needed:
            report("MDLC0490", node, "no output needs it")
        before.add(node)
    for value in graph.outputs:
        if not isinstance(value, Constant) and value not in listed:
            report("MDLC0407", value, "an output that the graph does not list")
    if faults:
        raise VerifyError(f"{len(faults)} faults in {graph.name}", code=faults[0][:8], notes=faults)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-1-3", "locked": true, "points": 15, "schema_version": 3, "solution": false, "task": false}
grader.check_here("1.3")

# %% [markdown] nbgrader={"grade": false, "grade_id": "text-1-4", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 1.4 · An interpreter that forgets
#
# *12 points · about 60 minutes · lesson 02, 'Running it'*
#
# The interpreter is the meaning of a graph: everything faster is compared with it. The shipped one
# runs every node. Yours runs only what the outputs need, forgets each array after its last use, says
# after each node how many bytes it holds, and hands out arrays that belong to the caller.
#
# Write `run_lean(graph, inputs, observe=None)`, for the point `interpret`. Return a list of arrays in
# the order of `graph.outputs`. Types have no symbols in this task.
#
# - **Inputs.** A list or tuple of arrays in the order of `graph.inputs`, or a dict by name. Raise
#   `CallError` with code `MDLC0911` for a wrong number of arrays, a name that is missing and a name
#   that does not exist, with `MDLC0912` for a wrong element type, with `MDLC0913` for a wrong shape.
#   The message names the input, except for a wrong number.
# - **What runs.** The nodes that the outputs need, directly or through other nodes, in the order of
#   `graph.nodes`, once each. Others do not run, not even if they would fail.
# - **How.** `evaluate(node.op, arrays)`, with `None` for an omitted input. It gives an array, or a
#   tuple of arrays where the node has several results. It runs a meaning that was replaced through
#   `mc.use`, so do not go around it. A constant's array is `constant.array`.
# - **Check.** `result_types(node.type)` lists the type of each result. A result that has another
#   element type or shape, or another number of results, raises `VerifyError` with code `MDLC0415`;
#   the message names the node, in single quotes. This comes before the observer hears of the node.
#   `t.dtype.numpy` is the NumPy type of an element type.
# - **Forget.** After a node has run, an array of a node is held if it is one of the outputs, or if a
#   needed node that has not run yet reads it. Let go of all others.
# - **Observe.** If `observe` is given, call `observe(name, held)` after each node that ran: its name,
#   and the bytes of all arrays that are held then. Inputs and constants do not count. `array.nbytes`
#   gives the bytes; several results of one node count together.
# - **Outputs.** New arrays: the caller may write into them, and no other array changes, be it an
#   input, a constant or another output. Inputs are not written to.
#
# **Example.** For f32 the observer hears:
# ```
# g(x: f32[100]):
#     a: f32[100] = relu(x)           a 400
#     b: f32[100] = neg(x)            not run: nobody needs it
#     c: f32[100] = add(a, x)         c 400          a is gone
#     s: f32[1] = sum(c)              s 404          c is an output: it stays
#     return c, s
# ```
#
# *Withheld:* the shipped interpreter and its check (`_interpret` and `run_op` in
# `minidlc.graph.interpret`).


# %% nbgrader={"grade": false, "grade_id": "task-1-4", "locked": false, "schema_version": 3, "solution": true, "task": false}
def run_lean(graph, inputs, observe=None):
    """The arrays of `graph.outputs`; `observe(name, held_bytes)` is called after each node."""
    ### BEGIN SOLUTION
    names = [i.name for i in graph.inputs]
    if isinstance(inputs, dict):
        for name in {*names} ^ {*inputs}:
            raise CallError(f"input {name!r} is missing or unknown", code="MDLC0911")
        inputs = [inputs[name] for name in names]
    if len(inputs) != len(names):
        raise CallError(f"takes {len(names)} inputs, got {len(inputs)}", code="MDLC0911")
    held = dict(zip(graph.inputs, inputs, strict=True))
    for i, array in held.items():
        if array.dtype != i.type.dtype.numpy:
            raise CallError(f"input {i.name!r} has elements {array.dtype}", code="MDLC0912")
        if array.shape != i.type.shape:
            raise CallError(f"input {i.name!r} has shape {array.shape}", code="MDLC0913")

    last = dict.fromkeys(graph.outputs, "end")  # value -> the node that reads it last
    for node in reversed(graph.nodes):
        for value in node.inputs if node in last else ():
            last.setdefault(value, node)

    def array_of(value):
        return value.array if isinstance(value, Constant) else held.get(value)

    total = 0
    for node in graph.nodes:
        if node not in last:
            continue
        result = evaluate(node.op, [array_of(v) for v in node.inputs])
        parts = result if isinstance(result, tuple) else (result,)
        wanted = [(t.dtype.numpy, t.shape) for t in result_types(node.type)]
        if [(part.dtype, part.shape) for part in parts] != wanted:
            raise VerifyError(f"the result of {node.name!r} is not {node.type}", code="MDLC0415")
        held[node], total = result, total + bytes_of(node)
        for value in {v for v in node.inputs if isinstance(v, Node) and last[v] is node}:
            del held[value]
            total -= bytes_of(value)
        if observe:
            observe(node.name, total)
    return [np.array(array_of(v)) for v in graph.outputs]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-1-4", "locked": true, "points": 12, "schema_version": 3, "solution": false, "task": false}
grader.check_here("1.4")

# %% [markdown] nbgrader={"grade": false, "grade_id": "text-1-5", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 1.5 · A parser for one construct
#
# *12 points · about 60 minutes · lesson 03, 'Plug yours in'*
#
# Graph text says one op per line. That is easy for a program and slow for a person:
# `relu(x @ w + b)` takes three lines. Extend the parser so that a line may hold a whole expression.
# Yours runs at the point `parse`; the shipped parser calls this text an error (MDLC0314).
#
# `parse_expressions(text, weights, file)` returns the graph of a text in which **the right side of
# `=`, and each item of `return`, may be an expression**:
#
# | piece | means | | piece | means |
# |---|---|---|---|---|
# | `a + b` | `add(a, b)` | | `a ** b` | `pow(a, b)` |
# | `a - b` | `sub(a, b)` | | `-a` | `neg(a)` |
# | `a * b` | `mul(a, b)` | | `( … )` | grouping |
# | `a / b` | `div(a, b)` | | `op(…)` | a call; each input is an expression, or `None` |
# | `a @ b` | `matmul(a, b)` | | `name` | a value |
#
# The rules:
#
# 1. **One node per operator or call, in Python's order of evaluation.** Precedence and
#    associativity are Python's. Operands come before the op that reads them, left before right. So
#    `f(a) - g(b) * c` gives the nodes `f`, `g`, `mul`, `sub`.
# 2. **Nothing else changes.** The same piece written twice makes two nodes. Lines that nobody reads
#    stay. Attributes (`axis=-1` in a call) are no expressions: they stay as they are.
# 3. **Types.** A type that stands in the text belongs to the whole expression, and is checked.
#    Inner nodes get the type that their type rule gives.
# 4. **Names.** Inner nodes need names that no line of the text uses, before or after. Which names
#    is up to you: tests compare graphs without names.
# 5. **Errors of your own.** A piece that is not in the table (`x[0]`, `x < y`, `x // y`, `2.0`,
#    `+x`, `*x`, `const(…)` inside an expression) is `ParseError` with code `MDLC0314`, at the file,
#    line and column where the piece begins. So are `2.0` and `const(…)` as an item of `return`. The
#    column counts characters from 1. Of nested pieces the outermost is reported; of several, the
#    first one met when evaluating. In `softmax(x, -1)` it is the `1`: a `-a` is in the table.
# 6. **All other errors are the shipped parser's**, with the same code and **the line of the text
#    that was given** (the column too, on lines without expressions). The line that the message quotes
#    may be one that you rewrote. Where a text has an error of rule 5 and another one, either may be
#    reported.
#
# A right side that is a bare name (`y = x`) applies no op: it stays the shipped parser's error.
#
# Everything else is left to the shipped parser: `const`, types, `a, b = topk(…)`, nested `def`s
# (their lines may hold expressions as well), several statements on a line, comments. An expression
# stands on one line. Names may have letters outside ASCII. Lines are Python's: only `\n`, `\r\n`
# and `\r` end one. A form feed or U+2028 in a comment does not, though `str.splitlines` takes it
# for an end.
#
# ```python
# text = """
# def layer(x: f32[2, 3], w: f32[3, 3], b: f32[3]):
#     h: f32[2, 3] = relu(x @ w + b)
#     return -h
# """
# print(parse_expressions(text, {}, "layer.dlc"))
# ```
# prints, up to the names of the inner nodes,
# ```
# def layer(x: f32[2, 3], w: f32[3, 3], b: f32[3]):
#     e1: f32[2, 3] = matmul(x, w)
#     e2: f32[2, 3] = add(e1, b)
#     h: f32[2, 3] = relu(e2)
#     e3: f32[2, 3] = neg(h)
#     return e3
# ```
# and `h: f32[2, 3] = relu(x @ w + b[0])` in its place gives `error[MDLC0314]` at `layer.dlc:3:33`.
#
# Worth knowing: `mc.parse(text, weights, file=file)` is the shipped parser, also while yours is
# plugged in. `Source(file, text)` gives the syntax tree (`.parse()`), places (`.loc(node)`) and
# errors at a place (`.error(node, message, code=…)`).
#
# *Withheld:* nothing.

# %% nbgrader={"grade": false, "grade_id": "task-1-5", "locked": false, "schema_version": 3, "solution": true, "task": false}
import ast
import itertools

from minidlc.support.source import Source


def parse_expressions(text, weights, file):
    """The graph of a text whose lines may hold expressions: `h: f32[4, 3] = relu(x @ w + b)`.

    Signature of the extension point `parse`: `weights` are large constants by name, `file` is the
    name that errors show. Raises ParseError MDLC0314 for a piece that is no expression.
    """
    ### BEGIN SOLUTION
    source = Source(file, text)
    tree = source.parse()
    statements = [
        n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.AnnAssign | ast.Return)
    ]
    free = free_names(tree)
    edits = []  # (line, first column, last column, new text), in bytes as ast counts
    for statement in sorted(statements, key=lambda s: (s.lineno, s.col_offset)):
        steps, whole = [], not isinstance(statement, ast.Return)
        for e in expressions(statement):
            new = flat(source, e, free, steps, whole)
            if new != ast.unparse(e):  # flat already: left as it stands
                edits.append((e.lineno, e.col_offset, e.end_col_offset, new))
        if steps:  # on the same line, so that errors keep theirs
            at = statement.col_offset
            edits.append((statement.lineno, at, at, "; ".join(steps) + "; "))
    lines = [line.encode() for line in source.lines]
    for number, first, last, new in sorted(edits, reverse=True):
        line = lines[number - 1]
        lines[number - 1] = line[:first] + new.encode() + line[last:]
    return mc.parse(b"\n".join(lines).decode(), weights, file=file)


OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul",
    ast.Pow: "pow",
}  # fmt: skip


def free_names(tree):
    """Names that stand nowhere in the text."""
    taken = {getattr(n, key, None) for n in ast.walk(tree) for key in ("id", "arg", "name")}
    return (f"e{n}" for n in itertools.count(1) if f"e{n}" not in taken)


def expressions(statement):
    """The right side, or the items of `return`; nothing for constants and declared types."""
    value = statement.value
    if isinstance(statement, ast.Return):
        return value.elts if isinstance(value, ast.Tuple) else [value] if value else []
    constant = isinstance(value, ast.Call) and getattr(value.func, "id", "") == "const"
    return [] if value is None or constant else [value]


def flat(source, e, free, steps, whole=False):
    """The name of the value of `e`, or the call that makes it if it is the `whole` right side."""
    match e:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=a, op=op, right=b) if type(op) in OPERATORS:
            inputs = [flat(source, part, free, steps) for part in (a, b)]
            call = f"{OPERATORS[type(op)]}({', '.join(inputs)})"
        case ast.UnaryOp(op=ast.USub(), operand=a):
            call = f"neg({flat(source, a, free, steps)})"
        case ast.Call(func=ast.Name(id=op), args=args, keywords=keywords) if op != "const":
            none = [isinstance(a, ast.Constant) and a.value is None for a in args]
            parts = ["None" if n else flat(source, a, free, steps) for a, n in zip(args, none)]
            call = f"{op}({', '.join(parts + [ast.unparse(k) for k in keywords])})"
        case _:
            text = f"not a piece of an expression: {ast.unparse(e)}"
            raise source.error(e, text, code="MDLC0314")
    if whole:
        return call
    name = next(free)
    steps.append(f"{name} = {call}")
    return name
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-1-5", "locked": true, "points": 12, "schema_version": 3, "solution": false, "task": false}
grader.check_here("1.5")

# %% [markdown] nbgrader={"grade": false, "grade_id": "text-1-6", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 1.6 · Tracing with guards
#
# *14 points · about 75 minutes · lesson 04, 'What a graph relies on'*
#
# Tracing runs a Python function once, on stand-ins for its tensors, and keeps the ops as a graph.
# That graph is right as long as everything that Python looked at stays as it was: element types,
# ranks, sizes, and numbers such as a global `SCALE`. What a graph relies on is called its
# **guards**. A compiler keeps graphs with their guards and traces again when none of them fits.
#
# `mc.jit` does this with the exact sizes: a batch of 4, of 5 and of 6 are three compilations.
# PyTorch's compiler opens an axis as soon as it sees a second size on it. Yours does that. It runs
# at the point `trace`.
#
# `trace_guarded(fn, types, cache)` returns the graph of `fn` for `types`, a dict from parameter to
# tensor type, or to a Python value (number, text, `None`) that `fn` gets as it is. `cache` is a
# dict from function to the list of its entries, in the order they were made; you read and fill it.
# An `Entry` is `(guards, sizes, graph, reason)`; what stands in `guards` and `sizes` is up to you,
# tests look at `graph` and `reason`.
#
# **Guards.** In this order:
#
# 1. for each parameter, in the order of `types`: of a tensor type its element type (called
#    `x dtype`) and its rank (`x rank`); of a Python value its `repr` (`axis value`);
# 2. for each name that `fn` reads from outside, sorted: its `repr` (`SCALE value`). Read are the
#    names in `fn.__code__.co_names` that are in `fn.__globals__`, and the closure's names
#    `fn.__code__.co_freevars`. Of their values only Python values count: `bool`, `int`, `float`,
#    `str`, `None`, and tuples. `co_names` holds the names of attributes too: a global `shape` is a
#    guard of every `fn` that says `x.shape`. That is one guard too many at times, never one too few.
#
# `repr` tells `1`, `1.0` and `True` apart, and `0.0` from `-0.0`.
#
# **Sizes.** All sizes of all tensor parameters in a row. An entry has a number or a symbol for
# each. A number fits itself. A symbol fits any size, but the same symbol stands for one size within
# a call.
#
# **Hit.** The first entry whose guards are equal and whose sizes fit: its graph is returned, and
# `fn` does not run.
#
# **Miss.** Let *old* be the last entry with equal guards.
#
# - There is no such entry: trace with the types as they are and append the entry.
# - There is one: its sizes do not fit. **Open** them. A place where old and new size are equal
#   stays. Every other place becomes a symbol: two places share one exactly if they have the same
#   old and the same new (so `4 → 5` twice is one symbol; an old symbol counts as old). Symbols are
#   named `s0`, `s1`, … in order of first use, anew each time. Trace with these; then the new entry
#   takes the place of *old*: *old* is removed, the new one appended.
# - Tracing with symbols may fail, because `fn` needs the number (`range(x.shape[0])` raises). Then,
#   whatever it raised, trace with the types as they are and append the entry; *old* stays.
#
# If tracing with the types as they are raises, the error passes and the cache keeps the entries it
# had.
#
# **Reason** of an entry. Which call a reason compares with is a choice: lesson 04 takes the call
# before, `mc.jit` the most similar graph. Here it is *old*, or else the last entry:
#
# - `first call` if the function had no entry;
# - else, if there is an *old*: each place that does not stay, `x axis 0: 4 → 5`, joined by `; ` (an
#   old symbol shows its name: `x axis 1: s0 → 6`);
# - else each guard that differs from the function's last entry, in the order above:
#   `x dtype: f32 → f64`, `x rank: 2 → 3`, `SCALE value: 2.0 → 3.0`, joined by `; `.
#
# ```python
# SCALE = 2.0
# def layer(x, y): return mc.relu(x + y) * SCALE
# ```
# | call | `fn` runs | entries | reason of the last one |
# |---|---|---|---|
# | x: f32[4, 3], y: f32[4, 3] | yes | 1 | `first call` |
# | x: f32[5, 3], y: f32[5, 3] | yes | 1, for f32["s0", 3] twice | `x axis 0: 4 → 5; y axis 0: 4 → 5` |
# | x: f32[9, 3], y: f32[9, 3] | no | 1 | |
# | the same, `SCALE = 3.0` | yes | 2, the new one for f32[9, 3] twice | `SCALE value: 2.0 → 3.0` |
#
# Tests keep to this: parameters are ordinary ones and stay tensor or Python value; `types` holds no
# containers, and its sizes are numbers; names outside exist and stay Python values, or none.
#
# An assumption stays, and it should be named: `x.shape[0] == 4` of an open axis is False, without
# an error. So `fn` must not compare its sizes. Functions that `fn` calls are not looked into
# either. PyTorch guards both.
#
# Worth knowing: `mc.trace(fn, **types)` is the shipped tracer, also while yours is plugged in.
# `mc.f32["s0", 8]` is a type with a symbol. The cell gives you `sizes_of` and `with_sizes`, the
# dull half of the work.
#
# *Withheld:* the shipped guards (`guards_of_arguments`, `guards_of_function`, `differences` and
# `explain` of `minidlc.frontend.guards`), and with them `mc.jit`.

# %% nbgrader={"grade": false, "grade_id": "task-1-6", "locked": false, "schema_version": 3, "solution": true, "task": false}
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One graph of a function, what it relies on, and why it was traced."""

    guards: Any
    sizes: Any
    graph: mc.Graph
    reason: str


CACHE = {}


def trace_guarded(fn, types, cache=CACHE):
    """The graph of `fn` for `types` (parameter -> tensor type or Python value), kept by guards.

    Signature of the extension point `trace`. `cache`: function -> list of Entry.
    """
    ### BEGIN SOLUTION
    kept = cache.get(fn, [])
    guards, sizes = guards_of(fn, types), sizes_of(types)
    alike = [e for e in kept if e.guards == guards]
    for entry in alike:
        if fits(entry.sizes, sizes.values()):
            return entry.graph
    graph, opened, reason = None, list(sizes.values()), "first call"
    if alike:
        old = alike[-1]
        opened = open_sizes(old.sizes, sizes.values())
        places = zip(sizes.items(), old.sizes)
        reason = "; ".join(f"{what}: {a} → {b}" for (what, b), a in places if a != b)
        try:
            graph = mc.trace(fn, **with_sizes(types, opened))
            kept = [e for e in kept if e is not old]
        except Exception:  # fn needs the numbers
            opened = list(sizes.values())
    elif kept:
        before = kept[-1].guards
        reason = "; ".join(
            f"{k}: {before.get(k)} → {v}" for k, v in guards.items() if before.get(k) != v
        )
    if graph is None:
        graph = mc.trace(fn, **types)
    cache[fn] = [*kept, Entry(guards, opened, graph, reason)]
    return graph


def guards_of(fn, types):
    """What a graph relies on, sizes apart: name of the guard -> text."""
    found = {}
    for name, given in types.items():
        if isinstance(given, mc.TensorType):
            found |= {f"{name} dtype": str(given.dtype), f"{name} rank": str(given.rank)}
        else:
            found[f"{name} value"] = repr(given)
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or ())
    outside = {n: fn.__globals__[n] for n in fn.__code__.co_names if n in fn.__globals__}
    outside |= {name: cell.cell_contents for name, cell in cells}
    plain = (bool, int, float, str, tuple, type(None))
    read = sorted(n for n, value in outside.items() if isinstance(value, plain))
    return found | {f"{name} value": repr(outside[name]) for name in read}


def fits(wanted, sizes):
    """True if numbers are equal, and every symbol stands for one size."""
    bound = {}
    pairs = zip(wanted, sizes)
    return all(bound.setdefault(w, n) == n if isinstance(w, str) else w == n for w, n in pairs)


def open_sizes(old, new):
    """Sizes that stay, and a symbol for each other pair of old and new."""
    symbols = {}
    return [
        a if a == b else symbols.setdefault((a, b), f"s{len(symbols)}") for a, b in zip(old, new)
    ]
    ### END SOLUTION


def sizes_of(types):
    """'x axis 0' -> size, for all tensors in a row."""
    tensors = [(name, t) for name, t in types.items() if isinstance(t, mc.TensorType)]
    return {f"{name} axis {n}": size for name, t in tensors for n, size in enumerate(t.shape)}


def with_sizes(types, sizes):
    """The same types with other sizes, taken in a row."""
    rest = iter(sizes)
    return {
        name: t.dtype[tuple(next(rest) for _ in t.shape)] if isinstance(t, mc.TensorType) else t
        for name, t in types.items()
    }


# %% nbgrader={"grade": true, "grade_id": "check-1-6", "locked": true, "points": 14, "schema_version": 3, "solution": false, "task": false}
grader.check_here("1.6")

# %% [markdown] nbgrader={"grade": false, "grade_id": "text-1-7", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 1.7 · An op whose attribute became an input
#
# *10 points · about 60 minutes · lesson 05, 'Opsets'*
#
# ONNX grows by opsets. `Reshape` had its target as the attribute `shape` until opset 4; since opset
# 5 it is a second input, so that a model can compute it. Exporters mix both up, and files in the
# wild hold either form under any opset number. The shipped importer refuses what the number does
# not allow. It also gives up on `[0, -1, 3]` when the size that is copied is open. Yours does
# better, at the point `onnx.Reshape`.
#
# `import_reshape(node, x, shape)` returns the value of one ONNX node `Reshape`. `x` is the tensor;
# `shape` is the second input, a value, or `None` if the node has none.
#
# **The target**, a list of integers:
#
# 1. It is the attribute `shape`, or the input, whichever is there, at any opset. (Below opset 7 the
#    importer turns an attribute into an input before you see it.)
# 2. Both there: they must be equal, or the node is refused: `MDLC0115`, with the message
#    `attribute shape (2, 3) and input shape (3, 2) differ`. None there: `MDLC0119`, as
#    `node.missing("shape")` says it.
# 3. The input counts if it depends on constants only, however many ops compute it. You evaluate it
#    while importing. If it depends on an input of the graph it is refused: `MDLC0116`, message
#    `input 'shape' is computed at run time`.
#
# **The sizes.** With the attribute `allowzero` set (it is 0 if left out) a 0 is the size 0. Without
# it, a 0 **copies** the size that `x` has at that place; if `x` has no such place: `MDLC0115`.
# With `allowzero`, a 0 and a -1 together are `MDLC0115`. Two -1 are `MDLC0115`.
#
# A -1 takes what is left. **Copied sizes cancel**: multiply the sizes of `x` that were not copied,
# divide by the sizes in the target that are numbers of its own (not copied, not -1). If that does
# not come out even, the node is refused (`MDLC0115`; the type rule of `reshape` does it for you).
# **Without a -1** copied sizes cancel as well: if a size is copied, the sizes of `x` that were not
# copied must be numbers, and multiply to as much as the target's own numbers. Else `MDLC0115`. The
# type rule cannot see this one: for `f32["N", 6]` and `[0, 2]` it takes `(-1, 2)`, and the result has
# 3N rows instead of N.
#
# **The node.** Return `reshape(x, shape=…)` in which every size that can be known stands as a
# number. A size is not known if it is the copy of an open size (a symbol such as `"N"`), or a -1 to
# which an open size of `x` was left. One that is not known is written `-1`. Two: `MDLC0116`,
# message `Reshape leaves two sizes open: (0, -1)`, with the target. Everything else (elements that
# do not add up, negative sizes) is left to the type rule of `reshape`.
#
# | x | target | the node's `shape` | why |
# |---|---|---|---|
# | `f32[2, 6, 4]` | `[0, -1, 3]` | `(2, 8, 3)` | 6 · 4 / 3 = 8 |
# | `f32["N", 6, 4]` | `[0, -1, 3]` | `(-1, 8, 3)` | N is copied and cancels; N is the only size not known |
# | `f32["N", 6, 4]` | `[-1, 24]` | `(-1, 24)` | N is left for the -1 |
# | `f32[0, 3]` | `[0, -1]` | `(0, 3)` | the copied 0 cancels |
# | `f32["N", 6]` | `[0, 2]` | refused | N cancels; 6 is not 2 |
# | `f32["N", "M"]` | `[0, -1]` | refused | two are not known |
#
# Worth knowing: `node.has("shape")` and `node.attr_ints("shape")`, `node.attr_int("allowzero", 0)`
# (an attribute that nobody asks for is an error of the importer), `node.wrong(message)`,
# `node.unsupported(message)` and `node.missing(name)` make the errors MDLC0115, 0116 and 0119 to be
# raised. `x.type.shape` is a tuple of integers and symbols. `apply("reshape", x, shape=…)` builds
# the node. A value that depends on constants only is a graph without inputs, and you know who runs
# graphs.
#
# *Withheld:* the shipped importer of `Reshape`; `constant_value`, and `constant`, `constant_int`
# and `constant_ints` of an `OnnxNode`.

# %% nbgrader={"grade": false, "grade_id": "task-1-7", "locked": false, "schema_version": 3, "solution": true, "task": false}
import math

from minidlc.graph.graph import Graph, apply


def import_reshape(node, x, shape=None):
    """The value of the ONNX node Reshape(x, shape), its target an attribute or an input.

    Signature of the extension point `onnx.Reshape`. Raises OnnxImportError: MDLC0115 for a target
    that makes no sense, 0116 for one that is not known, 0119 for none.
    """
    ### BEGIN SOLUTION
    target = target_of(node, shape)
    sizes, copied = list(target), set()
    if target.count(-1) > 1:
        raise node.wrong(f"shape {target} has two -1")
    if node.attr_int("allowzero", 0):
        if 0 in target and -1 in target:
            raise node.wrong(f"shape {target} has 0 and -1 with allowzero")
    else:
        copied = {place for place, size in enumerate(target) if size == 0}
    for place in copied:
        if place >= len(x.type.shape):
            raise node.wrong(f"shape {target} copies size {place} of {x.type}")
        sizes[place] = x.type.shape[place]
    left = [size for place, size in enumerate(x.type.shape) if place not in copied]
    own = math.prod(n for p, n in enumerate(target) if p not in copied and n != -1)
    known = all(isinstance(size, int) for size in left)
    if -1 in target and known:
        sizes[target.index(-1)] = math.prod(left) // own  # a remainder the type rule refuses
    if -1 not in target and copied and not (known and math.prod(left) == own):
        raise node.wrong(f"shape {target} does not take what is left of {x.type}")
    numbers = tuple(size if isinstance(size, int) else -1 for size in sizes)
    if numbers.count(-1) > 1:
        raise node.unsupported(f"Reshape leaves two sizes open: {target}")
    return apply("reshape", x, shape=numbers)


def target_of(node, shape):
    """The target as integers, from the attribute or the input."""
    attribute = node.attr_ints("shape") if node.has("shape") else None
    given = None if shape is None else known_ints(node, shape)
    if attribute is None and given is None:
        raise node.missing("shape")
    if None not in (attribute, given) and attribute != given:
        raise node.wrong(f"attribute shape {attribute} and input shape {given} differ")
    return given if attribute is None else attribute


def known_ints(node, value):
    """The elements of a value that depends on constants only."""
    graph = Graph.of("shape", [], [value])
    try:
        mc.verify(graph)  # refuses what reads an input: the graph has none
    except mc.CompileError:
        raise node.unsupported("input 'shape' is computed at run time") from None
    [array] = mc.interpret(graph, [])
    return tuple(array.tolist())
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check-1-7", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
grader.check_here("1.7")

# %% [markdown] nbgrader={"grade": false, "grade_id": "text-1-8", "locked": true, "schema_version": 3, "solution": false, "task": false}
# ## 1.8 · All parts together
#
# *12 points · about 30 minutes · lesson 02, 'Plug yours in'*
#
# Nothing to write here. Your seven parts run together, in one run of the compiler:
#
# 1. `mc.load_onnx` reads the digit classifier that comes with minidlc (12 ONNX nodes): your
#    importer takes its two `Reshape`, your type rule types its additions, your order sorts the
#    graph.
# 2. `mc.parse` reads a text with your parser, `mc.trace` traces a function at several sizes with
#    your tracer.
# 3. `mc.verify` checks all graphs with your verifier, and `mc.Pipeline.default()` optimises the
#    classifier: your order and your verifier run in every pass.
# 4. `mc.interpret` runs the classifier on an image with your interpreter. The largest of ten
#    numbers is the digit.
#
# The graphs must be those that the rules of 1.1 to 1.7 give, and every part must have run; the
# report says how often. The same run is made with your parts up to 1.1, up to 1.2 and so on, and
# the shipped parts for the rest: the first of these runs that fails shows which part to look at.
#
# The lines below are the whole trick. Try them with `mc.compile(…)` as well: your parts take
# the classifier to machine code.
# ```python
# from pathlib import Path
# parts = {
#     "type_rule.add": add_type, "toposort": order_nodes, "verify": find_faults,
#     "interpret": run_lean, "parse": parse_expressions, "trace": trace_guarded,
#     "onnx.Reshape": import_reshape,
# }
# model = Path(mc.__file__).parent / "models" / "mnist_cntk.onnx"
# with mc.use(**parts):
#     graph = mc.load_onnx(model)
#     [scores] = mc.interpret(graph, [np.zeros((1, 1, 28, 28), np.float32)])
# ```

# %% nbgrader={"grade": true, "grade_id": "check-1-8", "locked": true, "points": 12, "schema_version": 3, "solution": false, "task": false}
grader.check_here("1.8")
