# %% [markdown]
# # 04 · Gradients that bite
#
# **Twelve small functions, each with a value and a slope. In how many is every rule applied correctly
# and the gradient is NaN?**
#
# NaN, "not a number", is what a computer writes where arithmetic has no answer, such as 0 · ∞. In
# training it is the end: one NaN in one gradient is in every weight after the next step. No rule of
# lesson 01 is wrong, and it happens all the same.
#
# At the end you can say for each of the twelve whose fault it is, you have a detective that names the
# guilty node of a graph and its line, and you have mended the gradient of a real network.
#
# *Time: 35 minutes. You need: lesson 01 of this chapter; what f32 is, and that it ends near 3e38.*

# %%
import numpy as np

import minidlc as mc
from minidlc import lesson
from minidlc.autodiff.numeric import numeric_gradient
from minidlc.graph import apply
from minidlc.graph.graph import Node
from minidlc.graph.op import op_class
from minidlc.ops.gradients import where_true
from minidlc.support.extension import counting
from minidlc.support.locations import written

_ = np.seterr(all="ignore")  # NumPy's warnings would say what this lesson is about

# %% [markdown]
# ## Build it from nothing
#
# ### A product of slopes
#
# A chain of functions of one number. Its slope is the product of the slopes on the way: that is all of
# the chain rule. We print the factors.

# %%
CHAIN = {  # name: the function, and its slope at x, where y is its value
    "square": (lambda x: x * x, lambda x, y: 2 * x),
    "sqrt": (np.sqrt, lambda x, y: 1 / (2 * y)),
    "exp": (np.exp, lambda x, y: y),
    "log": (np.log, lambda x, y: 1 / x),
    "plus 1": (lambda x: x + 1, lambda x, y: 1.0),
    "invert": (lambda x: 1 / x, lambda x, y: -y * y),
}


def follow(names, x):
    x, factors = np.float64(x), []
    for name in names:
        f, df = CHAIN[name]
        y = f(x)
        factors.append(df(x, y))
        x = y
    print(f"{' → '.join(names)}: value {x:g}, slopes {[f'{s:g}' for s in factors]}", end="")
    print(f", together {np.prod(factors):g}")


follow(["square", "sqrt"], 3)
follow(["square", "sqrt"], 0)

# %% [markdown]
# √(x²) is |x|. At 0 it has a corner, and any number from −1 to 1 would be a fair slope. The rules say
# NaN: the slope of x² is 0, that of √ is infinite, and 0 · ∞ is undefined. Each factor is right. Their
# product would have to know where the 0 and the ∞ came from, and how fast.
#
# ### Numbers that end
#
# The other source is the end of the floating-point numbers. Three everyday formulas:

# %%
follow(["exp", "plus 1", "log"], 3)
follow(["exp", "plus 1", "log"], 1000)  # softplus: it should be 1000, slope 1
follow(["exp", "plus 1", "invert"], 1000)  # a sigmoid of -1000: 0, slope 0

# %% [markdown]
# exp(1000) is beyond f64, so it becomes ∞. In the last line the *value* is right: 1/∞ = 0. Nothing in
# the run there shows that anything is wrong, and the slope is NaN, again 0 · ∞. That is the treacherous
# kind: the loss looks healthy for one more step.
#
# ### The branch not taken
#
# The third source needs a choice: `where(c, a, b)` takes a where c holds, b elsewhere. Its rule passes
# dy on to the side that was taken, and 0 to the other one. Then the walk goes on, through *both*.


# %%
def where_slope(x):
    """The slope of where(x < 1, x, sqrt(x)), by the rules."""
    taken = np.float64(x < 1)
    through_x = taken * 1
    through_sqrt = (1 - taken) * (1 / (2 * np.sqrt(np.float64(x))))
    return through_x, through_sqrt, through_x + through_sqrt


for x in (4.0, 0.5, 0.0):
    print(
        f"x = {x}: by x {where_slope(x)[0]:g}, by sqrt {where_slope(x)[1]:g}, in sum {where_slope(x)[2]:g}"
    )

