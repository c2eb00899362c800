# %% [markdown]
# # 04 · Capturing Python
#
# **How much of a Python function can a compiler see, and how often must it look again?**
#
# People write models as Python functions, with `if`, `for` and `print` in them. A compiler wants a
# graph. We build the capture, and then count: how many graphs eight calls of one function need, and
# what each new one is for; into how many graphs another function falls apart, and at which lines.
# The last part uses the numbers to explain what `torch.compile` does.
#
# *Time: 55 minutes. You need: lessons 02 and 03 (values, nodes, types, the verifier). None of
# their code is used here.*

# %%
import ast
import inspect

import numpy as np

import minidlc as mc
from minidlc import lesson
from minidlc.frontend.guards import guards_of_function
from minidlc.frontend.script.control import conditional
from minidlc.frontend.trace import _trace
from minidlc.graph import apply
from minidlc.graph.graph import Staged
from minidlc.graph.value_ops import ValueOps
from minidlc.support.extension import counting

# %% [markdown]
# ## Build it from nothing
#
# ### A stand-in that writes down what happens to it
#
# Here is the trick behind most capture systems. Call the function, but not with arrays: give it
# objects that hold no numbers. Python runs the function line by line as always. When it meets a
# product it asks the object what `*` means, and the object answers: I write that on a tape, and
# here is a new object for the result. Such a stand-in is called a **proxy** or tracer, and running
# a function on proxies is called **tracing** (追踪).


# %%
class Tape:
    """Every operation, in the order in which Python reached it."""

    def __init__(self, kind):
        self.kind, self.lines = kind, []

    def record(self, op, *inputs, **attributes):
        out = self.kind(self, f"v{len(self.lines)}")
        self.lines.append((out, op, inputs, attributes))
        return out


class Proxy:
    """Stands for a tensor. What is done to it is written on the tape."""

    def __init__(self, tape, name):
        self.tape, self.name = tape, name

    def __repr__(self):
        return f"%{self.name}"

    def __mul__(self, other):
        return self.tape.record("mul", self, other)


# %% [markdown]
# `kind` is the class of proxy that the tape hands out; we shall want others later. The other
# operators all have the form of `__mul__`, so a loop writes them. Then one line of Python, and
# what is on the tape after it; `%` marks a value that will be known only when the tape is run.


# %%
def writes(op):
    return lambda self, *others: self.tape.record(op, self, *others)


METHODS = {"__add__": "add", "__matmul__": "matmul", "__gt__": "greater", "sum": "sum"}
for method, op in METHODS.items():
    setattr(Proxy, method, writes(op))


def text(lines):
    shown = ((out, op, ", ".join(map(repr, inputs))) for out, op, inputs, _ in lines)
    return "\n".join(f"{out!r} = {op}({reads})" for out, op, reads in shown)


tape = Tape(Proxy)
x, w = Proxy(tape, "x"), Proxy(tape, "w")
y = x @ w + 1.0
print(text(tape.lines))
print("y is", repr(y))

# %% [markdown]
# `capture` gives proxies for arrays and leaves Python values as they are. Then it calls the
# function once. `relu` is an op that has no Python operator, so it writes to the tape by itself.


# %%
def capture(fn, *arguments):
    """Run `fn` once; an array among the arguments becomes a proxy."""
    tape, names = Tape(Proxy), inspect.signature(fn).parameters
    pairs = zip(names, arguments, strict=True)
    given = [Proxy(tape, n) if isinstance(a, np.ndarray) else a for n, a in pairs]
    tape.inputs = [p.name for p in given if isinstance(p, Proxy)]
    tape.result = fn(*given)
    return tape


def relu(x):
    return x.tape.record("relu", x) if isinstance(x, Proxy) else np.maximum(x, 0)


def layer(x, w, steps):
    print("Python is in layer, x is a", type(x).__name__)
    for _ in range(steps):
        x = relu(x @ w) + 1.0
    return x


