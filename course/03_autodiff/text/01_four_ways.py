# %% [markdown]
# # 01 · Four ways to a derivative
#
# **A network has 5,994 weights, and its loss takes one run. What do its 5,994 derivatives take?**
#
# Training asks one thing of a network, again and again: if this weight were a little larger, would
# the loss rise or fall, and how fast? There are four ways to an answer: paper, small steps,
# formulas, and a fourth that is so cheap that it is hard to believe.
#
# At the end stand four numbers for one real network, a digit classifier, and a machine program that
# computes all its derivatives by rules that you wrote.
#
# *Time: 50 minutes. You need: what a derivative is, the chain rule, Python and NumPy. Chapter 1
# helps with the words* graph *and* op*; none of its code is used here.*

# %%
import functools

import numpy as np

import minidlc as mc
from minidlc import lesson
from minidlc.autodiff import backward, tape
from minidlc.autodiff.formula import swell
from minidlc.autodiff.numeric import numeric_gradient, step_errors
from minidlc.graph.op import op_class
from minidlc.loop.count import flops
from minidlc.support.extension import counting
from minidlc.support.locations import steps

# %% [markdown]
# ## Build it from nothing
#
# ### On paper
#
# We need a function that is a program: steps that build on each other. The **logistic map** is the
# shortest one in the literature. It is one line, repeated.


# %%
def logistic(x, n):
    for _ in range(n):
        x = 4 * x * (1 - x)
    return x


print([round(logistic(0.3, n), 4) for n in range(1, 6)])

# %% [markdown]
# For one step the derivative is 4 − 8x. For two, multiply out and differentiate each power:
#
# 16x − 80x² + 128x³ − 64x⁴, so 16 − 160x + 384x² − 256x³.


# %%
def by_hand(x):
    return 16 - 160 * x + 384 * x * x - 256 * x * x * x


print("two steps, at 0.3:", round(by_hand(0.3), 6))

# %% [markdown]
# That is right, fast, and exact. It took a person, and a slip of the pen would have looked the
# same. For three steps the polynomial has degree 8; for ten, 1,024. And when somebody changes the
# function, the person starts again. The first way does not grow.
#
# ### By small steps
#
# The definition says: move x by a little h, see how far f moves, divide. A computer can do that
# with any function, without knowing what is in it. **Numeric differentiation** comes in two
# forms: step to one side, or half a step to each.


# %%
def one_side(f, x, h):
    return (f(x + h) - f(x)) / h


def central(f, x, h):
    return (f(x + h) - f(x - h)) / (2 * h)


def two_steps(x):
    return logistic(x, 2)


rows = []
for k in range(1, 16, 2):
    errors = [abs(way(two_steps, 0.3, 10.0**-k) / by_hand(0.3) - 1) for way in (one_side, central)]
    rows.append([f"1e-{k:02}", *(f"{e:.0e}" for e in errors)])
lesson.table(rows, header=["h", "one side: error", "central: error"])

# %% [markdown]
# Read the columns from the top. The error falls, as h for one side, as h² for the central form:
# this is what the straight line leaves of the curve, the **truncation error**. Then it rises. Two
# numbers that agree in most digits are subtracted, few digits are left, and dividing by a small h
# makes their **rounding error** large: about ε/h, where ε = 2⁻⁵² is what f64 rounds by.
#
# The best h balances the two: for the central form near the cube root of ε, 6e-6. There the
# derivative has about ten right digits of sixteen. In f32 it has five of seven, on a good day.
#
# The other cost is plain: two runs of f for *each* input.
#
# ### By formulas
#
# What the person did, a program can do as well. A **formula** is a number, a letter, or a sign with
# two formulas. Our function needs two signs, since 1 − x is 1 + (−1)·x. We drop what one drops on
# paper: 0 in a sum, 0 and 1 in a product.


# %%
def plus(a, b):
    return b if a == 0 else a if b == 0 else ("+", a, b)


