# %% [markdown]
# # 05 · A compiled training step
#
# **A training step goes forward, back, and changes the weights. How many arrays are made for it, and how
# often is Python asked?**
#
# Written in NumPy, such a step is some fifty calls, and each makes an array. Nobody wants these arrays:
# the caller wants one number, the loss, and weights that have moved.
#
# At the end a step is one call that makes one number. It has an optimiser of yours inside, it trains in
# f16, and you have met the bug that every user of such steps meets once.
#
# *Time: 30 minutes. You need: lessons 01 and 03 of this chapter; gradient descent.*

# %%
from dataclasses import replace

import numpy as np

import minidlc as mc
from minidlc import lesson
from minidlc.autodiff import tape
from minidlc.support.extension import counting
from minidlc.train.optimizers import Adam, Sgd
from minidlc.train.step import TrainStep

# %% [markdown]
# ## Build it from nothing
#
# ### A problem
#
# Two spirals, wound around each other. To which one does a point belong? No straight line helps. 400
# points to learn from, 200 others to be tested with.


# %%
def spirals(n, seed):
    rng = np.random.default_rng(seed)
    side = np.arange(n) % 2
    turn = np.sqrt(rng.uniform(0.1, 1, n)) * 3 * np.pi
    angle = turn + np.pi * side
    points = np.stack([np.cos(angle), np.sin(angle)], 1) * turn[:, None] / 8
    return points.astype("f"), (2.0 * side - 1).astype("f")[:, None]


points, sides = spirals(400, seed=0)
test_points, test_sides = spirals(200, seed=1)
print(*points[:2].round(2), "on the sides", *sides[:2, 0])

# %% [markdown]
# A network of three layers, and the mean of the squared errors of a **batch**, here 64 points. The
# function says what is computed and leaves open by whom: it takes `tanh` as an argument.

# %%
SHAPES = {"w1": (2, 32), "b1": (1, 32), "w2": (32, 32), "b2": (1, 32), "w3": (32, 1), "b3": (1, 1)}


def start(seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) / np.sqrt(shape[0]) * (name[0] == "w")).astype("f")
        for name, shape in SHAPES.items()
    }