# %% [markdown]
# At 0 the function is x, its slope is 1. But the branch not taken has an infinite slope there, and gets
# 0 as its dy: 0 · ∞ once more, and NaN plus 1 is NaN. Whoever writes `where` to keep a computation away
# from a bad point has kept the *value* away from it, not the gradient.
#
# ### Twelve functions
#
# Now with the compiler's rules. Each line: a name, a function, a point, and the slope that it should have
# (at a corner, one that is fair).

# %%
TWELVE = [
    ("where(x < 1, x, √x)", lambda x: mc.where(x < 1.0, x, mc.sqrt(x)).sum(), [0], [1]),
    ("where(x = 0, 1, sin x / x)", lambda x: mc.where(mc.equal(x, 0.0), 1.0, mc.sin(x) / x).sum(), [0], [0]),
    ("√ of the sum of x²", lambda x: mc.sqrt((x * x).sum()), [0, 0], [0, 0]),
    ("standard deviation", lambda x: mc.sqrt(((x - x.mean()) * (x - x.mean())).mean()), [2, 2], [0, 0]),
    ("1 / (1 + exp(-x))", lambda x: (1.0 / (1.0 + mc.exp(-x))).sum(), [-1000], [0]),
    ("log(1 + exp x)", lambda x: mc.log(1.0 + mc.exp(x)).sum(), [1000], [1]),
    ("log of the sum of exp x", lambda x: mc.log(mc.exp(x).sum()), [1000, 0], [1, 0]),
    ("log softmax x, largest", lambda x: mc.log(mc.softmax(x, axis=0)).max(), [1000, 0], [0, 0]),
    ("the maximum, twice there", lambda x: x.max(), [1, 1], [0.5, 0.5]),
    ("the product, one is 0", lambda x: mc.prod(x).sum(), [0, 2, 3], [6, 0, 0]),
    ("x³ as a power, x < 0", lambda x: (x**3.0).sum(), [-2], [12]),
    ("x⁰ as a power", lambda x: (x**0.0).sum(), [0], [0]),
]  # fmt: skip


# %%
def slopes_of(f, point):
    point = np.array(point, float)
    graph = mc.trace(f, mc.f64[point.shape])
    [value], [slope] = mc.interpret(graph, [point]), mc.interpret(mc.grad(graph), [point])
    return value, slope


rows, bitten = [], 0
for name, f, point, right in TWELVE:
    value, slope = slopes_of(f, point)
    bitten += bool(np.isnan(slope).any())
    verdict = "NaN" if np.isnan(slope).any() else "right" if np.allclose(slope, right) else "wrong"
    rows.append([name, str(point), f"{value:g}", str(right), f"{slope.round(3).tolist()}", verdict])
lesson.table(rows, header=["function", "at", "value", "slope", "by the rules", ""])
print(bitten, "of", len(TWELVE), "are NaN")

# %% [markdown]
# Eight of twelve. The last four show that it can go well: somebody has thought about these rules. For
# the maximum, the elements that share it share the slope. The rule of the product multiplies *the others*
# and never divides by x. The power asks no logarithm of a negative number as long as nobody wants the
# slope by the exponent.

# %% [markdown]
# ## See it
#
# The graph of the first one. `dsqrt` is 0 where `x < 1`. Half of it is divided by √x: that is the rule
# of `sqrt`, and 0/0 at our point. Nothing in the graph says that this branch should not be looked at.

# %%
first = mc.trace(lambda x: mc.where(x < 1.0, x, mc.sqrt(x)), mc.f64[()])
mc.viz.graph(
    mc.value_and_grad(first), title="where(x < 1, x, √x): the way back runs through both branches"
)

# %% [markdown]
# ## Then the real one
#
# What can a compiler do? Three things. The first is to be careful in its own rules. A mask could be a
# product, dy · (x > 0). It is a `where`:

# %%
lesson.source(where_true, op_class("relu").gradient)

# %%
incoming = np.array([1.0, np.inf, np.nan])
x = np.array([-1.0, -1.0, -1.0])
print("as a product:", incoming * (x > 0), "· as a choice:", np.where(x > 0, incoming, 0))

# %% [markdown]
# Where `relu` was cut off nothing passes, not even NaN.
#
# The second: have an op for what people write by hand, and give the *whole* a rule. √ of a sum of
# squares is `reduce_l2`; log of a sum of exp is `reduce_log_sum_exp`; log of a softmax is
# `log_softmax`. Their values are computed another way (the largest number is subtracted first), and
# their rules see both factors at once:

# %%
lesson.source(op_class("reduce_l2").gradient, op_class("log_softmax").gradient)

# %%
WHOLE = {
    "√ of the sum of x²": lambda x: mc.reduce_l2(x).sum(),
    "1 / (1 + exp(-x))": lambda x: mc.sigmoid(x).sum(),
    "log(1 + exp x)": lambda x: mc.softplus(x).sum(),
    "log of the sum of exp x": lambda x: mc.reduce_log_sum_exp(x).sum(),
    "log softmax x, largest": lambda x: mc.log_softmax(x, axis=0).max(),
}
rows = []
for name, _, point, right in TWELVE:
    if name in WHOLE:
        value, slope = slopes_of(WHOLE[name], point)
        rows.append([name, f"{value:g}", str(right), f"{slope.round(3).tolist()}"])
lesson.table(rows, header=["as one op", "value", "slope", "by its rule"])

# %% [markdown]
# The third: a convention for corners, written down and the same everywhere. `relu` and `abs` have slope 0
# at 0, a norm too; elements that share a maximum share its slope. Convention, because there is no right
# answer; any number between the slopes at both sides is a **subgradient**, 次梯度.
#
# What no compiler can do is to mend `where(c, a, b)` of any a and b. There the reader has to keep the bad
# point out of the *branch*: the **double where**.


# %%
def root_or_x(x):
    small = x < 1.0
    return mc.where(small, x, mc.sqrt(mc.where(small, 1.0, x))).sum()


def sinc(x):
    zero = mc.equal(x, 0.0)
    return mc.where(zero, 1.0, mc.sin(x) / mc.where(zero, 1.0, x)).sum()


for f, (name, _, point, right) in zip((root_or_x, sinc), TWELVE[:2], strict=True):
    print(f"{name}: {slopes_of(f, point)[1]}, it should be {right}")

# %% [markdown]
# ## Plug yours in
#
# A network as people write it: the probabilities by softmax, the loss by a logarithm. On the digit
# classifier, whose scores go into the thousands.

# %%
model = mc.load_onnx(lesson.model("lenet"))
weights = {c.name: c.array for c in model.constants}
network = model.promote(list(weights))
[scores] = network.outputs
t = mc.Input("t", mc.f32[1, 10])


def with_loss(log_probabilities):
    return mc.Graph.of("loss", [*network.inputs, t], [-(t * log_probabilities).sum()])


by_hand = with_loss(mc.log(mc.softmax(scores, axis=1)))
images, labels = lesson.digits()
digits = [
    {"Input3": image, "t": np.eye(10, dtype="f")[[label]], **weights}
    for image, label in zip(images, labels, strict=True)
]
step = mc.compile(mc.value_and_grad(by_hand, list(weights)), threads=1)
results = [step(digit) for digit in digits]
print("loss is a number:    ", sum(bool(np.isfinite(loss)) for loss, *_ in results), "of 40")
print(
    "gradient is numbers: ",
    sum(all(np.isfinite(g).all() for g in gs) for _, *gs in results),
    "of 40",
)

# %% [markdown]
# A trained classifier, and not one gradient. Who is it? The detective is the interpreter of lesson 01.02
# with one question more: is there NaN in the result, and none in the inputs?


# %%
def detective(graph, inputs):
    values = dict(zip(graph.inputs, inputs, strict=True)) | {c: c.array for c in graph.constants}
    for node in graph.nodes:
        arrays = [None if v is None else values[v] for v in node.inputs]
        values[node] = node.op.reference(*arrays)
        if np.isnan(values[node]).any() and not any(np.isnan(a).any() for a in arrays):
            culprits.append((node, arrays))
    return [values[v] for v in graph.outputs]


culprits = []
gradient = mc.grad(by_hand, "Parameter194")
with mc.use(interpret=detective), counting() as calls:
    mc.interpret(gradient, [digits[0][i.name] for i in gradient.inputs])