def times(a, b):
    if 0 in (a, b):
        return 0
    return b if a == 1 else a if b == 1 else ("·", a, b)


def text(f):
    return f"({text(f[1])} {f[0]} {text(f[2])})" if isinstance(f, tuple) else str(f)


def logistic_formula(n):
    x = "x"
    for _ in range(n):
        x = times(times(4, x), plus(1, times(-1, x)))
    return x


print(text(logistic_formula(1)))
print(text(logistic_formula(2)))

# %% [markdown]
# **Symbolic differentiation** is one rule from the textbook for each sign.


# %%
def differentiate(f, letter):
    match f:
        case ("+", a, b):
            return plus(differentiate(a, letter), differentiate(b, letter))
        case ("·", a, b):
            da, db = differentiate(a, letter), differentiate(b, letter)
            return plus(times(da, b), times(a, db))
        case _:
            return int(f == letter)


def value(f, x):
    return eval(text(f).replace("·", "*"), {"x": x})


first, second = (differentiate(logistic_formula(n), "x") for n in (1, 2))
print(text(first))
print(text(second))
print("two steps, at 0.3:", round(value(second, 0.3), 6))

# %% [markdown]
# Exact, and no person was needed. But look at the length of the second line. How does it grow?


# %%
def operations(f):
    return 1 + operations(f[1]) + operations(f[2]) if isinstance(f, tuple) else 0


rows = []
for n in range(1, 10):
    f = logistic_formula(n)
    rows.append([n, operations(f), operations(differentiate(f, "x"))])
lesson.table(rows, header=["steps", "operations of f", "operations of f'"])

# %% [markdown]
# f doubles with each step, since it reads the step before twice. f' more than doubles. This is
# **expression swell**, 表达式膨胀. Nine steps of a program of one line: a formula of eighteen
# thousand operations.
#
# Who is to blame? Let us count once more, and this time count equal pieces once: as if each piece
# got a name when it is first written, and only the name were written after that.


# %%
def pieces(f):
    return {f} | pieces(f[1]) | pieces(f[2]) if isinstance(f, tuple) else set()


for n in (1, 2, 4, 8):
    f = logistic_formula(n)
    print(n, "steps:", len(pieces(f)), "for f,", len(pieces(differentiate(f, "x"))), "for f'")

# %% [markdown]
# At eight steps 7,936 operations become 69, and each further step adds nine. The rules of the
# textbook are not to blame. What swells is the *way of writing*: a formula has no names, so it
# cannot say "the same as there". A program can. (S. Laue, 2019, shows that with names symbolic and
# automatic differentiation are the same.)
#
# ### Automatically
#
# So we keep the program. Each step gets its number as always. Beside the number we write down which
# numbers it was made of, and how fast it changes with each of them: a **local derivative**, one
# number, known at once. That record is called a **tape**, as if the program were filmed.


# %%
class Number:
    def __init__(self, value, *parents):
        self.value, self.parents = value, parents  # parents: (number, local derivative)

    def __add__(self, other):
        other = other if isinstance(other, Number) else Number(other)
        return Number(self.value + other.value, (self, 1), (other, 1))

    def __mul__(self, other):
        other = other if isinstance(other, Number) else Number(other)
        return Number(self.value * other.value, (self, other.value), (other, self.value))

    def __rsub__(self, other):
        return self * -1 + other

    __radd__, __rmul__ = __add__, __mul__


x = Number(0.3)
y = logistic(x, 2)
print("value:", round(y.value, 6), "· made of:", [round(p.value, 4) for p, _ in y.parents])

# %% [markdown]
# The function has not changed. `4 * x * (1 - x)` asks x how to multiply, and x is ours.
#
# Now the chain rule, from the result back to the inputs. Call ȳ how the result changes with y. For
# the result itself it is 1. A number that was made from p with local derivative d passes d · ȳ on
# to p. What p gets from all that read it is added up. If we go through the tape from its end, the sum
# of a number is complete before we come to it.


