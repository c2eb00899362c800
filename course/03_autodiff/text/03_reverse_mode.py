# %% [markdown]
# # 03 · Reverse mode as a graph transformation
#
# **The way back costs about two runs. What does it cost in memory, and who decides?**
#
# A network of sixteen layers needs room for two of them: a layer reads the one before, and what is
# older may be forgotten. Its gradient needs room for all sixteen. Why exactly these, why not more,
# and which line of which rule has decided it?
#
# At the end you have written reverse mode as a transformation of graphs, rules and walk in forty lines.
# You have found two decisions, right either way, that change its memory by two thirds and more, and
# compiled a real network's gradient both ways.
#
# *Time: 40 minutes. You need: lesson 01 of this chapter (the tape); from chapter 1 the words* node,
# type, topological order.

# %%
from collections import Counter
from dataclasses import dataclass

import numpy as np

import minidlc as mc
from minidlc import lesson
from minidlc.autodiff import local_gradient
from minidlc.autodiff.chain import _by_parts
from minidlc.autodiff.reverse import last_used_first
from minidlc.graph.graph import Node as GraphNode
from minidlc.graph.op import op_class
from minidlc.support.extension import counting
from minidlc.support.locations import steps

# %% [markdown]
# ## Build it from nothing
#
# ### A graph
#
# The IR of lesson 01.02 in its shortest form: values with a shape, nodes with an op and inputs. Most
# ops keep the shape; three do not, and `spread` is told its own.


# %%
@dataclass(frozen=True, eq=False)
class Value:
    name: str
    shape: tuple


@dataclass(frozen=True, eq=False)
class Node(Value):
    op: str
    inputs: tuple


SHAPES = {
    "matmul": lambda a, b: (a[0], b[1]),
    "transpose": lambda a: a[::-1],
    "sum": lambda a: (),
}


def op(name, *inputs, shape=None):
    if shape is None:
        shape = SHAPES.get(name, lambda a, *rest: a)(*(v.shape for v in inputs))
    return Node(name, shape, name, inputs)


# %%
MEANING = {
    "add": lambda node, a, b: a + b,
    "mul": lambda node, a, b: a * b,
    "neg": lambda node, a: -a,
    "tanh": lambda node, a: np.tanh(a),
    "matmul": lambda node, a, b: a @ b,
    "transpose": lambda node, a: a.T,
    "sum": lambda node, a: np.sum(a),
    "spread": lambda node, a: np.broadcast_to(a, node.shape),
}


def order(outputs):
    done = {}

    def visit(v):
        if isinstance(v, Node) and v not in done:
            for x in v.inputs:
                visit(x)
            done[v] = True

    for v in outputs:
        visit(v)
    return list(done)


# %%
def run(outputs, given, meaning=MEANING):
    values = dict(given)
    for node in order(outputs):
        values[node] = meaning[node.op](node, *(values[v] for v in node.inputs))
    return [values[v] for v in outputs]


x, w = Value("x", (4, 3)), Value("w", (3, 2))
h = op("tanh", op("matmul", x, w))
loss = op("sum", op("mul", h, h))
rng = np.random.default_rng(0)
a, b = rng.standard_normal((4, 3)), rng.standard_normal((3, 2))
print(
    "loss:",
    run([loss], {x: a, w: b})[0].round(4),
    "· by NumPy:",
    (np.tanh(a @ b) ** 2).sum().round(4),
)

# %% [markdown]
# ### Rules
#
# The tape of lesson 01 kept numbers. Here a rule builds *nodes*: from y and dy, for each input, how the
# loss changes with it. Note what each one reads.


# %%
def matmul_rule(y, dy):
    a, b = y.inputs
    return op("matmul", dy, op("transpose", b)), op("matmul", op("transpose", a), dy)


def tanh_rule(y, dy):  # dy - dy y²
    return [op("add", dy, op("neg", op("mul", dy, op("mul", y, y))))]


RULES = {
    "add": lambda y, dy: (dy, dy),
    "mul": lambda y, dy: (op("mul", dy, y.inputs[1]), op("mul", dy, y.inputs[0])),
    "neg": lambda y, dy: [op("neg", dy)],
    "tanh": tanh_rule,
    "matmul": matmul_rule,
    "transpose": lambda y, dy: [op("transpose", dy)],
    "sum": lambda y, dy: [op("spread", dy, shape=y.inputs[0].shape)],
    "spread": lambda y, dy: [op("sum", dy)],
}