node, arrays = culprits[0]
print(dict(calls))
print(f"{node.op.name}({', '.join(v.name for v in node.inputs)})", "made for:", *written(node.loc))
for v, array in zip(node.inputs, arrays, strict=True):
    print(f"    {v.name}: from {array.min():g} to {array.max():g}")

# %% [markdown]
# It names the node, what it read, and the line of ours for which autodiff made it, the one with `log`. Most
# probabilities of a sure classifier are 0 in f32. There `t` is 0 too, and so is `dlog`; the slope of a
# logarithm is 1/x: 0/0. (The loss is NaN for the same reason. There it is 0 · −∞.)
#
# We mend it with a rewrite before the gradient is made: where a `log` reads a `softmax`, put `log_softmax`.


# %%
def as_one_op(graph):
    new = {}
    for node in graph.nodes:
        inputs = [new.get(v, v) for v in node.inputs]
        inner = node.inputs[0]
        if node.op.name == "log" and isinstance(inner, Node) and inner.op.name == "softmax":
            new[node] = apply(
                "log_softmax", new.get(inner.inputs[0], inner.inputs[0]), axis=inner.op.axis
            )
        else:
            new[node] = apply(node.op.name, *inputs, **node.op.attributes())
    return mc.Graph.of(graph.name, graph.inputs, [new.get(o, o) for o in graph.outputs])


mended = as_one_op(by_hand)
print([n.op.name for n in by_hand.nodes][-5:], "→", [n.op.name for n in mended.nodes][-4:])
step = mc.compile(mc.value_and_grad(mended, list(weights)), threads=1)
results = [step(digit) for digit in digits]
print(
    "gradient is numbers: ",
    sum(all(np.isfinite(g).all() for g in gs) for _, *gs in results),
    "of 40",
)

# %% [markdown]
# The same formula, forty gradients. And a rule of yours, where no op stands for the whole: √ with slope 0
# at 0, for the two of the twelve that are left.


# %%
def calm_sqrt(op, y, dy):
    zero = mc.equal(y, 0.0)
    return [mc.where(zero, 0.0, dy * 0.5 / mc.where(zero, 1.0, y))]


with mc.use(**{"gradient.sqrt": calm_sqrt}), counting() as calls:
    for name, f, point, right in TWELVE[2:4]:
        graph = mc.trace(f, mc.f64[len(point)])
        slope = mc.compile(mc.grad(graph))(np.array(point, float))[0]
        print(f"{name}: {slope}, it should be {right}")
print(dict(calls))

# %% [markdown]
# ## The answer
#
# *In how many is the gradient NaN?* Eight of twelve, and whose fault is it?

# %%
WHO = {
    "numbers that end: an op for the whole, with a rule of its own": TWELVE[4:8],
    "a corner where 0 meets ∞: a convention, in a rule": TWELVE[2:4],
    "the branch not taken: the reader, with a double where": TWELVE[0:2],
    "nobody: the rule was written with care": TWELVE[8:12],
}
lesson.table([[why, len(group), ", ".join(g[0] for g in group)] for why, group in WHO.items()],
             header=["who can help", "of twelve", "which"])  # fmt: skip

# %% [markdown]
# Six of the eight can be mended in the compiler, by ops that know the whole or by conventions. Two cannot:
# a graph has no way to say "do not even look there". That is why the order of things matters: a pass that
# recognises `log(softmax(x))` *before* the gradient is made saves the gradient; the same pass after it has
# two separate factors before it and can do nothing.

# %% [markdown]
# ## Break it
#
# ### A little something
#
# The usual first aid: add a small number under the root.

# %%
print("f64:", slopes_of(lambda x: mc.sqrt((x * x).sum() + 1e-12), [0, 0])[1])
half = mc.trace(lambda x: mc.sqrt((x * x).sum() + 1e-12), mc.f16[2])
print("f16:", mc.interpret(mc.grad(half), [np.zeros(2, np.float16)])[0])

# %% [markdown]
# In f16 the smallest number above 0 is 6e-8. 1e-12 is 0 there, and the first aid has vanished without a
# word when somebody moved the model to a smaller type. The assumption was *the constant is there*.
#
# ### A convention that lies
#
# Our `calm_sqrt` says 0 at 0. For √x itself the slope there is infinite:

# %%
root = mc.trace(lambda x: mc.sqrt(x).sum(), mc.f64[1])
with mc.use(**{"gradient.sqrt": calm_sqrt}):
    print("calm:", mc.interpret(mc.grad(root), [np.zeros(1)])[0])
print("small steps, one side only:", f"{(np.sqrt(1e-12) - 0) / 1e-12:g}")
print("small steps, x² under it:  ", numeric_gradient(
    mc.trace(TWELVE[2][1], mc.f64[2]), {"x": np.zeros(2)})[0].round(6))  # fmt: skip

# %% [markdown]
# A descent that begins at 0 stays there for ever, and looks converged. What hides a NaN also hides the
# reason for it. minidlc keeps the infinite slope for `sqrt` and gives the convention to the norm, whose
# slope is bounded.

# %% [markdown]
# ## In the field
#
# The same ideas under other names. "—": no such thing, or not under one name.

# %%
SYSTEMS = ["here", "TVM", "XLA, JAX", "Glow", "MLIR", "PyTorch 2", "ONNX Runtime"]
lesson.table(
    [
        ["finding the first NaN 定位 NaN", "—", "`jax_debug_nans`", "—", "—", "`detect_anomaly`", "debug dumps of nodes"],
        ["double where 双重 where", "as here", "in its FAQ", "—", "—", "as here", "—"],
        ["log-sum-exp trick 数值稳定", "`log_softmax`", "`logsumexp`", "`CrossEntropyLoss`", "—",
         "`logsumexp`", "`SoftmaxCrossEntropyLoss`"],
        ["subgradient 次梯度", "—", "shared by ties of `max`", "—", "—", "shared by ties of `amax`", "—"],
        ["stopping a gradient 截断梯度", "`no_grad` bindings", "`stop_gradient`", "—", "—", "`detach`", "`STOP_GRADIENT_EDGES`"],
    ],
    header=SYSTEMS,
)  # fmt: skip

# %% [markdown]
# ## Check yourself
#
# Write your answer in place of `None` and run the cell.

# %%
lesson.ask(
    "1. `where(x > 0, log(x), 0)` at x = 0: is the gradient NaN? Answer yes or no.",
    yours=None,
    truth=lambda: "yes" if np.isnan(
        slopes_of(lambda x: mc.where(x > 0.0, mc.log(x), 0.0).sum(), [0])[1]).any() else "no",
    hint="Which dy does the branch with `log` get, and which slope has `log` at 0?",
    why="0 · ∞ in the branch not taken.",
)  # fmt: skip
lesson.ask(
    "2. The maximum of (3, 7, 7, 7): the slope by the last element, as a number?",
    yours=None,
    truth=lambda: float(slopes_of(lambda x: x.max(), [3, 7, 7, 7])[1][-1]),
    within=1e-6,
    hint="They share it.",
    why="A third each: together they move the maximum by 1 if all three move by 1.",
)


# %%
def unnoticed():
    found = [slopes_of(f, point) for _, f, point, _ in TWELVE]
    return sum(bool(np.isfinite(v)) and bool(np.isnan(s).any()) for v, s in found)


lesson.ask(
    "3. The product of (0, 0, 5): the three slopes, as a list?",
    yours=None,
    truth=lambda: slopes_of(lambda x: mc.prod(x).sum(), [0, 0, 5])[1].tolist(),
    hint="Each slope is the product of the others.",
    why="One zero is always among the others.",
)
lesson.ask(
    "4. How many of the twelve have a value that is a number, and a gradient that is NaN?",
    yours=None,
    truth=unnoticed,
    hint="The column *value* of the table.",
    why="In the other two the loss is infinite, so that somebody may notice.",
)

# %% [markdown]
# **The question of the field**: *can a compiler repair a gradient?* Where it knows the whole, yes, and
# before the gradient is made: recognise what was meant, and give it one rule. Where the program says to
# compute a bad branch and then not to use it, no.
#
# **Graded tasks**: those of assignment a3, when it comes.
#
# **What you have now**: three sources of NaN, a detective for graphs, a rewrite that saved forty
# gradients, and a list of what is convention. **Next** in this chapter: a training step as one compiled
# call, with the scaling that keeps small gradients above 0 in f16.
