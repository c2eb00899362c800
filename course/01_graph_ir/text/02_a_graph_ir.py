# %% [markdown]
# # 02 · A graph IR from nothing
#
# **A value is read twice. Is it computed once or twice?**
#
# Look at `h * sigmoid(h)` with `h = relu(x @ w)`. On paper nobody asks. A compiler must answer: if
# it computes `h` twice, it does a matrix product too many. If ten such steps follow each other, it
# does a thousand.
#
# At the end of this lesson stand four numbers for the same program: what its formula computes, what
# its graph computes, what the loops of minidlc compute, and what its code for the machine computes.
# They are not the same, and each level has a reason.
#
# *Time: 50 minutes. You need: Python with dataclasses, NumPy and its broadcasting. Lesson 01 helps
# with the words, but nothing of its code is used here.*

# %%
import itertools
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

import minidlc as mc
from minidlc import lesson
from minidlc.graph import Fused, apply, difference
from minidlc.graph.graph import Node as GraphNode
from minidlc.graph.graph import _toposort
from minidlc.graph.interpret import _interpret

# %% [markdown]
# ## Build it from nothing
#
# ### Values, nodes, types
#
# A program of tensors (arrays with a shape and one kind of element) needs few words.
#
# - A **value** is one tensor that the program speaks of. It has a name and a type.
# - Its **type** is what is known before anything runs: the kind of its elements and its shape.
# - A **placeholder** is a value that the caller brings.
# - A **node** is a value that an **op** computes from other values, its inputs.
#
# That is the whole IR, the *intermediate representation*: a program as data, so that another
# program, the compiler, can read and change it.


# %%
@dataclass(frozen=True)
class Type:
    element: str
    shape: tuple[int, ...]

    def __str__(self):
        return f"{self.element}[{', '.join(map(str, self.shape)) or '()'}]"


@dataclass(frozen=True, eq=False)  # eq=False: a value is equal to itself, and to nothing else
class Value:
    name: str
    type: Type


@dataclass(frozen=True, eq=False)
class Node(Value):
    op: str
    inputs: tuple[Value, ...]


x = Value("x", Type("f32", (4, 8)))  # a placeholder: a value without inputs
print(x.name, "is", x.type)

# %% [markdown]
# Two decisions stand in these lines. `frozen=True`: nobody changes a node after it was made, so a
# pass that keeps a node need not fear for it. `eq=False`: two values are the same only if they are
# the same object. Their names do not count. Keep this in mind for the part where we break things.
#
# ### The type of a result
#
# Each op has a **type rule**: from the types of the inputs to the type of the result. The rule for
# `add` and `mul` is *broadcasting*: align the shapes at the right; where one has a 1, or nothing,
# it is repeated.


# %%
def broadcast(a, b):
    rank = max(len(a.shape), len(b.shape))
    left = (1,) * (rank - len(a.shape)) + a.shape
    right = (1,) * (rank - len(b.shape)) + b.shape
    pairs = list(zip(left, right, strict=True))
    if a.element != b.element or any(m != n and 1 not in (m, n) for m, n in pairs):
        raise TypeError(f"{a} and {b} do not broadcast")
    return Type(a.element, tuple(n if m == 1 else m for m, n in pairs))


def matmul_type(a, b):
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise TypeError(f"{a} times {b}: the inner sizes must be equal")
    return Type(a.element, (a.shape[0], b.shape[1]))


print(broadcast(Type("f32", (8, 1, 28)), Type("f32", (5, 1))))

# %% [markdown]
# Is the rule right? NumPy has the same one, so we ask NumPy: all pairs of shapes up to rank 3 with
# sizes 0, 1, 2 and 3. Size 0 is in the list because that is where home-made rules go wrong.

# %%
shapes = [s for rank in range(4) for s in itertools.product((0, 1, 2, 3), repeat=rank)]
agree, refused = 0, 0
for left, right in itertools.product(shapes, repeat=2):
    try:
        wanted = np.broadcast_shapes(left, right)
    except ValueError:
        wanted = None
    try:
        found = broadcast(Type("f32", left), Type("f32", right)).shape
    except TypeError:
        found, refused = None, refused + 1
    agree += found == wanted