# %%
def in_order(y):
    done = {}

    def visit(v):
        if v not in done:
            for parent, _ in v.parents:
                visit(parent)
            done[v] = True

    visit(y)
    return list(done)


def gradient(y, inputs):
    change = {y: 1}
    for v in reversed(in_order(y)):
        for parent, local in v.parents:
            change[parent] = change.get(parent, 0) + local * change[v]
    return [change[x] for x in inputs]


print("two steps, at 0.3:", round(gradient(y, [x])[0], 6))

# %% [markdown]
# Thirty lines, and this is **reverse mode** of **automatic differentiation**, 自动微分, known in
# machine learning as backpropagation. (S. Linnainmaa described it in 1970; B. Speelpenning wrote a
# compiler that does it in 1980.) No formula was written and no h was chosen.
#
# Side by side, two steps and more. The tape's column counts the numbers made on the way there and
# two operations for each local derivative on the way back.


# %%
def tape_work(y):
    nodes = [v for v in in_order(y) if v.parents]
    return len(nodes) + 2 * sum(len(v.parents) for v in nodes)


rows = []
for n in (2, 4, 8, 9):
    x = Number(0.3)
    y = logistic(x, n)
    [exact] = gradient(y, [x])
    f = differentiate(logistic_formula(n), "x")
    near = central(lambda x, n=n: logistic(x, n), 0.3, 1e-6)
    rows.append([n, f"{exact:.6f}", f"{value(f, 0.3) - exact:.0e}", f"{near - exact:.0e}"])
    rows[-1] += [operations(f), tape_work(y)]
lesson.table(
    rows,
    header=["steps", "tape", "formula differs by", "small steps by", "formula: work", "tape: work"],
)

# %% [markdown]
# ### Many inputs
#
# The logistic map has one input. A network has thousands, and one result. Speelpenning's own
# example was a product of n numbers. Its n derivatives: the product of all the others.


# %%
def product(values):
    y = values[0]
    for v in values[1:]:
        y = y * v
    return y


rows = []
for n in (4, 16, 64):
    letters = [f"x{k}" for k in range(n)]
    partials = [differentiate(functools.reduce(times, letters), letter) for letter in letters]
    numbers = [Number(1 + 1 / (k + 2)) for k in range(n)]
    rows.append([n, n - 1, 2 * n * (n - 1), sum(map(operations, partials))])
    rows[-1].append(tape_work(product(numbers)))
lesson.table(rows, header=["inputs", "f", "small steps", "formulas", "tape"])

# %% [markdown]
# Multiplications and additions, all n derivatives. Small steps run f twice for each input: n².
# Formulas do not swell here, but each of n results is a product of its own: n² too. The tape needs
# five times the work of f, for four inputs and for sixty-four. One walk back serves all inputs.
#
# That is a theorem. Whatever the program: *all* derivatives of one result cost a small multiple of
# it, never more than five times its additions and multiplications (W. Baur and V. Strassen, 1983;
# A. Griewank, 1989). It is called the **cheap gradient principle**.

# %% [markdown]
# ## See it
#
# A tape belongs to one run: the numbers are in it. A compiler wants to do the work once, for all
# runs. minidlc makes a **graph** of the derivatives from the graph of the function. One layer of a
# network, with the sum of its outputs as the loss:


# %%
def layer(x, w, b):
    return mc.relu(x @ w + b).sum()


graph = mc.trace(layer, mc.f32[4, 8], mc.f32[8, 3], mc.f32[3])
both = mc.value_and_grad(graph)
print(both)

# %%
mc.viz.graph(both)

# %% [markdown]
# What bears a ∂ was made by autodiff. In the upper row stands the layer as we wrote it. In the lower
# row it comes once more, from the end to the beginning: `sum` became `expand`, `relu` became `where`,
# the addition of `b` became a sum, `matmul` became two products. The lines from one row to the other
# are what the tape kept: values of the way there that the way back reads.
#
# The graph swells as little as the tape does. (minidlc counts 1 − x as one operation, so that its
# formulas are a little shorter than ours.)

