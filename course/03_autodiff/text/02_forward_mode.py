# %% [markdown]
# # 02 · Forward mode
#
# **An image gets a little brighter, and ten scores of a network move. Do their ten derivatives take
# ten walks back, or one walk forward?**
#
# Lesson 01 went back: from one loss to 5,994 weights, for the price of two runs. Here the table is
# turned. One number changes, the brightness, and we ask for the derivatives of ten results.
#
# At the end there is a rule of thumb with a count behind it, an exact second derivative, and a
# program of eighteen lines, right in every line, that gives a wrong derivative.
#
# *Time: 35 minutes. You need: lesson 01 (local derivatives, the tape), and matrices.*

# %%
import numpy as np

import minidlc as mc
from minidlc import lesson
from minidlc.autodiff import jvp, local_tangent, tape
from minidlc.autodiff.numeric import numeric_gradient
from minidlc.graph import build
from minidlc.graph.inline import inlined
from minidlc.loop.count import flops
from minidlc.support.extension import counting

# %% [markdown]
# ## Build it from nothing
#
# ### A number that moves
#
# The tape wrote down how each number was made, and came back later. If there is *one* input we need
# not come back. Each number can say at once how fast it moves when the input moves with speed 1.
# So it is two numbers: its value, and its **tangent**, the speed.


# %%
class Dual:
    def __init__(self, value, tangent=0):
        self.value, self.tangent = value, tangent

    def __add__(self, other):
        a, b = self, dual(other)
        return type(self)(a.value + b.value, a.tangent + b.tangent)

    def __mul__(self, other):
        a, b = self, dual(other)
        return type(self)(a.value * b.value, a.tangent * b.value + a.value * b.tangent)

    def __rsub__(self, other):
        return self * -1 + other

    __radd__, __rmul__ = __add__, __mul__


def dual(x):
    return x if isinstance(x, Dual) else Dual(x)


# %% [markdown]
# The rules are those of every textbook: a sum moves as fast as both parts together, a product by
# the product rule. Here is the logistic map of lesson 01, unchanged:


# %%
def logistic(x, n):
    for _ in range(n):
        x = 4 * x * (1 - x)
    return x


def slope(f, x):
    return f(Dual(x, 1)).tangent


print("two steps, at 0.3:", round(slope(lambda x: logistic(x, 2), 0.3), 6))
print("on paper:         ", round(16 - 160 * 0.3 + 384 * 0.3**2 - 256 * 0.3**3, 6))

# %% [markdown]
# Eighteen lines, no tape, and nothing to remember: when a step is done, what came before may be
# forgotten. This is **forward mode**, 前向模式 (R. Wengert, 1964).
#
# Such pairs are called **dual numbers**, 对偶数. They look like the small steps of lesson 01: a
# value plus h times a tangent. Multiply two of them, (a + a'h)(b + b'h): the product rule appears,
# and a rest a'b'h². Small steps compute the rest, and have to make h small. Dual numbers say h² = 0
# and drop it. Hence they are exact.
#
# ### Many directions
#
# With arrays in place of numbers the class works as it is. Two more ops and it holds a layer of a
# network.


# %%
class DualArray(Dual):
    def __matmul__(self, w):  # w does not move
        return DualArray(self.value @ w, self.tangent @ w)

    def relu(self):
        return DualArray(np.maximum(self.value, 0), self.tangent * (self.value > 0))


rng = np.random.default_rng(0)
w1, b1, w2 = (rng.standard_normal(shape) for shape in ((3, 16), (1, 16), (16, 5)))


def network(x):
    return (x @ w1 + b1).relu() @ w2


x = rng.standard_normal((1, 3))
brighter = network(DualArray(x, np.ones((1, 3))))
print("five results move by", brighter.tangent.round(3)[0])

# %% [markdown]
# The tangent of the input may be any direction: here all three inputs rise alike. What comes out
# is a **directional derivative**, all five at once.
#
# Write every derivative of every result into a table: five rows for the results, three columns for
# the inputs. That is the **Jacobian**, 雅可比矩阵, J. A run of forward mode with direction v gives J
# times v. So the direction (1, 0, 0) gives its first column. A walk back of the tape, beginning
# with weights u on the results, gives u times J: a combination of its *rows*.

# %%
columns = [network(DualArray(x, np.eye(3)[[k]])).tangent[0] for k in range(3)]
rows = []
for k in range(5):
    given = tape.Variable(x)
    result = (given @ w1 + b1).relu() @ w2
    [row] = tape.gradients((result * np.eye(5)[k]).sum(), [given])
    rows.append(row[0])