x, w = np.array([[1.0, -2.0]]), np.array([[1.0, 0.5], [-1.0, 2.0]])
tape = capture(layer, x, w, 2)
print(text(tape.lines))
print("return", repr(tape.result))

# %% [markdown]
# Look at what is gone. The `print` ran, once, and is not on the tape. The `for` is gone as well:
# the tape holds its body two times. `steps` was a Python number, so Python counted, and the tape saw
# only the result of counting. This is called **unrolling**.
#
# Does the tape mean the same as the function? We run it: one NumPy function for each op.

# %%
NUMPY = {"add": np.add, "mul": np.multiply, "matmul": np.matmul, "greater": np.greater}
NUMPY |= {"sum": np.sum, "where": np.where, "relu": lambda a: np.maximum(a, 0)}


def execute(lines, values):
    """Fill `values` (name → array) with the result of each line."""
    for out, op, inputs, _ in lines:
        arrays = (values[i.name] if isinstance(i, Proxy) else i for i in inputs)
        values[out.name] = NUMPY[op](*arrays)
    return values


def run(tape, *arrays):
    return execute(tape.lines, dict(zip(tape.inputs, arrays, strict=True)))[tape.result.name]


for a in (x, x * 3):
    print("tape", run(tape, a, w), " function", layer(a, w, 2))

# %% [markdown]
# Both agree. The two prints come from the function, which we called to compare; the tape answered
# without running it.
#
# ### A branch is lost
#
# Now a function that looks at its data.


# %%
def signed(x):
    if x.sum() > 0:  # which way depends on the numbers
        return x * 2.0
    return x * -1.0


up, down = np.array([1.0, 2.0]), np.array([-1.0, -2.0])
lost = capture(signed, up)
print(text(lost.lines))
print("return", repr(lost.result))
rows = [(str(a), str(signed(a)), str(run(lost, a))) for a in (up, down)]
lesson.table(rows, header=("x", "Python says", "the tape says"))

# %% [markdown]
# The second row is wrong, and nothing complained. `if` asked our proxy for its truth value. The
# class defines none, and Python holds any such object for true. So the trace went one way, and
# only that way is on the tape. Even the question is there, lines `%v0` and `%v1`, but nobody reads
# the answer.
#
# ### Read the source instead
#
# The other way to capture is to read the function rather than run it. Python gives us its
# **abstract syntax tree** (AST), which still has both branches. We turn the two statements
#
#     if t: return a         return choose(t, lambda: a, lambda: b)
#     return b
#
# into one call, and let `choose` decide what to do about `t`. A Python value chooses as before; a
# proxy records both sides and the op `where`, which picks one of them when the tape runs.


# %%
class IfToCall(ast.NodeTransformer):
    """A function that ends in `if t: return a` and `return b`, with a call in their place."""

    def visit_FunctionDef(self, node):
        *before, branch, other = node.body
        arguments = [branch.test, later(branch.body[0].value), later(other.value)]
        call = ast.Call(ast.Name("choose", ast.Load()), arguments, [])
        node.body = [*before, ast.Return(call)]
        return node


def later(expression):
    return ast.Lambda(ast.parse("lambda: 0", mode="eval").body.args, expression)


def choose(test, yes, no):
    if isinstance(test, Proxy):
        return test.tape.record("where", test, yes(), no())
    return yes() if test else no()


tree = ast.fix_missing_locations(IfToCall().visit(ast.parse(inspect.getsource(signed))))
print(ast.unparse(tree))

# %%
scope = {"choose": choose}
exec(compile(tree, "rewritten", "exec"), scope)
both = capture(scope["signed"], up)
print(text(both.lines))
print("agree:", [bool((run(both, a) == signed(a)).all()) for a in (up, down)])

# %% [markdown]
# Both branches are captured, and both rows are right. The price: a reader of source must know
# every statement it may meet. Ours knows one, in one form. It would fail at an `elif`, at an
# assignment in a branch, at a `while`. (`where` also computes both sides every time. A compiler
# for larger branches keeps them as two graphs inside an op `if`; we shall see one soon.)
#
# ### What a graph relies on
#
# Capture once, use often: that is the point. But a graph is right only while what it saw stays as
# it was. In `layer` it relied on `steps == 2`. What it relies on is written down as a list of
# **guards** (守卫): facts to check before the graph is used again. A failed guard means capturing
# once more.