# %% [markdown]
# ### The walk
#
# From the loss back, as on the tape. What flows into a value from several readers is added, by a node.
# The loss changes with itself at the rate 1.

# %%
one = Value("one", ())


def total(parts):
    first, *rest = parts
    for part in rest:
        first = op("add", first, part)
    return first


def backward(loss, wrt, rules=RULES):
    flows = {loss: [one]}
    for y in reversed(order([loss])):
        if y in flows:
            dy = total(flows[y])
            for v, dv in zip(y.inputs, rules[y.op](y, dy), strict=True):
                flows.setdefault(v, []).append(dv)
    return [total(flows[v]) for v in wrt]


[dw] = backward(loss, [w])
[found] = run([dw], {x: a, w: b, one: 1.0})
print(found.round(4), "for", len(order([loss])), "nodes of the loss,", len(order([dw])), "of both")

# %% [markdown]
# Nothing was computed until `run`. The gradient is a program. Is it right? By small steps:

# %%
small = np.zeros_like(b)
for place in np.ndindex(b.shape):
    step = np.zeros_like(b)
    step[place] = 1e-6
    up, down = (run([loss], {x: a, w: b + s * step})[0] for s in (1, -1))
    small[place] = (up - down) / 2e-6
print("as small steps say:", np.allclose(found, small))

# %% [markdown]
# ### The gradient of a gradient
#
# A rule uses ops that have rules. So the result can go in again, as often as one likes.

# %%
t = Value("t", (3,))
cube = op("sum", op("mul", op("mul", t, t), t))
[first] = backward(cube, [t])
[second] = backward(op("sum", first), [t])
[third] = backward(op("sum", second), [t])
at = np.array([1.0, 2.0, -3.0])
for name, d in (("3t²", first), ("6t ", second), ("6  ", third)):
    print(name, run([d], {t: at, one: 1.0})[0], "of", len(order([d])), "nodes")

# %% [markdown]
# Right, and longer each time, since nobody tidies up: `order` leaves out what is not needed, but equal
# pieces are built again. That is work for the passes of chapter 2. To them this is a graph like any
# other.
#
# ### What must be remembered
#
# Which values of the way there does the way back read? Only those must be kept. (The inputs and the
# weights belong to the caller and are there anyway.)


# %%
def kept(loss, gradients):
    there = set(order([loss]))
    back = [node for node in order(gradients) if node not in there]
    return [v for v in there if any(v in node.inputs for node in back)]


def network(depth):
    h = Value("x", (64, 64))
    weights = [Value(f"w{n}", (64, 64)) for n in range(depth)]
    for weight in weights:
        h = op("tanh", op("matmul", h, weight))
    return op("sum", h), weights


for depth in (2, 4, 16):
    loss, weights = network(depth)
    stored = Counter(v.op for v in kept(loss, backward(loss, weights)))
    print(f"{depth} layers: {len(order([loss]))} nodes, kept: {dict(stored)}")

# %% [markdown]
# One value a layer: the result of `tanh`. It is read by its own rule, and by that of the next `matmul`.
# The results of `matmul` are not kept: no rule reads them. The rules decide.
#
# How much memory is that? Go through the nodes in order and sum up what is still needed. Results that
# the caller gets are not counted, they are theirs. All matrices here have the same size, so we count in
# matrices.


# %%
def peak(outputs):
    nodes, most, alive = order(outputs), 0, set()
    last = {v: t for t, node in enumerate(nodes) for v in node.inputs}
    for t, node in enumerate(nodes):
        alive.add(node)
        sizes = (int(np.prod(v.shape)) for v in alive if v not in outputs)
        most = max(most, sum(sizes) / 64**2)
        alive = {v for v in alive if last.get(v, -1) > t}
    return round(most)


rows = []
for depth in (2, 4, 8, 16):
    loss, weights = network(depth)
    gradients = backward(loss, weights)
    rows.append([depth, peak([loss]), peak([loss, *gradients]), peak([loss, *gradients[::-1]])])
lesson.table(rows, header=["layers", "loss", "gradient, dw₀ first", "gradient, dw₀ last"])