# %%
rows = []
for n in (1, 2, 4, 8, 16):
    counted = swell(mc.trace(lambda x, n=n: logistic(x, n), mc.f64[()]))
    rows.append([n, counted.formula, counted.symbolic, counted.automatic])
lesson.table(rows, header=["steps", "formula of f", "formula of f'", "graph of f'"])

# %% [markdown]
# ## Then the real one
#
# `minidlc/autodiff/chain.py` has our walk. `order` are the nodes through which a change gets
# further, `sums` is our `change`, and the nodes are read from the last to the first:

# %%
lesson.source(backward)

# %% [markdown]
# It works on values of a graph where ours works on numbers, so that what it makes are nodes, and
# nothing runs. What it adds to ours:
#
# | here | why |
# |---|---|
# | `_depending` | nodes that no input of `wrt` reaches are left out: no work for constants |
# | `sums` holds lists, `_total` adds | an addition becomes a node, in a fixed order |
# | `getitem`, tuples | ops with several results |
# | `None` | nothing flows: a value that does not matter needs no zeros |
# | `local_gradient` | the rule of the op, or of what the op is made of, or yours |
#
# A rule stands in the class of its op. Here is that of `add`: two lines, if one knows
# **broadcasting**. A `b` of 3 elements is added to 4 rows, so each of its elements moves four
# results, and what they are due is summed.

# %%
lesson.source(op_class("add").gradient, op_class("relu").gradient)

# %% [markdown]
# And the tape, for NumPy arrays, grown up on one slide. Compare it with our `Number`:

# %%
lesson.source(tape.Variable, lines="1:26")
lesson.source(tape.gradients)

# %% [markdown]
# ## Plug yours in
#
# The digit classifier that comes with minidlc. Its weights are constants of the file; `promote`
# makes inputs of them. The loss is the **cross-entropy**: minus the logarithm of the probability
# that the network gives to the right digit. `t` is 1 at the right digit, 0 elsewhere.

# %%
model = mc.load_onnx(lesson.model("lenet"))
stored = {c.name: c.array for c in model.constants}
network = model.promote(list(stored))
[scores] = network.outputs
t = mc.Input("t", mc.f32[1, 10])
right = (t * mc.log_softmax(scores, axis=1)).sum()
loss = mc.Graph.of("loss", [*network.inputs, t], [-right])
print([node.op.name for node in loss.nodes])
print("weights:", sum(a.size for a in stored.values()))

# %% [markdown]
# Three rules of ours. `y` is the node, `dy` says how the loss changes with it; both are values of a
# graph, and what we return is a value for each input.


# %%
def sum_back(dy, x):
    ahead = dy.ndim - x.ndim
    axes = [d for d in range(dy.ndim) if d < ahead or x.shape[d - ahead] < dy.shape[d]]
    return dy.sum(axis=tuple(axes)).reshape(x.shape) if axes else dy


def my_add(op, y, dy):
    return [sum_back(dy, x) for x in y.inputs]


def my_relu(op, y, dy):
    return [mc.where(y > 0, dy, 0.0)]


def my_matmul(op, y, dy):
    a, b = y.inputs
    return dy @ b.T, a.T @ dy


mine = {"gradient.add": my_add, "gradient.relu": my_relu, "gradient.matmul": my_matmul}
with mc.use(**mine), counting() as calls:
    training = mc.value_and_grad(loss, list(stored))
print(dict(calls))
print(len(loss.nodes), "nodes of the loss,", len(training.nodes), "with all its derivatives")

# %% [markdown]
# Our rules ran where the network adds, cuts off and multiplies; the compiler brought the others, of
# `conv`, `max_pool`, `reshape`, `log_softmax`. The result is a graph like any other. So it is
# compiled like any other: fused, planned, scheduled, machine code.