# %%
def guards_of(fn, arguments):
    """What the graph relies on: types of arrays, values of the rest, numbers of outside."""
    found = {}
    for n, a in zip(inspect.signature(fn).parameters, arguments, strict=True):
        if isinstance(a, np.ndarray):
            found[f"dtype of {n}"], found[f"shape of {n}"] = str(a.dtype), a.shape
        else:
            found[f"value of {n}"] = a
    for n in fn.__code__.co_names:  # names that the bytecode looks up outside the function
        if isinstance(fn.__globals__.get(n), (bool, int, float)):
            found[f"global {n}"] = fn.__globals__[n]
    return found


SCALE = 2.0


def scaled(x, times):
    for _ in range(times):
        x = x * SCALE
    return x + 1.0


for fact in guards_of(scaled, (up, 1)).items():
    print(*fact)


# %% [markdown]
# `SCALE` is the one to remember. It is no argument, yet the tape would hold the number 2.0. We
# find it by asking the bytecode which outside names it reads.
#
# The cache: the guards are the key.


# %%
class Jit:
    """`fn` captured at its first call, and again when a guard fails."""

    def __init__(self, fn):
        self.fn, self.tapes, self.reasons, self.last = fn, {}, [], {}

    def __call__(self, *arguments):
        guards = guards_of(self.fn, arguments)
        key = tuple(guards.items())
        if key not in self.tapes:
            changed = [f"{w}: {self.last[w]} → {v}" for w, v in key if self.last.get(w, v) != v]
            self.reasons.append(", ".join(changed) or "first call")
            self.tapes[key] = capture(self.fn, *arguments)
        self.last = guards
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        return run(self.tapes[key], *arrays)


twice = Jit(scaled)
print(twice(up, 1), twice(down, 1), " captured:", *twice.reasons)


# %% [markdown]
# ### When the function needs to know now
#
# `print(y)` or `if y.sum() > 0` want elements, and a proxy has none. One answer: end the graph
# there. Run what is on the tape so far, give Python the numbers, and start a new tape. The place
# is called a **graph break** (断图).


# %%
class Lazy(Proxy):
    """A proxy that runs its tape when somebody needs to know."""

    def __bool__(self):
        return bool(self.tape.cut(self))

    def __str__(self):
        return str(self.tape.cut(self))


class Pieces(Tape):
    def __init__(self, values):
        super().__init__(Lazy)
        self.values, self.done, self.graphs = values, 0, []

    def cut(self, value):
        """End the graph here: run it, keep it, return the array of `value`."""
        piece, self.done = self.lines[self.done :], len(self.lines)
        if piece:
            self.graphs.append(piece)
            execute(piece, self.values)
        return self.values[value.name]


print(Lazy(Pieces({"x": up}), "x") * 2.0)  # print asks for the text, the text for the elements

# %% [markdown]
# ## The answer, counted
#
# ### How often must it look again?
#
# Eight calls of `scaled`. Guess the number of captures before you read the table.

# %%
long, f32 = np.ones(3), up.astype("f4")
CALLS = [(up, 1, 2.0), (down, 1, 2.0), (long, 1, 2.0), (up, 1, 2.0)]
CALLS += [(f32, 1, 2.0), (up, 3, 2.0), (up, 1, 5.0), (up, 1, 2.0)]


def replay(jitted, captures):
    """Make the eight calls; a row each: what was called, how many captures there are, right?"""
    global SCALE
    rows = []
    for a, times, SCALE in CALLS:
        right = np.array_equal(np.asarray(jitted(a, times)), scaled(a, times))
        rows.append((f"{a.dtype}{list(a.shape)}", times, SCALE, captures(jitted), right))
    return rows