# %% [markdown]
# The loss needs two matrices, however deep the network is. The gradient grows with the depth: two
# matrices a layer in one column, one in the other, and a few.
#
# The two columns of the gradient are the same nodes in another order. To compute dw₀ one must walk back
# through all layers. Who computes it first has all the dy of the way in memory, waiting for the other
# weights. Who computes each dw as the walk passes forgets each dy at once. A graph leaves the order open;
# somebody has to choose it.

# %% [markdown]
# ## See it
#
# Two layers in minidlc. What bears a ∂ was made for the way back. Each arrow from a box without ∂ to one
# with it is a value that is kept.


# %%
def two_layers(x, w0, w1):
    return mc.tanh(mc.tanh(x @ w0) @ w1).sum()


small_network = mc.trace(two_layers, *[mc.f32[64, 64]] * 3)
mc.viz.graph(mc.value_and_grad(small_network, ["w0", "w1"]))

# %% [markdown]
# And the memory of eight layers as compiled, each bar a buffer, time to the right:


# %%
def layers(depth):
    def run_them(x, *weights):
        for weight in weights:
            x = mc.tanh(x @ weight)
        return x.sum()

    inputs = [mc.Input(name, mc.f32[64, 64]) for name in ("x", *(f"w{n}" for n in range(depth)))]
    return mc.Graph.of(f"layers{depth}", inputs, [run_them(*inputs)])


# %% tags=["nbval-ignore-output"]
eight = layers(8)
weights = [i.name for i in eight.inputs[1:]]
plan = mc.compile(mc.value_and_grad(eight, weights), threads=1).memory_plan
mc.viz.memory(plan)

# %% [markdown]
# The staircase on the left is the way there, each step a `tanh` that stays. Then the way back, from the
# top down: what was kept first is freed last. Where its last reader is done, a new value may lie on it.
#
# ## Then the real one
#
# Lesson 01 showed `backward` of `minidlc/autodiff/chain.py`. Here are two of its neighbours. The first
# chooses the order that won in our table. (The sizes on the picture depend on the machine, so no number
# of it stands in this text.)

# %%
lesson.source(last_used_first)

# %% [markdown]
# The second is for ops that are made of others, such as `gemm` or `attention`. Nobody has to write a rule
# for them: the parts have rules.

# %%
lesson.source(_by_parts)

# %% [markdown]
# What the compiler adds to our forty lines:
#
# | here | why |
# |---|---|
# | branches and loops | the gradient of a loop is a loop that runs the other way, over what was kept |
# | `Derived("gradient", loc)` | each node knows of which line of yours it is the gradient; the ∂ in the picture is read from it |
# | checks of each rule | a gradient of another type is an error with the name of the op |
# | `summed_to`, broadcasting | lesson 01 |
#
# And the rule for `tanh`, does it read x or y?

# %%
lesson.source(op_class("tanh").gradient)

# %% [markdown]
# ## Plug yours in
#
# Our walk on the compiler's graphs. Three things change: nodes are asked for their rule with
# `local_gradient`, a rule may return `None` where nothing flows, and the rate 1 is a constant. The
# network is the digit classifier; its result is the sum of the squares of its scores.


# %%
def my_backward(graph, wrt):
    [loss] = graph.outputs
    flows = {loss: [mc.Constant("one", np.ones(loss.type.shape, "f"))]}
    for y in reversed(graph.nodes):
        if y in flows:
            dy = sum(flows[y][1:], flows[y][0])
            for v, dv in zip(y.inputs, local_gradient(y, dy), strict=True):
                if dv is not None:
                    flows.setdefault(v, []).append(dv)
    return [sum(flows[v][1:], flows[v][0]) for v in wrt]


model = mc.load_onnx(lesson.model("lenet"))
weights = {c.name: c.array for c in model.constants}
promoted = model.promote(list(weights))
[scores] = promoted.outputs
loss = mc.Graph.of("loss", promoted.inputs, [(scores * scores).sum()])
by_name = {i.name: i for i in loss.inputs}
mine = mc.Graph.of("mine", loss.inputs, my_backward(loss, [by_name[n] for n in weights]))
print(len(mine.nodes), "nodes, the compiler's:", len(mc.grad(loss, list(weights)).nodes))