# %%
step = mc.compile(training, threads=1)
images, labels = lesson.digits()
images, targets = images / 255, np.eye(10, dtype=np.float32)[labels]


def random_weights(seed):
    rng = np.random.default_rng(seed)
    fan_in = {"Parameter5": 25, "Parameter87": 200, "Parameter193": 256}
    spread = {name: np.sqrt(2 / fan_in.get(name, np.inf)) for name in stored}
    return {
        name: (0.1 * (a.ndim < 4) + spread[name] * rng.standard_normal(a.shape)).astype("f")
        for name, a in stored.items()
    }


def close(a, b):
    return np.allclose(a, b, atol=5e-3)


weights = random_weights(1)
given = {"Input3": images[0], "t": targets[:1], **weights}
_, *ours = step(given)
theirs = mc.interpret(mc.grad(loss, list(stored)), given)

# %% [markdown]
# Are they right? The compiler's own rules are one witness, small steps are the other. (Their step is
# a short one: `relu` and `max_pool` have kinks, and a long step walks across them.)

# %%
biases = ["Parameter88", "Parameter194"]
small = numeric_gradient(loss, given, biases, step=3e-4)
print("as the compiler's rules say:", all(map(close, ours, theirs)))
print("as small steps say:", close(ours[3], small[0]) and close(ours[5], small[1]))

# %% [markdown]
# Does it train? We throw the trained weights away, begin with random ones, and go a little way
# against the gradient for each of the 40 digits. That is **gradient descent**.

# %%
classify = mc.compile(network, threads=1)


def correct(weights):
    found = [classify({"Input3": image, **weights})[0].argmax() for image in images]
    return int((np.array(found) == labels).sum())


print("before:", correct(weights), "of 40 digits right")
for _ in range(14):
    for image, target in zip(images, targets, strict=True):
        _, *slopes = step({"Input3": image, "t": target[None], **weights})
        pairs = zip(weights.items(), slopes, strict=True)
        weights = {name: w - np.float32(0.03) * dw for (name, w), dw in pairs}
print("after: ", correct(weights), "of 40 digits right")

# %% [markdown]
# From random numbers to every digit, by rules that stand in this notebook. (40 digits learnt by
# heart prove that the gradient is right, and nothing about digits that it has not seen. Lesson 05
# of this chapter trains properly.)

# %% [markdown]
# ## The answer
#
# *What do the 5,994 derivatives take?* We count operations in the plain loops that minidlc writes
# for each graph: additions, products, comparisons.


# %%
def work(graph):
    return sum(flops(kernel.loops) for kernel in mc.compile(graph, opt_level=0).kernels)


once, all_of_them = work(loss), work(training)
print(f"the loss: {once / 1e6:.2f} million operations")
print(f"with all derivatives: {all_of_them / 1e6:.2f} million, {all_of_them / once:.1f} times that")

# %% [markdown]
# And the formula? It cannot be written down, but counted. The walk of lesson 01.03 carried ranges
# through a graph; here it carries the length of each number's formula. An element of a `conv` or
# `matmul` is a sum of products: as long as all it reads, and two signs more for each product.


# %%
def length(node, a, *rest):
    op = node.op
    match op.name:
        case "conv" | "matmul":
            ones = [np.ones_like(w) for w in rest]
            products = op.reference(np.ones_like(a), *ones)
            return op.reference(a, *ones) + 2 * products - 1
        case "max_pool":
            k = int(np.prod(op.kernel_shape))
            mean = op_class("average_pool")(op.kernel_shape, strides=op.strides)
            return k * mean.reference(a) + k - 1
        case "reshape":
            return op.reference(a)
    return a + sum(rest) + 1


lengths = {v: np.zeros(v.type.shape) for v in (*model.inputs, *model.constants)}
for node in model.nodes:
    lengths[node] = np.asarray(length(node, *(lengths[v] for v in node.inputs)))