ours = Jit(scaled)
rows = replay(ours, lambda j: len(j.reasons))
lesson.table(rows, header=("x", "times", "SCALE", "captures so far", "right"))
print(*ours.reasons, sep="\n")

# %% [markdown]
# Five captures for eight calls. Other *numbers* in `x` cost nothing; another length, another
# element type, another Python value and another global cost a capture each. Going back costs
# nothing either: old graphs are kept.
#
# ### How much can it see?
#
# A function that asks for elements twice.


# %%
def talkative(x):
    y = x * 2.0
    print("   so far:", y)  # needs the elements of y
    z = y + 1.0
    if z.sum() > 0:  # needs one element
        return relu(z) * z
    return z * -1.0


def in_pieces(fn, a):
    tape = Pieces({"x": a})
    result = tape.cut(fn(Lazy(tape, "x")))
    return result, tape.graphs


for a in (up, down):
    result, graphs = in_pieces(talkative, a)
    print(f"{a} → {result}: {len(graphs)} graphs, {len(graphs) - 1} graph breaks")
    print("\n   --- cut ---\n".join(text(g) for g in graphs))

# %% [markdown]
# Three graphs and two breaks, and both ways of the `if` come out right, because Python itself
# takes the decision between graphs. What is lost is what the compiler could have done across the
# cut: no fusion over it, every array at the cut written to memory, and Python runs at every call.
#
# ## See it
#
# The compiler has both ways of capturing. `mc.trace` runs a function on proxies, as we did;
# `mc.script` reads its source. Here is `signed` read from source, as a picture of the real IR. The
# test comes first; the op `if_` reads what it says.

# %%
scripted = mc.script(signed, mc.f32[2])
mc.viz.graph(scripted)

# %% [markdown]
# `if_` holds two more graphs, one for each branch: the frames. The arrows from `x` into them are what
# the branches read of the outside. Only one of the two runs. All three graphs in one text:

# %%
print(scripted)

# %% [markdown]
# ## Then the real one
#
# `mc.trace` has the same three steps as `capture`: stand-ins in, run the function, graph out. Its
# stand-ins are the graph's own `Input` values. They have types, so a wrong shape is found at the
# line that made it.

# %%
lesson.source(_trace)

# %% [markdown]
# What it adds: parameters and results may be tuples, lists and dicts of tensors; results get
# names; a tensor of another trace is refused; the verifier of lesson 03 looks at the result. And
# it closes the hole that we fell into. A graph value has no truth value:

# %%
lesson.source(ValueOps.__bool__)
try:
    mc.trace(signed, mc.f32[2])
except mc.CompileError as error:
    print(error)

# %% [markdown]
# `mc.script` is `IfToCall` for most of Python: `if`, `while`, `for`, early `return`, `and`, and
# the functions that are called. It runs each branch on stand-ins of its own and makes the op `if_`
# of the two graphs. What it cannot take is refused by a rule with a name.

# %%
lesson.source(conditional)

# %% [markdown]
# And `mc.jit` is our `Jit`. The same eight calls:

# %%
theirs = mc.jit(scaled)
rows = replay(theirs, lambda j: 1 + len(j.recompiles))
lesson.table(rows, header=("x", "times", "SCALE", "captures so far", "right"))
print(theirs.explain())

# %% [markdown]
# The same five. Each reason compares with the most similar graph that is kept, which is why it
# names one change where ours, comparing with the call before, may name two.
#
# Its guards reach further than ours. They follow closures, default values, attributes of modules
# and objects, and every function that the function calls. Arrays of outside are guarded by
# content. If no guard would be sound, it refuses.

# %%
RATES = {"a": np.array([0.5, 0.25])}


def helper(x):
    return x * RATES["a"]


def outer(x):
    return helper(x) + SCALE


for guard in guards_of_function(outer):
    if guard.aspect in ("value", "elements", "structure"):
        print(guard)
try:
    mc.jit(lambda x: x * np.random.rand())(up)
except mc.CompileError as error:
    print(error)