print(np.array(columns).T.round(3))
print("the same from", len(columns), "runs forward and", len(rows), "walks back:", end=" ")
print(np.allclose(np.array(columns).T, rows))

# %% [markdown]
# ### Derivatives of derivatives
#
# A `Dual` never asks what its value is. It may be a `Dual` itself. Then the tangent of the tangent
# is the second derivative, exact again.


# %%
def second(f, x):
    return f(Dual(Dual(x, 1), Dual(1, 0))).tangent.tangent


def cube(x):
    return x * x * x


print("x³ at 2: ", slope(cube, 2), "and", second(cube, 2))
print("on paper:", 3 * 2**2, "and", 6 * 2)

# %% [markdown]
# ## See it
#
# In a graph a `Dual` is two values: the node as it was, and one beside it that says how it moves.
# The walk is that of an interpreter, first nodes first. This function makes such a graph of a graph
# of minidlc. It knows the ops of the digit classifier, in which only the image moves.


# %%
def moves(node, tangents):
    dx = tangents.get(node.inputs[0])
    match node.op.name:
        case "conv" | "matmul" | "reshape":  # linear: how it acts is how it moves
            return build(node.op, [dx, *node.inputs[1:]])
        case "add":  # of a bias, which does not move
            return dx
        case "relu":
            return mc.where(node > 0, dx, 0.0)
    return local_tangent(node, [tangents.get(v) for v in node.inputs])  # the compiler's


def forward(graph):
    [x] = graph.inputs
    tangents = {x: mc.Input("dx", x.type)}
    for node in graph.nodes:
        if any(v in tangents for v in node.inputs):
            tangents[node] = moves(node, tangents)
    outputs = [*graph.outputs, *(tangents[o] for o in graph.outputs)]
    return mc.Graph.of("forward", [x, tangents[x]], outputs)


model = mc.load_onnx(lesson.model("lenet"))
ours = forward(model)
print(len(model.nodes), "nodes became", len(ours.nodes))

# %% [markdown]
# Twice the nodes, nearly: the additions of a bias need nothing of their own. The compiler's version
# of the same, `jvp` (**Jacobian-vector product**), marks with ∂ what it made:

# %%
mc.viz.graph(mc.jvp(model), title="digits, and how the scores move when the image moves")

# %% [markdown]
# Two chains, side by side. What moves hangs on its own node and on nothing later. In the picture of
# lesson 01, of reverse mode, arrows ran from the first nodes to the far end.
#
# ## Then the real one

# %%
lesson.source(jvp, local_tangent)

# %% [markdown]
# `jvp` is our `forward`. But where is the table of rules, our `moves`? There is none. Look at
# `local_tangent`.
#
# A rule for reverse mode says: given dy, here is dx. In dy it is always *linear*: twice the dy, twice
# the dx. A linear map is a matrix; this one is the Jacobian of the op, transposed. Forward mode needs
# the same matrix, not transposed. Now differentiate the rule itself, with respect to dy, backwards:
# the reverse mode of a matrix is the matrix transposed. Transposed twice is what we want. So
# `local_tangent` asks the rule for a gradient with a stand-in `u` for dy, and goes back through *that*
# graph from dx to u.
#
# | here | why |
# |---|---|
# | no second table of rules | each op has one, and the two modes cannot disagree |
# | `backward` twice | the transpose of the transpose |
# | `_at_any_point` | the result must not depend on u: of a linear map it is the same everywhere |
#
# (A. Radul and others, *You only linearize once*, 2022, do it the other way round: JAX has the rules
# of forward mode and transposes them.)

# %% [markdown]
# ## Plug yours in
#
# First ours against the compiler's, both as machine code. The direction is *brighter by one part in a
# hundred*: each pixel moves by a hundredth of itself.

# %%
images, labels = lesson.digits()
image, direction = images[0], images[0] / 100
[mine, theirs] = [mc.compile(g, threads=1)(image, direction) for g in (ours, mc.jvp(model))]
print("scores alike:", np.allclose(mine[0], theirs[0], rtol=1e-4, atol=1e-2))
print("moves alike: ", np.allclose(mine[1], theirs[1], rtol=1e-4, atol=1e-2))
step = mc.compile(model)(image + direction)[0] - theirs[0]
largest = np.abs(theirs[1]).max()
print("the image, made brighter:", np.allclose(step, theirs[1], atol=0.05 * largest))