print(f"{agree:,} of {len(shapes) ** 2:,} pairs as in NumPy, {refused:,} of them refused")

# %% [markdown]
# ### Building a graph
#
# An op needs a type rule and a meaning. Two dictionaries hold them. `op(…)` makes a node, and the
# node has its type at once: a wrong shape is found while the program is built, not when it runs.

# %%
RULES = {
    "add": broadcast,
    "mul": broadcast,
    "matmul": matmul_type,
    "relu": lambda a: a,
    "sigmoid": lambda a: a,
}
MEANING = {
    "add": np.add,
    "mul": np.multiply,
    "matmul": np.matmul,
    "relu": lambda a: np.maximum(a, 0),
    "sigmoid": lambda a: (1 / (1 + np.exp(-a))).astype(a.dtype),
}


def op(name, *inputs):
    return Node(name, RULES[name](*(v.type for v in inputs)), name, inputs)


w = Value("w", Type("f32", (8, 3)))
h = op("relu", op("matmul", x, w))
y = op("mul", h, op("sigmoid", h))
print("y is", y.type)

# %%
try:
    op("matmul", w, x)
except TypeError as error:
    print(error)

# %% [markdown]
# The nodes form a **directed acyclic graph**, a DAG: edges go from a value to its readers, and no
# edge leads back, because a node can only read what was there before it. In ours, `h` is one node,
# and two edges leave it.
#
# ### In which order?
#
# A machine does one thing after another. A **topological order** is a list of the nodes in which
# every node stands after its inputs. The walk: before a node enters the list, its inputs do.


# %%
def order(outputs):
    done = {}  # a dict keeps the order in which keys came

    def visit(value):
        if value in done or not hasattr(value, "inputs"):
            return
        for v in value.inputs:
            visit(v)
        done[value] = True

    for value in outputs:
        visit(value)
    return list(done)


print([node.name for node in order([y])])

# %% [markdown]
# ### Running it
#
# An **interpreter** gives a program its meaning: it walks through the nodes in order and keeps what
# each one computed. `meaning` says what one node does, so that we can put in something else later.


# %%
def run(outputs, given, meaning):
    values = dict(given)  # value -> array
    for node in order(outputs):
        values[node] = meaning(node, *(values[v] for v in node.inputs))
    return [values[v] for v in outputs]


def numpy_meaning(node, *arrays):
    return MEANING[node.op](*arrays)


rng = np.random.default_rng(0)
a, b = rng.standard_normal((4, 8), np.float32), rng.standard_normal((8, 3), np.float32)
[ours] = run([y], {x: a, w: b}, numpy_meaning)
plain = np.maximum(a @ b, 0)
print("as NumPy says:", np.allclose(ours, plain / (1 + np.exp(-plain)), atol=1e-6))

# %% [markdown]
# That is an IR that runs, in about 75 lines.
#
# ### The ambiguous DAG
#
# Now write the graph down. The first idea is a formula: put the text of each input where it is
# read.


# %%
def as_formula(value):
    if not isinstance(value, Node):
        return value.name
    return f"{value.op}({', '.join(map(as_formula, value.inputs))})"


print(as_formula(y))

# %% [markdown]
# `matmul` stands there twice. The graph has one such node. The formula has lost something: that
# both readers read *the same* value. Somebody who gets the formula cannot know which of two graphs
# was meant, and somebody who gets the graph cannot know whether "read twice" was meant as "compute
# twice". This is the **ambiguous DAG**.
#
# The way out is to give every value a name, once, in order, and to read names only.


# %%
def as_lets(outputs):
    names, lines = {}, []
    for n, node in enumerate(order(outputs)):
        reads = [names.get(v, v.name) for v in node.inputs]
        names[node] = f"v{n}"
        lines.append(f"let v{n}: {node.type} = {node.op}({', '.join(reads)}) in")
    return "\n".join([*lines, ", ".join(names.get(v, v.name) for v in outputs)])