# %% [markdown]
# At a graph break `mc.jit` does less than we did: it does not cut. You choose one of three
# answers: an error, which is the default; `fallback="eager"`, such a call op by op; or
# `capture=mc.script`, which has no break here.

# %%
try:
    mc.jit(signed)(up)
except mc.CompileError as error:
    print(error)
rows = []
for title, options in (
    ('fallback="eager"', {"fallback": "eager"}),
    ("capture=mc.script", {"capture": mc.script}),
):
    fast = mc.jit(signed, **options)
    right = all((fast(a) == signed(a)).all() for a in (up, down))
    graphs = sum(s.executable is not None for s in fast.specializations)
    eager_calls = sum(b.calls for b in fast.graph_breaks)
    rows.append((title, right, graphs, len(fast.graph_breaks), eager_calls))
    print(fast.explain())
header = ("mc.jit(signed, …)", "right", "graphs compiled", "graph breaks", "calls run eagerly")
lesson.table(rows, header)

# %% [markdown]
# **Eager** (即时执行) is the third way to run such a function: no capture at all, each op runs at once
# and its numbers are known. It always works and is good for looking at things. Its price shows on
# a chain of small ops:


# %% tags=["nbval-ignore-output"]
def chain(x):
    for _ in range(20):
        x = mc.relu(x * 1.01 + 0.5)
    return x


row = np.linspace(-1, 1, 1000, dtype="f4")
compiled = mc.jit(chain, threads=1)
compiled(row)
with mc.eager():
    lesson.times({"eager": lambda: chain(mc.tensor(row)), "captured": lambda: compiled(row)})

# %% [markdown]
# ## Plug yours in
#
# The compiler's ops, `mc.conv` and the others, must accept our proxies. They ask each input
# whether it is `Staged`, a stand-in that takes the whole application. Two lines make ours one. The
# tape then becomes a graph: one node a line, and now the type rules speak.


# %%
class Guest(Proxy, Staged):
    """A proxy that the compiler's ops accept, too."""

    def staged(self, op, inputs, attributes):
        return self.tape.record(op, *inputs, **attributes)


def my_trace(fn, types, kind=Guest):
    """The extension point `trace`: a function and a type for each parameter → a graph."""
    tape = Tape(kind)
    inputs = {n: mc.Input(n, t) for n, t in types.items()}
    result = fn(**{n: kind(tape, n) for n in inputs})
    values = dict(inputs)
    for out, op, reads, attributes in tape.lines:
        reads = [values[r.name] if isinstance(r, Proxy) else r for r in reads]
        values[out.name] = apply(op, *reads, **attributes)
    return mc.Graph.of(fn.__name__, inputs.values(), [values[result.name]])


# %% [markdown]
# A real model: the digit classifier that ships with the package, written as a Python function with
# a loop. Its trained weights come from the file that lesson 05 will take apart.

# %%
weights = {c.name: c.array for c in mc.load_onnx(lesson.model("lenet")).constants}
LAYERS = (("Parameter5", "Parameter6", 2), ("Parameter87", "Parameter88", 3))


def classify(x):
    for kernel, bias, window in LAYERS:
        x = mc.relu(mc.conv(x, weights[kernel], pads=(2, 2, 2, 2)) + weights[bias])
        x = mc.max_pool(x, kernel_shape=(window, window), strides=(window, window))
    flat = mc.reshape(x, shape=(1, 256))
    return flat @ weights["Parameter193"].reshape(256, 10) + weights["Parameter194"]


with mc.use(trace=my_trace), counting() as calls:
    mine = mc.trace(classify, mc.f32[1, 1, 28, 28])
print("calls of the replaced part:", dict(calls))
print(
    "equal to the graph of the compiler's own trace:",
    mine == mc.trace(classify, *mine.input_types()),
)
mc.viz.graph(mine)

# %% [markdown]
# (`exe.report().overrides` lists the parts that were replaced *while compiling*. Tracing comes
# before, so we count with `counting`, the counter behind that report.) Now the answers, against
# the stored output of ONNX Runtime for one image, and the labels of 40:

# %%
exe = mc.compile(mine, threads=1)
with np.load(lesson.model("lenet").with_suffix(".case0.npz")) as case:
    image, expected = case["in::Input3"], case["out::Plus214_Output_0"]
error = np.abs(exe(image) - expected).max() / np.abs(expected).max()
images, labels = lesson.digits()
right = sum(
    int(np.argmax(exe(image))) == label for image, label in zip(images, labels, strict=True)
)
print("largest error below 1e-5 of the largest score:", bool(error < 1e-5))
print(right, "of", len(labels), "digits right")

# %% [markdown]
# ## Break it
#
# `Guest` has a `__bool__` without our writing one: it came with `Staged`, which refuses as above.
# Take it away, and we have our first proxy again, now inside the compiler.


# %%
class Silent(Guest):
    def __bool__(self):
        return True  # what Python assumes of an object that does not say


def silent_trace(fn, types):
    return my_trace(fn, types, kind=Silent)


with mc.use(trace=silent_trace):
    wrong = mc.trace(signed, mc.f32[2])
mc.verify(wrong)  # no complaint
answers = mc.compile(wrong, threads=1)
rows = [(str(a), str(signed(a)), str(answers(a.astype("f4"))[0])) for a in (up, down)]
lesson.table(rows, header=("x", "Python says", "machine code says"))
print(wrong)

# %% [markdown]
# The verifier is content, and by its own rules it is right: the graph is well formed and every
# type fits. It cannot know of a branch that never reached it. The assumption that was used is one
# about the function: *it goes the same way for every input of these types*. The only witness is
# the proxy, at the moment it is asked. With `Guest`, which speaks up, the same function is
# refused:

# %%
with mc.use(trace=my_trace):
    try:
        mc.trace(signed, mc.f32[2])
    except mc.CompileError as error:
        print(error)

# %% [markdown]
# ## In the field

# %%
lesson.table(
    [
        ("tracing", "追踪", "—", "JAX: tracers → jaxpr", "—", "—", "`torch.export`", "—"),
        ("reading source", "解析源码", "TVMScript", "AutoGraph of `tf.function`", "—", "—",
         "TorchScript; bytecode: Dynamo", "—"),
        ("captured elsewhere", "导入", "`from_exported_program`", "—", "ONNX, Caffe2 loaders",
         "torch-mlir", "—", "reads ONNX files"),
        ("branch in the graph", "控制流", "`relax.If`", "`conditional`", "—", "`scf.if`",
         "`torch.cond`", "ONNX `If`"),
        ("guard", "守卫", "—", "JAX: key of the jit cache", "—", "—", "guard", "—"),
        ("recompilation", "重新编译", "—", "JAX: cache miss", "—", "—", "recompilation", "—"),
        ("graph break", "断图", "—", "JAX: an error instead", "—", "—", "graph break", "—"),
        ("eager", "即时执行", "—", "JAX outside `jit`", "—", "—", "eager mode", "—"),
    ],
    header=("here", "中文", "TVM", "XLA", "Glow", "MLIR", "PyTorch 2", "ONNX Runtime"),
)  # fmt: skip

# %% [markdown]
# A dash means that the system leaves it to another one: Glow, MLIR and ONNX Runtime get graphs
# that somebody else has captured. (Sources: docs.jax.dev, pages *Tracing* and *Control flow*;
# tvm.apache.org, pages *TVMScript* and *Importing Models*; docs.pytorch.org, *Dynamo Core
# Concepts*; onnx.ai, operators; Glow's docs/IR.md.)
#
# ### How `torch.compile` works, in our terms