rows = [[n.op.name, f"{lengths[n].max():,.0f}"] for n in model.nodes if n.op.name != "reshape"]
lesson.table(rows, header=["op", "operations in the formula of one element"])
total = lengths[model.nodes[-1]].sum()

# %%
runs = 2 * sum(a.size for a in stored.values())
lesson.table(
    [
        ["paper", "a person, and again after each change", "all, if no slip was made"],
        ["small steps", f"{runs:,} runs of the loss: {runs * once / 1e9:.0f}e9 operations", "half"],
        ["formulas", f"the ten scores alone: {total / 1e9:.1f}e9 operations", "all"],
        [
            "automatic",
            f"{all_of_them / 1e6:.1f}e6 operations: {all_of_them / once:.1f} runs",
            "all",
        ],
    ],
    header=["way", "5,994 derivatives take", "right digits"],
)

# %% [markdown]
# So the answer: less than three runs. The loss and its 5,994 derivatives together cost what three
# losses would. That ratio stays where it is for a network of a billion weights, and it is why
# networks of a billion weights can be trained at all.

# %% [markdown]
# ## Break it
#
# ### A rule that forgets
#
# The rule for `add` without summing back. It is the mistake that everybody makes once.


# %%
def forgetful(op, y, dy):
    return dy, dy


try:
    with mc.use(**{"gradient.add": forgetful}):
        mc.grad(loss, list(stored))
except mc.CompileError as error:
    print(error)

# %% [markdown]
# A gradient has the type of its input. That is checked for each rule, each time, and here it names
# the op and the node of the file.
#
# ### A rule that lies
#
# This one returns the right type: it forgets that `relu` cuts off.


# %%
def careless(op, y, dy):
    return [dy]


with mc.use(**{"gradient.relu": careless}):
    wrong = mc.grad(loss, "Parameter88")
[lie] = mc.interpret(wrong, given)
print("as our rule says:", close(lie, ours[3]))
print("as small steps say:", close(lie, small[0]))

# %% [markdown]
# Nobody complained. The graph is well formed, its types are right, it even trains, a little. No
# verifier can know what the derivative of an op is. What finds such a lie is the second way. That
# is what small steps are for: slow, half the digits, and *independent*. Every rule of minidlc is
# compared with them, in f64, at every example of its op.
#
# ### A step that is too small
#
# And the second way has its own trap. The cautious reader takes a very small h:

# %%
for h in (1e-2, 1e-5, 1e-9):
    [error] = step_errors(loss, given, [h], "Parameter194")
    words = "three digits or more" if error < 1e-3 else "about one digit"
    print(f"h = {h:.0e}:", "nothing: every derivative is 0" if error == 1 else f"right to {words}")

# %% [markdown]
# In f32, a weight of 0.1 does not move by 1e-9: the sum rounds back to 0.1, and the loss does not
# change at all. The assumption was *the smaller, the better*. It holds for real numbers, and a
# computer has none.
#
# One more, since it will come up: at a kink there is no derivative, and each way says what it
# likes.

# %%
kink = mc.trace(lambda x: mc.relu(x), mc.f64[()])
print("small steps: ", numeric_gradient(kink, {"x": np.array(0.0)})[0].round(6))
print("automatic:   ", mc.interpret(mc.grad(kink), [np.array(0.0)])[0])

# %% [markdown]
# ## In the field
#
# The same ideas under other names. "—": no such thing, or not under one name.