# %%
digit = lesson.digits()[0][0] / 255
given = {"Input3": digit, **weights}
ours = mc.compile(mine, threads=1)(given)
theirs = mc.compile(mc.grad(loss, list(weights)), threads=1)(given)
print([np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(ours, theirs, strict=True)])

# %% [markdown]
# Now the two lines of the question. The rule of `relu` may ask whether y > 0, or whether x > 0. Both are
# right: one is true exactly when the other is. We plug in one, then the other, and measure what the way
# back reads of the way there.


# %%
def reads_y(op, y, dy):
    return [mc.where(y > 0, dy, 0.0)]


def reads_x(op, y, dy):
    return [mc.where(y.inputs[0] > 0, dy, 0.0)]


def remembered(graph):
    made = {n for n in graph.nodes if "gradient" in steps(n.loc)}
    read = {v for n in made for v in n.inputs if isinstance(v, GraphNode) and v not in made}
    return sum(v.type.nbytes for v in read)


results, bytes_kept = [], {}
for rule in (reads_y, reads_x):
    with mc.use(**{"gradient.relu": rule}), counting() as calls:
        gradient = mc.value_and_grad(loss, list(weights))
    bytes_kept[rule.__name__] = remembered(gradient)
    results.append(mc.compile(gradient, threads=1)(given))
    print(rule.__name__, dict(calls), f"{bytes_kept[rule.__name__]:,} bytes kept")
alike = [np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*results, strict=True)]
print("the same gradients:", all(alike))

# %% [markdown]
# ## The answer
#
# *What does the way back cost in memory, and who decides?*

# %%
rows = []
for depth in (2, 4, 8, 16):
    graph = layers(depth)
    forward_bytes = max(node.type.nbytes for node in graph.nodes)
    gradient = mc.value_and_grad(graph, [i.name for i in graph.inputs[1:]])
    rows.append([depth, forward_bytes * 2, remembered(gradient)])
lesson.table(rows, header=["layers", "loss: two layers, bytes", "kept for the way back, bytes"])
ratio = bytes_kept["reads_x"] / bytes_kept["reads_y"]
print(f"digit classifier: {bytes_kept['reads_y']:,} bytes; {ratio:.2f} times that if relu reads x")

# %% [markdown]
# Memory grows with the depth, one value a layer, and the *rules* decide which one. `relu` and `tanh` can
# do with y, which the next layer's product needs anyway. Asking for x keeps a second value of the same
# size, and worse: x is the result of a product that was fused with `relu` into one kernel and never
# written to memory at all. One letter in a rule, and it must be.
#
# These values are called **activations**, 激活值. In training they take most of the memory. What cannot be
# kept can be computed again: that is *recomputation*, 重计算, a later lesson.

# %% [markdown]
# ## Break it
#
# ### Only the last reader
#
# `flows` holds lists. With one value for each key it would be two lines shorter.


# %%
def forgetful_backward(loss, wrt):
    flows = {loss: one}
    for y in reversed(order([loss])):
        if y in flows:
            flows |= dict(zip(y.inputs, RULES[y.op](y, flows[y]), strict=True))
    return [flows[v] for v in wrt]


for name, f in (
    ("sum of tanh(t)", op("sum", op("tanh", t))),
    ("sum of t · t", op("sum", op("mul", t, t))),
):
    pair = [run(walk(f, [t]), {t: at, one: 1.0})[0] for walk in (backward, forgetful_backward)]
    print(f"{name}: right {pair[0].round(3)} · forgetful {pair[1].round(3)}")

# %% [markdown]
# Right for every chain, wrong by half for t · t, and the types are in order. The assumption was *each
# value has one reader*. A test with a chain would not have found it. Small steps would.
#
# ### Memory that was used again
#
# `tanh` may write its result over its input: nobody reads the product again. An interpreter that does so
# needs less memory. Is the gradient still right? It depends on the rule.


# %%
def in_place(node, a):
    return np.tanh(a, out=a)


def tanh_from_x(y, dy):
    again = op("tanh", y.inputs[0])
    return [op("add", dy, op("neg", op("mul", dy, op("mul", again, again))))]