# %%
lesson.table(
    [
        ("capture", "run the function on proxies",
         "TorchDynamo: CPython hands it each function before it runs (PEP 523).\n"
         "It interprets the bytecode symbolically and writes an FX graph."),
        ("what the graph relies on", "`guards_of`: dtypes, shapes, values, globals",
         "guards; `int` and `float` variables by exact value"),
        ("a guard fails", "`Jit` captures again: 4 times in 8 calls",
         "recompilation. After a size has changed, it tries a graph for open sizes\n"
         "(`dynamic=None`). After 8 graphs (`recompile_limit`): eager."),
        ("`print`, `if` on data", "`Lazy` cuts: 3 graphs, 2 breaks",
         "graph break: compile what was seen, run what could not be read in Python,\n"
         "go on tracing behind it. `fullgraph=True` makes it an error."),
        ("then", "the rest of this course",
         "AOTAutograd traces the backward graph; TorchInductor fuses, and writes\n"
         "Triton for GPUs, C++ with OpenMP for CPUs."),
    ],
    header=("step", "in this notebook", "`torch.compile`"),
)  # fmt: skip

# %% [markdown]
# Two differences matter. Dynamo does not let CPython run the function on stand-ins: reading
# bytecode, it sees an `if` on a tensor *before* it is asked, so it cannot lose a branch silently.
# And it caches what it found between breaks, where our `Lazy` lets Python run the whole function
# each time. (Sources: docs.pytorch.org, *Dynamo Overview*, *Dynamo Core Concepts*, *Dealing with
# Recompilations*, *Working with Graph Breaks*, `torch.compile`.)
#
# ## Check yourself
#
# The functions that the questions are about; then write your answers in place of `None`.


# %%
def deep(x, steps):
    for _ in range(steps):
        x = relu(x @ w) + 1.0
    return x


def chatty(x):
    for factor in (2.0, 3.0, 4.0):
        x = x * factor
        said.append(str(x))  # the text needs the elements, as in print
    return x + 1.0


said, ran = [], []


def noted(x):
    ran.append(1)  # what Python does when it is in this function
    return x * 2.0


# %%
lesson.ask(
    "1. `capture(deep, x, 5)`: how many lines are on the tape?",
    None,
    lambda: len(capture(deep, x, 5).lines),
    hint="Count the ops of one run of the body.",
    why="Three ops a step; the loop over a Python number is unrolled.",
)

# %%
ask_jit = Jit(scaled)
lesson.ask(
    "2. `scaled` is called with x of shape (2,), (3,), (2,), (4,): how many captures?",
    None,
    lambda: [ask_jit(np.ones(n), 1) for n in (2, 3, 2, 4)] and len(ask_jit.reasons),
    hint="A shape that was seen before has its graph already.",
    why="One for each of the three shapes.",
)

# %%
lesson.ask(
    "3. `chatty` asks for the text after each of three ops and returns a fourth. How many graphs?",
    None,
    lambda: len(in_pieces(chatty, up)[1]),
    hint="Each text ends a graph. What comes after the last one?",
    why="Three cuts make four graphs of one op each.",
)

# %%
noted_jit = Jit(noted)
lesson.ask(
    "4. `Jit(noted)` is called 100 times with the same x: how long is the list `ran` then?",
    None,
    lambda: [noted_jit(up) for _ in range(100)] and len(ran),
    hint="When is the body of a captured function run?",
    why="Once, to capture it. A print inside would show once, too.",
)

# %% [markdown]
# **The question of the field.** *What does the compiler do in PyTorch 2, and how does
# `torch.compile` work?* It captures graphs from running Python, guards each with what it relied
# on, compiles it, and hands whatever it could not read back to Python. Measured here: eight calls
# of `scaled` took five captures, one for the first call and one each for a new shape, dtype,
# Python value and global; `talkative` fell into three graphs with two breaks, at its `print` and
# its `if`, the two lines that no graph holds.
#
# **Graded task** of assignment a1 that starts from here: **1.6** tracing with guards.
#
# ## What you have now
#
# A tracer that the compiler accepts, a capture that keeps both branches, a cache that knows when a
# graph is stale, and the habit of asking what a graph assumed. Not every model comes as Python:
# the next lesson, [05 · Importing ONNX](05_importing_onnx.ipynb), reads one from a file.