def network(x, w1, b1, w2, b2, w3, b3, tanh):
    return tanh(tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3


def loss_of(x, t, *weights, tanh, n=64):
    error = network(x, *weights, tanh=tanh) - t
    return (error * error).sum() * (1 / n)


# %% [markdown]
# ### The step in NumPy
#
# With the tape of lesson 01, in the form that ships with minidlc. We count what is made: an array for
# each operation there, one for each way back, one or two for each weight.


# %%
def eager_step(x, t, weights, rate):
    given = [tape.Variable(w) for w in weights.values()]
    loss = loss_of(tape.Variable(x), tape.Variable(t), *given, tanh=lambda v: v.tanh())
    slopes = tape.gradients(loss, given)
    there = [v for v in tape.in_order(loss) if v.parents]
    made = {"there": len(there), "back": sum(len(v.parents) for v in there)}
    made["update"] = 2 * len(weights)
    new = zip(weights.items(), slopes, strict=True)
    return float(loss.array), {n: (w - rate * dw).astype("f") for (n, w), dw in new}, made


loss, moved, made = eager_step(points[:64], sides[:64], start(), 0.1)
again, _, _ = eager_step(points[:64], sides[:64], moved, 0.1)
print(made, "together", sum(made.values()), "arrays · the loss fell:", again < loss)

# %% [markdown]
# ### The step as a graph
#
# Forward and back are a graph already. The update is a subtraction and a product for each weight: more
# graph. A step takes the data, the weights and the rate, and gives the loss and the new weights.

# %%
weight_inputs = [mc.Input(name, mc.f32[shape]) for name, shape in SHAPES.items()]


def graph_of(n):
    inputs = [mc.Input("x", mc.f32[n, 2]), mc.Input("t", mc.f32[n, 1]), *weight_inputs]
    return mc.Graph.of("spirals", inputs, [loss_of(*inputs, tanh=mc.tanh, n=n)])


loss_graph = graph_of(64)


def step_of(loss, names):
    both = mc.value_and_grad(loss, names)
    value, *slopes = both.outputs
    rate = mc.Input("rate", mc.f32[()])
    old = {i.name: i for i in both.inputs}
    new = [
        replace(old[name] - rate * dw, name=f"{name}_new")
        for name, dw in zip(names, slopes, strict=True)
    ]
    return mc.Graph.of("step", [*both.inputs, rate], [value, *new])


step_graph = step_of(loss_graph, list(SHAPES))
print(len(loss_graph.nodes), "nodes of the loss,", len(step_graph.nodes), "of the step")

# %% [markdown]
# Its outputs are new arrays, as big as the weights, made in each step and thrown away in the next. But who
# trains does not need the old weights any more. We say so: the caller **donates** an input, and the result
# may lie on it.

# %%
step = mc.compile(step_graph, threads=1, donate={name: f"{name}_new" for name in SHAPES})
weights = start()
arrays = list(weights.values())
first, *results = step(points[:64], sides[:64], *arrays, np.float32(0.1))
print("loss as in NumPy:", np.isclose(first, loss), "· weights too:", end=" ")
print(all(np.allclose(a, b, atol=1e-5) for a, b in zip(arrays, moved.values(), strict=True)))
print(
    "the results are the arrays that were given:",
    [r is a for r, a in zip(results, arrays, strict=True)],
)

# %% [markdown]
# One call, one new number. May the new weight be written over the old one, which the gradient of an
# earlier layer still reads? Only after that has been read. This is the question of lesson 03, and the
# memory plan proves the answer for each step it makes.
#
# ### More than fits
#
# A batch of 64 that does not fit into memory can be taken in four parts. The loss is a mean, so the
# gradient is the mean of the parts' gradients, if the parts are of one size. **Gradient accumulation**,
# 梯度累加, sums up four gradients and moves the weights once.

# %%
slope_of = {n: mc.compile(mc.grad(graph_of(n), "w2"), threads=1) for n in (16, 64)}
[whole] = slope_of[64](points[:64], sides[:64], *start().values())
quarters = [
    slope_of[16](points[k : k + 16], sides[k : k + 16], *start().values())[0]
    for k in range(0, 64, 16)
]
print("mean of four parts is the whole:", np.allclose(np.mean(quarters, 0), whole, atol=1e-6))

# %% [markdown]
# ### Numbers that are too small
#
# f16 halves all bytes. Its smallest number above 0 is 6e-8, its largest 65,504. Gradients are small. Here
# are those of our first step, as if the loss were a thousandth or a millionth of what it is; how many of
# them become 0? And what if the loss is multiplied by 2¹⁵ before, and the gradient divided by it after?

# %%
slopes = np.concatenate([g.ravel() for g in mc.compile(mc.grad(loss_graph, list(SHAPES)))(
    points[:64], sides[:64], *start().values())])  # fmt: skip
rows = []
for size in (1, 1e-3, 1e-6):
    counts = [f"{(np.float16(slopes * size * 2.0**k) == 0).mean():.0%}" for k in (0, 8, 15)]
    lost = (np.abs(slopes * size * 2.0**24) > 65504).mean()
    rows.append([f"{size:g}", *counts, f"{lost:.0%}"])
lesson.table(rows, header=["loss times", "zeros", "zeros × 2⁸", "zeros × 2¹⁵", "infinite × 2²⁴"])

# %% [markdown]
# That is **loss scaling**, 损失缩放. A power of two changes the exponent and rounds nothing. Too small a
# scale, and gradients are 0; too large, and they are infinite. So it is found while training: where
# anything is infinite the update is left out and the scale halved, after many good updates it is doubled.

# %% [markdown]
# ## See it
#
# A step small enough to be seen whole: one weight matrix, a squared error. What has no ∂ is the loss and
# the update.


# %%
def squared_error(x, t, w):
    error = x @ w - t
    return (error * error).sum()


line = mc.trace(squared_error, mc.f32[8, 3], mc.f32[8, 1], mc.f32[3, 1])
mc.viz.graph(step_of(line, ["w"]), title="one training step: forward, back, update")

# %% [markdown]
# ## Then the real one
#
# `mc.compile_train_step` builds such a graph, with everything a step may want: accumulation, clipping,
# scaling, mixed precision, dropout. An **optimiser** is the part that says how a weight moves; it is
# written in values, like a model. The simplest, and the one that most people use:

# %%
lesson.source(Sgd.update, Adam.update)

# %% [markdown]
# What Adam remembers, `m` and `v`, are more arrays that are donated. And the call:

# %%
lesson.source(TrainStep.__call__)

# %% [markdown]
# The weights are not among its arguments. The step owns them: who would hand them over could keep a
# reference, and see it change.

# %% [markdown]
# ## Plug yours in
#
# An optimiser of your own: go by the *sign* of the mean slope, the same distance for each weight. (It is
# the heart of Lion, X. Chen and others, 2023.) And the rule of `tanh`, also yours.


# %%
class Signs:
    learning_rate = 3e-3

    def slots(self, type):
        return {"m": np.zeros(type.shape, np.float32)}

    def update(self, w, dw, slots, step, rate):
        m = 0.9 * slots["m"] + 0.1 * dw
        return w - rate * mc.sign(m), {"m": m}


def my_tanh(op, y, dy):
    return [dy - dy * y * y]


with mc.use(**{"gradient.tanh": my_tanh}), counting() as calls:
    mine = mc.compile_train_step(loss_graph, start(), optimizer=Signs(), threads=1)
print(dict(calls))
print(mine)


# %%
def train(step, epochs):
    rng, losses = np.random.default_rng(0), []
    for _ in range(epochs):
        order = rng.permutation(400)
        for batch in order[:384].reshape(6, 64):
            losses.append(float(step(points[batch], sides[batch])[0]))
    return np.mean(losses[:6]), np.mean(losses[-6:])


tested = [mc.Input("x", mc.f32[200, 2]), *weight_inputs]
classify = mc.compile(mc.Graph.of("net", tested, [network(*tested, tanh=mc.tanh)]), threads=1)


def right(step):
    found = classify(test_points, *step.params.values())[0]
    return int(((found > 0) == (test_sides > 0)).sum())


# %%
before, after = train(mine, epochs=200)
adam = mc.compile_train_step(loss_graph, start(), optimizer=mc.train.adam(1e-2), threads=1)
train(adam, epochs=200)
print(
    "signs: the loss fell to a tenth:",
    after < before / 10,
    "· 195 of 200 right:",
    right(mine) >= 195,
)
print("adam:  195 of 200 right:", right(adam) >= 195)

# %% [markdown]
# 1,200 steps, each a call, and 200 points that it has never seen. The same seed gives the same numbers, to
# the last bit:

# %%
twice = []
for _ in range(2):
    step = mc.compile_train_step(loss_graph, start(), optimizer=mc.train.adam(1e-2), threads=1)
    train(step, epochs=5)
    twice.append(step.params)
print("equal bits:", all(np.array_equal(twice[0][n], twice[1][n]) for n in SHAPES))

# %% [markdown]
# ## The answer
#
# *How many arrays, and how often is Python asked?*

# %%
before = dict(adam.params)
results = adam(points[:64], sides[:64])
same = sum(adam.params[name] is array for name, array in before.items())
lesson.table(
    [
        ["NumPy and the tape", sum(made.values()), sum(made.values())],
        ["compiled", 1, len(results)],
    ],
    header=["a step", "calls from Python", "arrays made"],
)
print(same, "of 6 weights are still the arrays they were, with new numbers in them")

# %% tags=["nbval-ignore-output"]
lesson.times({
    "NumPy and the tape": lambda: eager_step(points[:64], sides[:64], moved, 0.1),
    "compiled, with Adam": lambda: adam(points[:64], sides[:64]),
})  # fmt: skip
print(len(adam.executable.kernels), "kernels")

# %% [markdown]
# One call, one array: the loss. On small networks like this one most of the time of the NumPy step was never
# arithmetic. And the kernels are fewer than the nodes: the update of a weight is fused with the gradient
# that it needs, like any other neighbours in a graph. No library that is called op by op can do that.

# %% [markdown]
# ## Break it
#
# ### The best weights so far
#
# Everybody writes this once: keep the weights that were best, and go on.

# %%
best = adam.params["w2"]
kept = adam.params["w2"].copy()
train(adam, epochs=1)
print("the best weights are still what they were:", np.array_equal(best, kept))
print("they are the newest ones:                 ", best is adam.params["w2"])

# %% [markdown]
# Nothing was copied, and `best` is a second name for an array that moves. The assumption was *a value stays*,
# which in a graph is true and at its edge was given up, for memory's sake. `step.state()` copies all that the
# step remembers; a checkpoint is made of that.
#
# ### f16 without a scale
#
# The loss times 1e-7, products in f16. With `loss_scale=1` nobody complains, and part of the network does not
# learn:

# %%
tiny = mc.Graph.of("tiny", loss_graph.inputs, [loss_graph.outputs[0] * 1e-7])
for name, scale in (("scale 1", 1.0), ("scale found by itself", None)):
    low = mc.compile_train_step(tiny, start(), autocast="f16", loss_scale=scale, threads=1)
    for _ in range(20):
        low(points[:64], sides[:64])
    stuck = sum(int((low.params[n] == w).sum()) for n, w in start().items())
    print(f"{name}: some weights never moved: {stuck > 50} · updates: {low.steps}")

# %% [markdown]
# No NaN, no error, a loss that falls a little. Their gradients were smaller than 6e-8 and were 0. It is the
# quiet brother of the faults in lesson 04, and the reason why `autocast="f16"` scales unless it is told not to.

# %% [markdown]
# ## In the field
#
# The same ideas under other names. "—": no such thing, or not under one name.

# %%
SYSTEMS = ["here", "TVM", "XLA, JAX", "Glow", "MLIR", "PyTorch 2", "ONNX Runtime"]
lesson.table(
    [
        ["step as one graph 训练步", "`SetupTrainer`", "`jit` of a step", "`differentiate` adds SGD", "—",
         "compiled autograd; compiled optimisers", "training graph"],
        ["donation 缓冲区捐赠", "—", "`donate_argnums`", "—", "—", "mutation in place", "—"],
        ["optimiser 优化器", "`relax.training.optimizer`", "Optax", "SGD", "—", "`torch.optim`", "optimizer nodes"],
        ["gradient accumulation 梯度累加", "—", "`optax.MultiSteps`", "—", "—", "`.grad` adds up",
         "accumulation buffers"],
        ["mixed precision 混合精度", "`ToMixedPrecision`", "types in the model", "fp16 conversion", "—",
         "`torch.autocast`", "mixed precision transformer"],
        ["loss scaling 损失缩放", "—", "`DynamicScale` (Flax)", "—", "—", "`GradScaler`", "loss scaler"],
    ],
    header=SYSTEMS,
)  # fmt: skip

# %% [markdown]
# ## Check yourself
#
# Write your answer in place of `None` and run the cell.


# %%
def updates(accumulate, calls):
    step = mc.compile_train_step(loss_graph, start(), accumulate=accumulate, threads=1)
    for _ in range(calls):
        step(points[:64], sides[:64])
    return step.steps


lesson.ask(
    "1. How many arrays does Adam remember for the six weights?",
    yours=None,
    truth=lambda: sum(key.startswith(("m/", "v/")) for key in adam.state()),
    hint="`m` and `v`, for each.",
    why="Training takes three times the memory of the weights, before any activation.",
)
lesson.ask(
    "2. `accumulate=4`, and the step is called 12 times: how many updates?",
    yours=None,
    truth=lambda: updates(accumulate=4, calls=12),
    hint="One after each four.",
    why="The other nine calls add to a sum that is kept between calls.",
)


# %%
lesson.ask(
    "3. A loss scale of 1000 in place of 1024: is the gradient, divided again, still exact in f32? yes or no",
    yours=None,
    truth=lambda: "yes" if all(
        np.array_equal(slopes * np.float32(s) / np.float32(s), slopes) for s in (1000,)) else "no",
    hint="What does a product with 1000 do to the last bit? And with 1024?",
    why="Only powers of two leave the digits alone.",
)  # fmt: skip

# %% [markdown]
# **The question of the field**: *what does compiling bring to training, where everything changes in each
# step?* What changes are numbers in the same places. The step itself is the same program a million times,
# longer than any model, with most of its neighbours fusable and most of its arrays short-lived.
#
# **Graded tasks**: those of assignment a3, when it comes.
#
# **What you have now**: a training step as a graph and as one call, an optimiser of your own in it, and two
# bugs that come without a message. **Next**: chapter 2 does to these graphs what it does to all; chapter
# 5 asks where their memory goes.