h = op("tanh", op("matmul", x, w))
loss = op("sum", op("mul", h, h))
for name, rule in (("rule reads y", tanh_rule), ("rule reads x", tanh_from_x)):
    gradient = backward(loss, [w], RULES | {"tanh": rule})
    pair = [run(gradient, {x: a, w: b, one: 1.0}, MEANING | m)[0] for m in ({}, {"tanh": in_place})]
    print(f"{name}: in place equals not in place: {np.allclose(*pair)}")

# %% [markdown]
# The same interpreter, the same network, and a rule that is right in itself. Where x was, there lies y
# by now. Frameworks that run each op at once meet this fault often, and count versions of each tensor to
# notice it. In a compiler the graph says who reads what and when: minidlc writes in place only after the
# last reader, and proves that for every plan (`print(plan.proof())`).

# %% [markdown]
# ## In the field
#
# The same ideas under other names. "—": no such thing, or not under one name.

# %%
SYSTEMS = ["here", "TVM", "XLA, JAX", "Glow", "MLIR", "PyTorch 2", "ONNX Runtime"]
lesson.table(
    [
        ["reverse mode on graphs 图上的反向模式", "`relax.transform.Gradient`", "`jax.vjp`, traced",
         "`glow::differentiate`", "Enzyme, on LLVM too", "AOTAutograd", "`GradientGraphBuilder`"],
        ["dy, adjoint 伴随", "`output_grad`", "cotangent", "gradient node", "shadow (Enzyme)",
         "`grad_output`", "`…_grad`"],
        ["what is kept 保存的中间值", "bindings that are read again", "residuals", "inputs of gradient nodes",
         "cache (Enzyme)", "saved tensors", "stashed activations"],
        ["activation 激活值", "—", "residual", "activation", "—", "activation", "activation"],
        ["computing again 重计算", "`start_checkpoint`", "`jax.checkpoint`", "—", "—",
         "`checkpoint`, min-cut partitioner", "memory optimizer"],
        ["written over 原地修改", "in-place rewriting", "buffer donation", "shared buffers",
         "bufferization", "version counter", "may-inplace"],
    ],
    header=SYSTEMS,
)  # fmt: skip

# %% [markdown]
# ## Check yourself
#
# Write your answer in place of `None` and run the cell.


# %%
def kept_in(depth, tanh):
    loss, weights = network(depth)
    return kept(loss, backward(loss, weights, RULES | {"tanh": tanh}))


# %%
lesson.ask(
    "1. A network of 16 layers `tanh(h @ w)`: how many values does the way back keep?",
    yours=None,
    truth=lambda: len(kept_in(16, tanh_rule)),
    hint="One a layer. Which one?",
    why="The results of `tanh`; the products are read by no rule.",
)
lesson.ask(
    "2. And if the rule of `tanh` reads x?",
    yours=None,
    truth=lambda: len(kept_in(16, tanh_from_x)),
    hint="The result of `tanh` is read by the next product's rule, except for the last one.",
    why="All 16 products, and the 15 results that a next product reads.",
)


# %%
def products(depth):
    loss, weights = network(depth)
    return sum(n.op == "matmul" for n in order(backward(loss, weights))) - depth


def growth():
    sizes = {}
    for depth in (8, 16):
        loss, weights = network(depth)
        sizes[depth] = peak([loss, *backward(loss, weights)[::-1]])
    return (sizes[16] - sizes[8]) / 8


# %%
lesson.ask(
    "3. Four layers, derivatives by the weights: how many `matmul` nodes has the way back?",
    yours=None,
    truth=lambda: products(4),
    hint="Two for each layer. But nobody asked for dx.",
    why="Four for the weights, three to get from a layer to the one before.",
)
lesson.ask(
    "4. In the better order: how many matrices more does each further layer cost?",
    yours=None,
    truth=growth,
    hint="The last column of the table, from 8 layers to 16.",
    why="The one value that the layer's rules read.",
)

# %% [markdown]
# **The question of the field**: *why is memory the limit of training, and not of inference?* Because the
# way back reads what the way there made: one value a layer, for each element of the batch. The compiler
# can see which, since both are one graph, and choose the order, the sharing, and what is computed twice.
#
# **Graded tasks**: those of assignment a3, when it comes.
#
# **What you have now**: reverse mode from graph to graph, gradients of gradients, a count of what must be
# remembered, and two rules that are both right and not equally good. **Next**: gradients that bite, the
# places where every rule is right and the result is NaN; then a training step that is one compiled call.