print(as_lets([y]))

# %% [markdown]
# This form has several names, one for each community that found it.
#
# - **Let-binding**: `let v = e in body` computes `e` once, calls it `v`, and goes on. Functional
#   languages write programs so; it is the *functional form*: no statement, no memory, values only.
# - **SSA**, static single assignment: every name is assigned in exactly one place of the text.
#   Compilers of C and Fortran came there from the other side, by renaming `x = x + 1` to
#   `x2 = x1 + 1`. In a program without branches both are the same thing; with branches still
#   nearly (A. Appel, *SSA is functional programming*, 1998).
# - The interpreter's `values` is the same again: one entry for each node.
#
# Do not believe it: run both, and count. The formula is a Python expression, so Python can run it.


# %%
def count_calls(run_it):
    calls = Counter()

    def counting(name, *arrays):
        calls[name] += 1
        return MEANING[name](*arrays)

    run_it(counting)
    return dict(calls)


def by_formula(counting):
    ops = {name: lambda *a, name=name: counting(name, *a) for name in MEANING}
    eval(as_formula(y), ops | {"x": a, "w": b})


def by_graph(counting):
    run([y], {x: a, w: b}, lambda node, *arrays: counting(node.op, *arrays))


print("formula:", count_calls(by_formula))
print("graph:  ", count_calls(by_graph))

# %% [markdown]
# One `matmul` against two. And it grows: here are chains of `x * sigmoid(x)`, an activation that is
# called SiLU or swish, one after another.


# %%
def chain(n):
    value = Value("x", Type("f32", (4, 64)))
    for _ in range(n):
        value = op("mul", value, op("sigmoid", value))
    return value