# %% [markdown]
# Now a rule of yours. Since there is one rule for both modes, replacing `gradient.relu` must change
# both, and they must still agree. The rule: as if `relu` had no sharp corner but a soft one.


# %%
def soft(op, y, dy):
    return [dy * mc.sigmoid(y.inputs[0] / 50)]


with mc.use(**{"gradient.relu": soft}), counting() as calls:
    ahead, back = mc.jvp(model), mc.grad(model)
print(dict(calls))

# %% [markdown]
# How does one test that two modes agree without writing down a Jacobian of 10 × 784? With the **dot
# product test**: u·(J v) and (u J)·v are the same number, for every u and v. One run each.


# %%
def agree(ahead, back):
    u = np.linspace(-1, 1, 10, dtype=np.float32)[None]
    moved = mc.compile(ahead, threads=1)(image, direction)[1]
    pulled = mc.compile(back, threads=1)(image, u)[0]
    left, right = float((u * moved).sum()), float((pulled * direction).sum())
    return abs(left - right) < 1e-3 * abs(left), left


plain, softened = agree(mc.jvp(model), mc.grad(model)), agree(ahead, back)
print("plain: modes agree:", plain[0])
print("soft:  modes agree:", softened[0], "· another number than plain:", plain[1] != softened[1])

# %% [markdown]
# One rule that you wrote, two directions, machine code for both, and they agree.

# %% [markdown]
# ## The answer
#
# *Ten walks back, or one walk forward?* In operations of the plain loops, as in lesson 01:


# %%
def work(graph):
    return sum(flops(kernel.loops) for kernel in mc.compile(graph, opt_level=0).kernels)


once = work(model)
forwards, back_again = (work(g) / once - 1 for g in (mc.jvp(model), mc.grad(model)))
lesson.table(
    [
        ["the scores alone", "1.0"],
        ["and their ten derivatives by brightness, one pass forward", f"{1 + forwards:.1f}"],
        ["the same, ten passes back", f"{1 + 10 * back_again:.1f}"],
        ["and the Jacobian, 10 × 784, ten passes back", f"{1 + 10 * back_again:.1f}"],
        ["the same, 784 passes forward", f"{1 + 784 * forwards:.1f}"],
    ],
    header=["", "runs of the network"],
)

# %% [markdown]
# One walk forward: two runs in place of eleven. For the Jacobian it is the other way round, and by
# much more. A pass of either mode costs about as much as a run. So what counts is the number of
# passes: **as many as there are inputs, forward; as many as there are results, back**. A loss is one
# result of many inputs. That is why training goes back.
#
# Forward mode keeps one advantage in all cases: it forgets. Lesson 03 measures what going back must
# remember.
#
# Both together give what neither gives alone. The second derivatives of a loss by n weights are a
# matrix of n × n, the **Hessian**. Its product with a vector is how the *gradient moves* in one
# direction: a gradient, going back, moved, going forward. No matrix is made.

# %%
loss = mc.trace(lambda w: mc.tanh(w * w).sum(), mc.f64[4])
product = mc.hvp(loss)
w, v = np.array([0.2, -0.5, 0.9, 1.4]), np.array([1.0, 0.0, 0.0, 2.0])
[exact] = mc.interpret(product, [w, v])
h = 1e-5
[up], [down] = (mc.interpret(mc.grad(loss), [w + s * h * v]) for s in (1, -1))
print(exact.round(4), "as differences of gradients say:", np.allclose(exact, (up - down) / (2 * h)))

# %% [markdown]
# ## Break it
#
# ### Two speeds in one number
#
# A derivative inside a derivative. Of x · (d/dy (x + y)) we ask the derivative by x. The inner one is 1,
# whatever x is. What is left is x, and its derivative is 1.

# %%
print("ours:", slope(lambda x: x * slope(lambda y: x + y, 1), 1))

# %% [markdown]
# 2 is wrong. Every line of `Dual` is right. But x comes into the inner derivative with a tangent of
# its own, the outer one, and `x + y` adds the two speeds: how fast x moves with x, and how fast y moves
# with y. This is **perturbation confusion**, 扰动混淆 (J. Siskind and B. Pearlmutter, 2005). The
# assumption was *there is only one h*. Each derivative needs an h of its own; systems that work with
# dual numbers number them.
#
# A graph cannot fall into this. There a tangent is a node, and the walk from y finds only nodes that
# depend on y.

# %%
inner = mc.grad(mc.trace(lambda x, y: x + y, mc.f64[()], mc.f64[()]), "y")
one = mc.Constant("one", np.array(1.0))