# %%
SYSTEMS = ["here", "TVM", "XLA, JAX", "Glow", "MLIR", "PyTorch 2", "ONNX Runtime"]
lesson.table(
    [
        ["automatic differentiation 自动微分", "`relax.transform.Gradient`", "JAX: `jax.grad`",
         "`glow::differentiate`", "Enzyme, outside the project", "autograd; AOTAutograd",
         "training graphs"],
        ["reverse mode 反向模式", "the only one", "`jax.vjp`", "the only one", "Enzyme",
         "`backward`", "the only one"],
        ["gradient rule 梯度规则", "`FPrimalGradient`", "JVP and transpose rules",
         "in `Grad.cpp`", "—", "`derivatives.yaml`", "`GradientBuilderBase`"],
        ["tape 计算磁带", "—", "— (JAX traces)", "—", "—", "graph of `grad_fn`", "—"],
        ["gradient as a graph 梯度图", "a function of Relax", "jaxpr, then HLO",
         "nodes of the function", "—", "joint graph of AOTAutograd", "nodes of the graph"],
    ],
    header=SYSTEMS,
)  # fmt: skip

# %%
lesson.table(
    [
        ["numeric differentiation 数值微分", "`check_numerical_grads`", "`check_grads`",
         "tests of gradients", "—", "`gradcheck`", "`GradientChecker`"],
        ["your own rule 自定义梯度", "`register_gradient`", "`custom_vjp`", "—", "—",
         "`autograd.Function`", "registered gradient builders"],
    ],
    header=SYSTEMS,
)  # fmt: skip

# %% [markdown]
# Symbolic differentiation, 符号微分, and its swell live elsewhere: Mathematica, Maple, SymPy. A. Baydin and others,
# *Automatic differentiation in machine learning: a survey* (2018), compares the ways on the logistic
# map, as we did.

# %% [markdown]
# ## Check yourself
#
# Write your answer in place of `None` and run the cell.

# %%
lesson.ask(
    "1. The graph of f' of the logistic map: how many nodes for 12 steps?",
    yours=None,
    truth=lambda: swell(mc.trace(lambda x: logistic(x, 12), mc.f64[()])).automatic,
    hint="The table under *See it*: what does one more step add?",
    why="Eight nodes a step. The formula would have more than a hundred thousand operations.",
)
lesson.ask(
    "2. How many runs of the loss give the derivative by the ten numbers of `Parameter194` by "
    "central differences?",
    yours=None,
    truth=2 * stored["Parameter194"].size,
    hint="Two for each number.",
    why="One walk back would give all 5,994 for less than three.",
)


# %%
def best_step():
    f = mc.trace(lambda x: mc.tanh(x * x), mc.f32[()])
    steps = [1e-1, 5e-3, 1e-6]
    errors = step_errors(f, {"x": np.float32(0.7)}, steps)
    return steps[int(np.argmin(errors))]


lesson.ask(
    "3. In f32, which step is the best for central differences: 1e-1, 5e-3 or 1e-6?",
    yours=None,
    truth=best_step,
    hint="f32 rounds by 2⁻²³, about 1e-7. The cube root of that?",
    why="The cube root of 1.2e-7 is 4.9e-3.",
)
lesson.ask(
    "4. The derivatives by `Parameter194` alone, the bias of the last layer: how many convolutions "
    "of any kind has the way back?",
    yours=None,
    truth=lambda: sum(
        "conv" in n.op.name and "gradient" in steps(n.loc)
        for n in mc.grad(loss, "Parameter194").nodes
    ),
    hint="How far back does the walk have to go?",
    why="The bias is added at the very end. `_depending` keeps what a change of it reaches.",
)

# %% [markdown]
# **The question of the field**: *why does the compiler need autodiff?* Because half of training, and
# more than half of its work, is code that nobody wrote. If a library makes it call by call, the
# compiler never sees it: no fusion, no memory plan, no schedule for two thirds of the operations.
# Made as a graph, before everything else, it is optimised like the rest, once and for all runs. The
# measure of this lesson: 5,994 derivatives for 1.8 losses, and each rule is two lines.
#
# **Graded tasks**: those of assignment a3, when it comes.
#
# **What you have now**: four ways, each of which you have seen fail or win; a tape of thirty lines;
# three rules that trained a network in machine code; and small steps to catch a lie. **Next**: a tape
# goes back from one result to many inputs. Lesson 02 goes forward, from one input to many results.