growth = {n: (as_formula(chain(n)).count("sigmoid"), len(order([chain(n)])) // 2) for n in range(9)}
lesson.table(
    [[n, *growth[n]] for n in range(1, 9)],
    header=["steps", "sigmoids in the formula", "sigmoids in the graph"],
)

# %% [markdown]
# 2ⁿ − 1 against n. Eight steps: 255 against 8.
#
# ### When are two programs the same?
#
# With names that mean nothing we need another way to compare. **Structural equality**: number the
# placeholders and nodes in order, and write every node as op, type and the numbers it reads. Equal
# lines, equal programs.


# %%
def structure(placeholders, outputs):
    number = {v: f"in{i}" for i, v in enumerate(placeholders)}
    lines = [f"{number[v]}: {v.type}" for v in placeholders]
    for i, node in enumerate(order(outputs)):
        number[node] = f"%{i}"
        lines.append(f"%{i}: {node.type} = {node.op}({', '.join(number[v] for v in node.inputs)})")
    return [*lines, f"return {', '.join(number[v] for v in outputs)}"]


u, v = Value("u", x.type), Value("v", x.type)
same_but_names = structure([u], [op("mul", u, u)]) == structure([v], [op("mul", v, v)])
swapped = structure([u, v], [op("add", u, v)]) == structure([u, v], [op("add", v, u)])
shared = op("relu", u)
twice = [op("relu", u), op("relu", u)]
copied = structure([u], [op("add", shared, shared)]) == structure([u], [op("add", *twice)])
print(f"other names: {same_but_names}, u + v and v + u: {swapped}, shared and copied: {copied}")

# %% [markdown]
# Other names: the same program. `u + v` and `v + u`: equal numbers, but two programs, since this
# equality knows no algebra. The shared and the copied `relu` also differ: that is the ambiguous DAG
# once more, and now the difference is visible to a test.

# %% [markdown]
# ## See it
#
# The same network as a graph of minidlc. `trace` calls the Python function once on stand-ins and
# writes down what happens to them; lesson 04 is about that.


# %%
def network(x, w):
    h = mc.relu(x @ w)
    return h * mc.sigmoid(h)


real = mc.trace(network, mc.f32[4, 8], mc.f32[8, 3])
print(real)

# %% [markdown]
# The text is the let form, in Python's syntax. As a picture:

# %%
mc.viz.graph(real, title="h (here relu_1) has two readers: 4 nodes, 1 matmul")

# %% [markdown]
# ### One op, four notations
#
# A graph says *matmul* and leaves open what that is. One level below, the op itself has to be
# written. Literature has three ways to do it, and you will meet all of them. First the **function**:
# loops that say how.


# %%
def matmul_function(a, b):
    c = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c


print(np.allclose(matmul_function(a, b), a @ b, atol=1e-5))

# %% [markdown]
# Then the **lambda**: what *one* element of the result is. Nothing is said about who runs first.


# %%
def compute(shape, element):
    values = [element(*index) for index in np.ndindex(*shape)]
    return np.array(values).reshape(shape)


c = compute((4, 3), lambda i, j: sum(a[i, k] * b[k, j] for k in range(8)))
print(np.allclose(c, a @ b, atol=1e-5))

# %% [markdown]
# And **Einstein notation**: only the letters. A letter that stands on the left but not on the right
# is summed over. A few lines turn the letters into the lambda.


# %%
def einstein(text, *arrays):
    left, out = text.split("->")
    reads = list(zip(left.split(","), arrays, strict=True))
    size = {s: n for letters, t in reads for s, n in zip(letters, t.shape, strict=True)}
    summed = [s for s in size if s not in out]

    def product(place):
        return np.prod([t[tuple(place[s] for s in letters)] for letters, t in reads])

    def element(*index):
        outer = dict(zip(out, index, strict=True))
        inner = itertools.product(*(range(size[s]) for s in summed))
        return sum(product(outer | dict(zip(summed, more, strict=True))) for more in inner)

    return compute([size[s] for s in out], element)


print(np.allclose(einstein("ik,kj->ij", a, b), a @ b, atol=1e-5))
print(np.allclose(einstein("ij->ji", a), a.T), np.allclose(einstein("ij->", a), a.sum(), atol=1e-4))

# %% [markdown]
# minidlc has all of them: the graph op (`matmul`, or `einsum` for any letters), the lambda, called
# a *tensor expression*, and the loops made from it. Here is our network in the second form:

# %%
print(mc.compile(real, threads=1).kernels[0].te)

# %% [markdown]
# ## Then the real one
#
# `minidlc/graph/graph.py` has our classes. Two are new. A `Constant` is a tensor known while
# compiling, such as a weight. An `Op` is an object with attributes, type rule and meaning, in place
# of a string and two dictionaries.

# %%
lesson.source(mc.Input, GraphNode)

# %% [markdown]
# `loc` says where a node comes from, a line of Python or a node of an ONNX file, so that an error
# message can name it. `eq=False` is there too.
#
# The order of the nodes, and the interpreter:

# %%
lesson.source(_toposort, _interpret)

# %% [markdown]
# What they add to ours:
#
# | here | why |
# |---|---|
# | a stack in place of recursion | a graph may be deeper than Python's call stack; see *Break it* |
# | a node that is still open | a cycle is an error with a name, not an endless walk |
# | `_checked_input` | arrays of a wrong type or shape are refused with a message |
# | `remaining` | the memory of a value is given back after its last reader |
# | `sizes` | a shape may be a symbol, such as the batch size, known at the call only |
#
# And structural equality: `==` of graphs compares a digest of such lines as ours, `difference`
# shows the first line that is not equal.

# %%
f = mc.trace(lambda u, v: u + v, mc.f32[4], mc.f32[4])
g = mc.trace(lambda left, right: left + right, mc.f32[4], mc.f32[4])
k = mc.trace(lambda u, v: v + u, mc.f32[4], mc.f32[4])
print(f == g, f == k)
print(difference(f, k))

# %% [markdown]
# ## Plug yours in
#
# `mc.use` replaces a part of the compiler inside a `with` block. Our `order` fits as it is: it asks
# only for `inputs`. Our `broadcast` speaks of our `Type`, so two lines translate. The model is a
# real one, a trained digit classifier with 12 ops, read from its ONNX file.
#
# What the compiler makes of it depends on the processor. So that you see what we saw, we fix the two
# facts that matter, also where yours has others: vectors of 256 bits (eight floats), 16 registers.


# %%
def my_add_type(op, a, b):
    found = broadcast(Type(str(a.dtype), a.shape), Type(str(b.dtype), b.shape))
    return mc.TensorType(a.dtype, found.shape)


machine = replace(mc.target.host(), vector_bits=256, registers=16)
with mc.use(**{"toposort": order, "type_rule.add": my_add_type}):
    exe = mc.compile(lesson.model("lenet"), target=machine)
print(exe.report().overrides)

# %% [markdown]
# The report counts the calls: our order was used when the model was read, our rule each time that
# an `add` was built or checked. Now the interpreter. Weights are values that are known already. An
# input that an op may leave away is `None`.

# %%
seen = Counter()


def my_interpret(graph, inputs):
    given = dict(zip(graph.inputs, inputs, strict=True)) | {None: None}
    given |= {c: c.array for c in graph.constants}

    def meaning(node, *arrays):
        seen[node.op.name] += 1
        return node.op.reference(*arrays)

    return run(graph.outputs, given, meaning)


model = mc.load_onnx(lesson.model("lenet"))
images, labels = lesson.digits()
with mc.use(interpret=my_interpret):
    scores = [mc.interpret(model, [image])[0] for image in images]
compiled = [exe(image)[0] for image in images]
print(dict(seen))
print("digits right:", sum(s.argmax() == n for s, n in zip(scores, labels, strict=True)), "of 40")
print("as compiled: ", np.allclose(scores, compiled, rtol=1e-4, atol=1e-2))

# %% [markdown]
# 480 nodes, 40 digits, and the machine code agrees with a loop of four lines. That is what an
# interpreter is for in a compiler: slow, plain, and the one whom everybody else is compared with.
#
# It also runs the graph *after* optimisation, in which seven nodes are left. Three of them,
# `fused`, hold a graph of their own: several ops that run as one **kernel** (one function of machine
# code, 核函数). `unpack` brings channels that were stored in groups of eight back into plain order;
# chapter 2 says why they were. `reshape` moves no byte and needs no kernel.

# %%
seen.clear()
with mc.use(interpret=my_interpret):
    [after] = mc.interpret(exe.graph, [images[0]])
print(dict(seen), "equal:", np.allclose(after, compiled[0], rtol=1e-4, atol=1e-2))
mc.viz.graph(exe.graph, title="the same model, optimised: 12 ops became 6 kernels")

# %% [markdown]
# ## The answer
#
# *A value is read twice. Is it computed once or twice?* The chains again, now through the whole
# compiler. We count sigmoids in the loops that minidlc writes, and divisions in its LLVM code (a
# sigmoid is a division).


# %%
def real_chain(n):
    def steps(x):
        for _ in range(n):
            x = x * mc.sigmoid(x)
        return x

    return mc.trace(steps, mc.f32[4, 64])


rows = []
for n in range(1, 9):
    [kernel] = mc.compile(real_chain(n), threads=1, target=machine).kernels
    rows.append([n, *growth[n], str(kernel.loops).count("sigmoid("), kernel.llvm.count(" fdiv ")])
lesson.table(rows, header=["steps", "formula", "graph", "loops", "LLVM code"])

# %% [markdown]
# - The **formula** repeats everything: 255.
# - The **graph** has each value once: 8. So a pass on graphs never repeats work by accident.
# - The **loops** repeat on purpose. Up to four steps they look like the formula: 15. Writing a value to
#   memory and reading it back may cost more than computing it again. At five steps the expression
#   would pass 64 nodes: the compiler stores the value after step four, and 31 becomes 15 + 1.
# - The **LLVM code**, one step before the machine's, is at the graph's number again. The generator
#   keeps a table of the expressions it has written, by identity, and writes no object twice: our
#   `values` once more.
#
# So the answer is: the graph says *once*; what runs is a decision, and it can only be made where
# the sharing is still visible. That is why IRs use let-bindings.

# %% [markdown]
# ## Break it
#
# ### Names
#
# An interpreter that keeps its values by *name* is one line shorter. Many first interpreters are
# written so. On the digit classifier it is right.


# %%
def by_name(graph, inputs):
    values = {v.name: array for v, array in zip(graph.inputs, inputs, strict=True)}
    values |= {c.name: c.array for c in graph.constants}
    for node in graph.nodes:
        values[node.name] = node.op.reference(*(values[v.name] for v in node.inputs))
    return [values[v.name] for v in graph.outputs]


print("digits:", np.array_equal(by_name(model, [images[0]])[0], scores[0]))
p, q = mc.Input("p", mc.f32[2]), mc.Input("q", mc.f32[2])
product, square = apply("mul", p, q), apply("mul", q, q)
mixed = mc.Graph.of("mixed", [p, q], [product + square])
two, three = np.float32([2, 2]), np.float32([3, 3])
print("p*q + q*q, compiled:", mc.compile(mixed)(two, three)[0])
with mc.use(interpret=by_name):
    print("p*q + q*q, by name: ", mc.interpret(mixed, [two, three])[0])

# %% [markdown]
# 18 in place of 15, and nobody complains: type and shape are right. Both products are called `mul`,
# and the second one took the place of the first. The assumption was *names are unique*. The IR
# never promised it: a name is for people. The verifier cannot help here, since the graph is fine.
# What found the fault is the comparison with another implementation.
#
# ### Depth
#
# Our `order` calls itself once for each node on the way down. A graph of 5,000 nodes in a row:

# %% tags=["nbval-ignore-output"]
deep = mc.Input("x", mc.f32[2])
value = deep
for _ in range(5000):
    value = apply("relu", value)
try:
    with mc.use(toposort=order):
        mc.Graph.of("deep", [deep], [value])
except mc.CompileError as error:
    print(error)

# %% [markdown]
# Read it from the top: what is wrong, with a number to look up in `docs/errors.md`; where the part
# that we replaced begins; how the compiler calls it; and the lines that led to the error, each
# once, with how often it was passed. The assumption was *graphs are shallow*. Python stops at 1,000
# calls inside each other; the notebook itself uses a few of them.
#
# The stack in `_toposort` is a list and has no such bound:

# %%
print(len(mc.Graph.of("deep", [deep], [value]).nodes), "nodes in order")

# %% [markdown]
# ## In the field
#
# The same ideas under other names. "—": no such thing, or not under one name.

# %%
SYSTEMS = ["here", "TVM", "XLA", "Glow", "MLIR", "PyTorch 2", "ONNX Runtime"]
lesson.table(
    [
        ["graph 计算图", "`relax.Function`", "`HloComputation`", "`Function`",
         "region of a `func.func`", "`torch.fx.Graph`", "`Graph`"],
        ["op 算子", "`Op`", "`HloOpcode`", "class of `Node`",
         "name of an `Operation`", "`Node.target`", "`OpSchema`"],
        ["node 节点", "`Call`", "`HloInstruction`", "`Node`",
         "`Operation`", "`Node`", "`Node`"],
        ["value 值", "`Var`", "the instruction", "`NodeValue`",
         "`Value`", "the node", "`NodeArg`"],
        ["placeholder 占位符", "parameter", "`parameter`", "`Placeholder`",
         "block argument", "`placeholder`", "graph input"],
        ["constant 常量", "`Constant`", "`constant`", "`Constant`",
         "`arith.constant`", "`get_attr`", "initializer"],
        ["let-binding, SSA 绑定, 静态单赋值", "`VarBinding`; Relay: `Let`", "SSA", "nodes, no text",
         "SSA", "order of `graph.nodes`", "each name once"],
    ],
    header=SYSTEMS,
)  # fmt: skip

# %%
lesson.table(
    [
        ["type rule 类型推导", "`FInferStructInfo`", "`ShapeInference`", "`Node::verify`",
         "`InferTypeOpInterface`", "fake tensors", "ONNX shape inference"],
        ["topological order 拓扑排序", "order of bindings", "`MakeInstructionPostOrder`",
         "`GraphPostOrderVisitor`", "order in the block", "order of `graph.nodes`",
         "`GetNodesInTopologicalOrder`"],
        ["structural equality 结构相等", "`structural_equal`", "`HloComputation::Equal`",
         "`isEqual`", "`OperationEquivalence`", "—", "—"],
        ["interpreter 解释器", "Relay had one", "`HloEvaluator`", "`Interpreter` backend",
         "—", "`fx.Interpreter`", "runs node after node itself"],
        ["Einstein notation 爱因斯坦求和", "`einsum`; `te.compute`: lambda", "`dot_general`: axes",
         "—", "`linalg.generic`: maps", "`torch.einsum`", "`Einsum`"],
    ],
    header=SYSTEMS,
)  # fmt: skip

# %% [markdown]
# Names as in the sources of these projects. TVM's first graph IR, Relay, allowed both forms: a DAG
# of expressions, or `let`. Its successor Relax allows bindings only.

# %% [markdown]
# ## Check yourself
#
# Write your answer in place of `None` and run the cell.

# %%
lesson.ask(
    "1. How many sigmoids does the formula of a chain of 12 steps have?",
    yours=None,
    truth=lambda: as_formula(chain(12)).count("sigmoid"),
    hint="The table above: one less than a power of two.",
    why="2¹² − 1; the graph has 12.",
)
lesson.ask(
    "2. Which type has add of f32[8, 1, 6] and f32[7, 1]? Write it as text.",
    yours=None,
    truth=lambda: str(broadcast(Type("f32", (8, 1, 6)), Type("f32", (7, 1)))),
    hint="Align at the right: 6 and 1, 1 and 7, 8 and nothing.",
    why="A 1 takes the size of the other side, whichever side it is on.",
)


# %%
def valid_orders(nodes):
    def fits(line):
        place = {node: i for i, node in enumerate(line)}
        return all(place.get(v, -1) < place[n] for n in line for v in n.inputs)

    return sum(fits(line) for line in itertools.permutations(nodes))


branches = op("add", op("relu", op("relu", x)), op("sigmoid", op("sigmoid", x)))
lesson.ask(
    "3. add(relu(relu(x)), sigmoid(sigmoid(x))): how many topological orders has this graph?",
    yours=None,
    truth=lambda: valid_orders(order([branches])),
    hint="add is last. How can two pairs, each in its order, be mixed?",
    why="4 choose 2: which two of four places the relus take. A compiler may pick the one that "
    "needs the least memory.",
)
fused = [n for n in exe.graph.nodes if isinstance(n.op, Fused)]
lesson.ask(
    "4. How many ops lie inside the `fused` nodes of the optimised digit classifier?",
    yours=None,
    truth=lambda: sum(len(n.op.body.nodes) for n in fused),
    hint="Count the boxes inside the frames of the picture.",
    why="Each frame is one kernel; what is between its boxes never reaches memory.",
)

# %% [markdown]
# **The question of the field**: *a DAG says everything, so why do graph IRs write let-bindings?*
# Because a DAG says what depends on what, and not what is computed how often, where, or in whose
# scope (in a branch, say). The table under *The answer* is the reason in numbers: 255, 8, 30, 8.
#
# **Graded tasks** of assignment a1 that start from here: **1.1** type rule with broadcasting,
# **1.2** topological order, **1.4** interpreter. Each asks for something that neither this lesson
# nor the compiler does as it stands.
#
# **What you have now**: an IR of three classes, a type rule that agrees with NumPy on 7,225 pairs
# of shapes, an order, an interpreter that ran inside the compiler, and an equality without names.
# **Next**: lesson 03 writes graphs as text, reads them back, and finds out how much of a program
# can be proved wrong before it runs.