def outer(x):
    [by_y] = inlined(inner, dict(zip(inner.inputs, (x, one), strict=True)))
    return x * by_y


nested = mc.trace(outer, mc.f64[()])
print("graph:", mc.interpret(mc.grad(nested), [np.array(1.0)])[0])

# %% [markdown]
# ### The program is not the function
#
# This is x², with a shortcut for x = 1. Its derivative at 1 is 2.


# %%
def square(x):
    return mc.where(mc.equal(x, 1.0), 1.0, x * x)


f = mc.trace(square, mc.f64[()])
at_one = {"x": np.array(1.0)}
print("automatic:  ", mc.interpret(mc.jvp(f), [np.array(1.0), np.array(1.0)])[1])
print("small steps:", round(float(numeric_gradient(f, at_one)[0]), 6))

# %% [markdown]
# At x = 1 the program takes the branch `1.0`, a constant, and a constant does not move. Automatic
# differentiation differentiates *what was written*, and every rule was applied correctly. No verifier
# can complain. The assumption was *equal values, equal derivatives*. Small steps have never heard of
# the program, and look at the function.

# %% [markdown]
# ## In the field
#
# The same ideas under other names. "—": no such thing, or not under one name.

# %%
SYSTEMS = ["here", "TVM", "XLA, JAX", "Glow", "MLIR", "PyTorch 2", "ONNX Runtime"]
lesson.table(
    [
        ["forward mode 前向模式", "—", "`jax.jvp`", "—", "Enzyme", "`torch.func.jvp`", "—"],
        ["tangent 切向量", "—", "tangent", "—", "shadow (Enzyme)", "tangent", "—"],
        ["dual number 对偶数", "—", "`JVPTracer`", "—", "—", "`forward_ad.make_dual`", "—"],
        ["Jacobian 雅可比矩阵", "—", "`jacfwd`, `jacrev`", "—", "—", "`jacfwd`, `jacrev`", "—"],
        ["Hessian times a vector 海森向量积", "—", "`jvp` of `grad`", "—", "—",
         "`torch.func`: `jvp` of `grad`", "—"],
        ["the other mode from one rule 转置", "—", "`linear_transpose`", "—", "—",
         "two rules in `derivatives.yaml`", "—"],
    ],
    header=SYSTEMS,
)  # fmt: skip

# %% [markdown]
# TVM, Glow and ONNX Runtime train networks, and for one loss going back is enough.

# %% [markdown]
# ## Check yourself
#
# Write your answer in place of `None` and run the cell.

# %%
lesson.ask(
    "1. A curve in space: 1 input, 3 results, and you want the speed of all 3. Forward or back?",
    yours=None,
    truth=lambda: min((1, "forward"), (3, "back"))[1],
    hint="Passes: inputs forward, results back.",
    why="One pass in place of three.",
)
lesson.ask(
    "2. Ten steps of the logistic map at x = 0.25: what is the derivative? (4 · ¼ · ¾ = ¾)",
    yours=None,
    truth=lambda: slope(lambda x: logistic(x, 10), 0.25),
    hint="One step has the slope 4 − 8x. Where is x after the first step, and after the second?",
    why="The first step has slope 2, then x stays at ¾, with slope −2 nine times: −2¹⁰.",
)

# %%
lesson.ask(
    "3. How many `conv` nodes has the graph of `mc.jvp(model)`?",
    yours=None,
    truth=lambda: sum(n.op.name == "conv" for n in mc.jvp(model).nodes),
    hint="The model has two. How does a linear op move?",
    why="Each one twice: of the image, and of how it moves.",
)
lesson.ask(
    "4. `slope(lambda x: slope(cube, x), 2)` of our `Dual`: which number? It should be 12.",
    yours=None,
    truth=lambda: slope(lambda x: slope(cube, x), 2),
    hint="Inside, `Dual(x, 1)` is made of an x that is a `Dual`. Are two speeds added anywhere?",
    why="Here they stay apart, one inside the other: nesting alone does no harm. Mixing does.",
)

# %% [markdown]
# **The question of the field**: *why do training systems have no forward mode?* Because one loss has
# one result: back needs one pass, forward one for each weight. Where there are few inputs, in
# simulation, in sensitivity, inside a Hessian, forward wins by the same count.
#
# **Graded tasks**: those of assignment a3, when it comes.
#
# **What you have now**: dual numbers, a transformation of graphs that ran as machine code, and a test
# for two modes that needs no Jacobian. **Next**: lesson 03 writes reverse mode as a transformation of
# graphs, and asks what it must remember.
