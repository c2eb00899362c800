# %% [markdown]
# # 05 · Importing ONNX
#
# **What does a file of 26 kB say about a trained network, and what must its reader know?**
#
# ONNX is a file format for models: a framework writes it, a compiler reads it. At the end of this
# lesson you have an importer of your own, you can say how many bytes of the file are weights, and
# how many operators are written in another form when one number of the file changes. And you can
# answer with yes or no whether two importers, yours and the compiler's, read the same graph from
# it.
#
# *Time: 45 minutes. You need: lesson 02 (nodes, types, structural equality). None of its code is
# used here.*

# %%
import math
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import minidlc as mc
from minidlc import lesson
from minidlc.frontend.onnx import operators
from minidlc.frontend.onnx.scope import _converted
from minidlc.graph import located
from minidlc.graph.structure import difference
from minidlc.support.locations import OnnxLoc

FILE = lesson.model("lenet")
data = FILE.read_bytes()

# %% [markdown]
# ## Build it from nothing
#
# ### Bytes
#
# An ONNX file is a **protobuf** message: a row of fields, each a number that says which field it
# is, then a value. Two kinds of value occur here: an integer, or a length and so many bytes.
# Numbers are written in groups of seven bits, low ones first, and the eighth bit of a byte says
# that more follow. That is all we need to read the outermost level by hand.


# %%
def varint(data, at):
    """A number in groups of seven bits, and where it ends."""
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return number, at


def fields(data):
    """(number of the field, an integer or bytes) of each field of a message."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)  # the value, or how many bytes it has
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        yield tag >> 3, value


NAMES = {n: f.name for n, f in onnx.ModelProto.DESCRIPTOR.fields_by_number.items()}
for number, value in fields(data):
    shown = value if isinstance(value, int) or len(value) < 20 else f"{len(value):,} bytes"
    print(f"{number:>3} {NAMES[number]:17} {shown}")

# %% [markdown]
# Field 1 is the version of the file format. Field 7 is nearly everything: the graph. Field 8 is
# four bytes long and decides what the graph means; we come to it. From here on the package `onnx`
# reads protobuf for us.
#
# ### What is in the graph

# %%
model = onnx.load(FILE)


def attributes_of(node):
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    texts = {k: v.decode() if isinstance(v, bytes) else v for k, v in given.items()}
    return ", ".join(f"{k}={v}" for k, v in texts.items())


lesson.table(
    [(n.op_type, ", ".join(n.input), n.output[0], attributes_of(n)) for n in model.graph.node],
    header=("op_type", "reads", "writes", "attributes"),
)

# %%
weights = sum(len(t.SerializeToString()) for t in model.graph.initializer)
print(f"{len(model.graph.node)} nodes, {len({n.op_type for n in model.graph.node})} kinds of op")
print(f"{len(model.graph.initializer)} initializers: {weights:,} of {len(data):,} bytes,", end=" ")
print(f"{weights / len(data):.1%}")
print("listed as inputs:", len(model.graph.input), "  given by the caller:", end=" ")
stored = {t.name for t in model.graph.initializer}
print([i.name for i in model.graph.input if i.name not in stored])

# %% [markdown]
# Values have names, and a node reads what another one wrote: that is our graph, with strings for
# edges. An **initializer** (初始化张量) is a constant: the weights, and also the shape that a `Reshape`
# reads. Files of this age list initializers among the inputs as well, so an importer has to
# subtract them.
#
# What is *not* in the file is what `Conv` does. The file says `auto_pad=SAME_UPPER` and leaves the
# rest to you.
#
# ### Opsets
#
# The meaning stands in ONNX's operator specification, and that has versions. Field 8 above names
# the one this file was written for: its **opset** (算子集版本). When the form of an op changes, the
# opset number goes up, and files with the old number keep their old meaning. A common change: what
# was an attribute, fixed in the file, becomes an input, which other nodes may compute.


# %%
def squeeze(opset, as_input):
    """A model of one node: `axes=[1]` as an attribute or as an input."""
    attributes = {} if as_input else {"axes": [1]}
    node = helper.make_node("Squeeze", ["x", "axes"] if as_input else ["x"], ["y"], **attributes)
    axes = [helper.make_tensor("axes", TensorProto.INT64, [1], [1])] if as_input else []
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([node], "squeeze", [x], [y], axes)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


old, new = mc.load_onnx(squeeze(11, as_input=False)), mc.load_onnx(squeeze(13, as_input=True))
print(new)
print("equal:", old == new)

# %% [markdown]
# Two forms, one meaning: a good importer makes the same graph of both. How often did that happen?
# The package `onnx` carries every version of every op, so we can count the attributes that turned
# into an input of the same name, up to opset 18.

# %%
history = {}
for schema in onnx.defs.get_all_schemas_with_history():
    if schema.domain == "" and schema.since_version <= 18:
        history.setdefault(schema.name, []).append(schema)
moved = []
for op_type, versions in sorted(history.items()):
    versions.sort(key=lambda schema: schema.since_version)
    for before, after in pairwise(versions):
        names = [i.name for i in after.inputs if i.name in before.attributes]
        if names and not set(names) & set(after.attributes):
            moved.append((op_type, ", ".join(names), before.since_version, after.since_version))
print(f"{len(moved)} times among {len(history)} ops")
lesson.table(moved, header=("op_type", "what moved", "attribute since opset", "input since opset"))

# %% [markdown]
# Some changes are worse: the form stays and the meaning changes. `Softmax` without attributes took
# everything from axis 1 on together before opset 13, and takes the last axis since.


# %%
def softmax(opset):
    node = helper.make_node("Softmax", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 2]) for n in "xy")
    graph = helper.make_graph([node], "softmax", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


zeros = np.zeros((1, 2, 2), "f4")
for opset in (12, 13):
    print("opset", opset, mc.interpret(mc.load_onnx(softmax(opset)), [zeros])[0].tolist())

# %% [markdown]
# Four equal numbers share 1, or two pairs of them do. An importer that does not look at field 8
# gives a wrong answer for one of these two files, and no shape will tell.
#
# ### Shapes
#
# A file has to declare the types of its inputs and outputs. The types of what lies between may be
# missing, and an importer must not rely on them. **Shape inference** (形状推断) computes them from node to node. For
# everything that slides a window over an image it is one formula:


# %%
def windows(size, kernel, stride, pads):
    """How many positions a window of `kernel` has on `size` elements with `pads` around them."""
    return (size + pads - kernel) // stride + 1


size, sizes = 28, [28]
for kernel, stride, pads in ((5, 1, 4), (2, 2, 0), (5, 1, 4), (3, 3, 0)):
    size = windows(size, kernel, stride, pads)
    sizes.append(size)
print("image side:", " → ".join(map(str, sizes)), "   flat:", 16 * size * size)

# %% [markdown]
# 256 is what the `Reshape` of the file expects. Where do the 4 in the convolutions come from?
# `SAME_UPPER` asks for as many windows as there are steps of `stride` in the image, rounded up;
# whatever that needs is added around, and if it is odd the larger half goes to the end.
#
# ### The importer
#
# A converter is a function from an ONNX node and the values it reads to a new value. It sees the
# node through a small class: attributes by type, with ONNX's default if one is missing.


# %%
class NodeView:
    """What a converter sees of a node. An attribute that was asked for is taken out."""

    def __init__(self, proto):
        self.op_type = proto.op_type
        self.left = {a.name: helper.get_attribute_value(a) for a in proto.attribute}

    def attr_int(self, name, default=0):
        return self.left.pop(name, default)

    def attr_ints(self, name, default=()):
        return tuple(self.left.pop(name, default))

    def attr_str(self, name, default):
        return self.left.pop(name, default.encode()).decode()

    def constant_ints(self, value, what):
        return tuple(value.array.tolist())


view = NodeView(model.graph.node[1])
print(view.op_type, view.attr_ints("strides"), view.attr_str("auto_pad", "NOTSET"))
print("not asked for yet:", sorted(view.left))


# %%
def pads_of(node, sizes, kernel, strides):
    """Padding at the start of each axis, then at the end of each."""
    pads, mode = node.attr_ints("pads"), node.attr_str("auto_pad", "NOTSET")
    if mode in ("NOTSET", "VALID"):
        return pads
    each = zip(sizes, kernel, strides, strict=True)
    total = [max(0, (math.ceil(n / s) - 1) * s + k - n) for n, k, s in each]
    small, large = [t // 2 for t in total], [t - t // 2 for t in total]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


upper = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER")
found = pads_of(NodeView(upper), (28, 28), (5, 5), (1, 1))
print("SAME_UPPER, 28 × 28, kernel 5, stride 1:", found)

# %% [markdown]
# Six converters are enough for this file. Two of them do work, the other four say which op it is.


# %%
def conv(node, x, w):
    kernel = node.attr_ints("kernel_shape", w.shape[2:])
    strides = node.attr_ints("strides", (1,) * len(kernel))
    pads = pads_of(node, x.shape[2:], kernel, strides)
    dilations, group = node.attr_ints("dilations"), node.attr_int("group", 1)
    return mc.conv(x, w, strides=strides, pads=pads, dilations=dilations, group=group)


def max_pool(node, x):
    kernel = node.attr_ints("kernel_shape")
    strides = node.attr_ints("strides", (1,) * len(kernel))
    pads = pads_of(node, x.shape[2:], kernel, strides)
    return mc.max_pool(x, kernel_shape=kernel, strides=strides, pads=pads)


MINE = {
    "Conv": conv,
    "MaxPool": max_pool,
    "Relu": lambda node, x: mc.relu(x),
    "Add": lambda node, a, b: a + b,
    "MatMul": lambda node, a, b: a @ b,
    "Reshape": lambda node, x, s: mc.reshape(x, shape=node.constant_ints(s, "shape")),
}
print(sorted({n.op_type for n in model.graph.node} - set(MINE)), "are missing")

# %% [markdown]
# The importer keeps a dictionary from ONNX names to values. Initializers and inputs are there from
# the start, and each node adds what it writes. `located` stamps each new node with the place it
# came from, so that an error can name it.


# %%
def load(model, converters=MINE):
    graph, values = model.graph, {}
    for tensor in graph.initializer:
        values[tensor.name] = mc.Constant(tensor.name, numpy_helper.to_array(tensor))
    inputs = []
    for info in graph.input:
        if info.name not in values:
            dims = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
            inputs.append(mc.Input(info.name, mc.f32[dims]))
    values.update({i.name: i for i in inputs})
    for proto in graph.node:
        node = NodeView(proto)
        with located(OnnxLoc(graph.name, proto.name, proto.op_type)):
            result = converters[proto.op_type](node, *(values[name] for name in proto.input))
        if node.left:
            raise mc.CompileError(f"{proto.name}: nobody looked at {sorted(node.left)}")
        values[proto.output[0]] = result
    return mc.Graph.of(graph.name, inputs, [values[o.name] for o in graph.output])


mine = load(model)
print(repr(mine), "→", *mine.output_types())

# %% [markdown]
# ## See it
#
# The graph that our importer made. Hold the mouse over an op to see which ONNX node it came from.

# %%
mc.viz.graph(mine)

# %% [markdown]
# And the question: do two importers read the same graph? Structural equality (lesson 02) compares
# ops, attributes, types, edges and the bytes of every constant, and ignores names.

# %%
theirs = mc.load_onnx(FILE)
print("equal:", mine == theirs, "  first difference:", difference(mine, theirs))
inferred = onnx.ModelProto()
inferred.CopyFrom(model)
del inferred.graph.value_info[:]  # what the file says about values between
inferred = onnx.shape_inference.infer_shapes(inferred)
onnx_shapes = {
    v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
    for v in inferred.graph.value_info
}
our_shapes = {node.name: node.type.shape for node in theirs.nodes}
agree = sum(our_shapes[name] == shape for name, shape in onnx_shapes.items())
print(f"shapes between: {agree} of {len(onnx_shapes)} as onnx.shape_inference has them")

# %% [markdown]
# ## Then the real one
#
# The compiler's `conv` has the same parts as ours:

# %%
lesson.source(operators.conv, operators._pads)

# %% [markdown]
# It also counts a kernel with its dilation (the distance between the pixels that it reads), which
# ours leaves out. And more of it is about what can go wrong: a size that is not known yet, a kernel
# that contradicts the weight, an attribute that nobody looked at. And opsets: one converter serves
# all of them, and asks the node which one it is.

# %%
lesson.source(operators.clip)

# %% [markdown]
# Four things happen around a converter. A node from before opset 7 is brought to the form of opset 7.
# Its inputs are counted. The converter runs, and what it makes is stamped with the place of the node.
# Then comes the check that ours has too: an attribute that was not read is an error. An importer that
# passes over one imports something else, and the wrong numbers show much later.

# %%
lesson.source(_converted)

# %% [markdown]
# It also sorts nodes, leaves out those that no output needs, imports branches and loops, expands
# ops that ONNX defines by other ops, and collects all problems of a file in one table, so that one
# need not find them one by one.

# %%
broken = onnx.ModelProto()
broken.CopyFrom(model)
broken.graph.node[3].op_type = "Rellu"
broken.graph.node[8].op_type = "MaxBool"
try:
    mc.load_onnx(broken)
except mc.CompileError as error:
    print(error)

# %% [markdown]
# ## Plug yours in
#
# Each converter is an extension point: `onnx.Conv`, `onnx.Relu`, … Ours ask the node in the same
# way as the compiler's own, so they fit. The file goes in, machine code comes out, and our six
# functions did the reading.

# %%
with mc.use(**{f"onnx.{op_type}": function for op_type, function in MINE.items()}):
    exe = mc.compile(FILE, threads=1)
print(dict(sorted(exe.report().overrides.items())))

with np.load(FILE.with_suffix(".case0.npz")) as case:
    image, expected = case["in::Input3"], case["out::Plus214_Output_0"]
images, labels = lesson.digits()


def check(exe):
    """Is the stored output of ONNX Runtime met, and how many of 40 digits are right?"""
    error = np.abs(exe(image) - expected).max() / np.abs(expected).max()
    right = sum(int(np.argmax(exe(x))) == y for x, y in zip(images, labels, strict=True))
    return bool(error < 1e-5), f"{right} of {len(labels)}"


print("as stored, digits right:", *check(exe))

# %% [markdown]
# ## Break it
#
# Three wrong ways to treat `auto_pad`, each a line that one could write. The first never asks for
# it. The second asks and pads nothing. The third pads the right amount, all of it at the start.


# %%
def never_asked(node):
    return (2, 2, 2, 2)  # right for this file, by luck


def no_padding(node):
    node.attr_str("auto_pad", "NOTSET")
    return ()


def all_at_the_start(node):
    return (4, 4, 0, 0) if node.attr_str("auto_pad", "NOTSET") == "SAME_UPPER" else ()


for pads in (never_asked, no_padding, all_at_the_start):
    print(f"{pads.__name__:17}", pads(NodeView(upper)))

# %%
for pads in (never_asked, no_padding, all_at_the_start):

    def wrong_conv(node, x, w, pads=pads):
        _, strides, dilations = map(node.attr_ints, ("kernel_shape", "strides", "dilations"))
        group = node.attr_int("group", 1)
        return mc.conv(x, w, strides=strides, dilations=dilations, group=group, pads=pads(node))

    print(f"\n--- {pads.__name__}")
    with mc.use(**{"onnx.Conv": wrong_conv}):
        try:
            print("imported. As stored, digits right:", *check(mc.compile(FILE, threads=1)))
        except mc.CompileError as error:
            print(error)

# %% [markdown]
# The importer catches the first: an attribute was left unread. The type rule of `reshape` catches
# the second, because the sizes no longer fit. Nothing catches the third. Every shape is right, the
# verifier has no complaint, and 2 of 40 digits are right. The assumption behind it, *only the
# amount of padding matters*, holds for shapes and not for values. What finds it is the stored
# output: compare numbers with another implementation, always.
#
# Two more faults that occur in practice, a missing initializer and a wrong opset:

# %%
cut = onnx.ModelProto()
cut.CopyFrom(model)
lost = cut.graph.initializer.pop(1)
del cut.graph.input[[i.name for i in cut.graph.input].index(lost.name)]
for title, wrong in (
    (f"without the initializer {lost.name}", cut),
    ("attribute axes, but opset 13", squeeze(13, as_input=False)),
    ("input axes, but opset 11", squeeze(11, as_input=True)),
):
    print(f"--- {title}")
    try:
        mc.load_onnx(wrong)
    except mc.CompileError as error:
        print(error)

# %% [markdown]
# ## In the field

# %%
lesson.table(
    [
        ("importer", "导入器 / 前端", "`relax.frontend.onnx`", "—", "`ONNXModelLoader`",
         "onnx-mlir", "— (exports: `torch.onnx`)", "loads ONNX"),
        ("operator set", "算子集", "Relax ops", "StableHLO ops", "node kinds", "dialect",
         "ATen ops", "opset"),
        ("version of the format", "版本", "—", "VHLO, behind StableHLO", "—", "bytecode version",
         "schema of `torch.export`", "opset, IR version"),
        ("initializer", "初始化张量 / 权重", "`relax.Constant`, params", "constant",
         "`Constant`", "`arith.constant`", "parameter, buffer", "initializer"),
        ("attribute", "属性", "attrs", "attribute", "node member", "attribute", "argument",
         "attribute"),
        ("shape inference", "形状推断", "struct info", "`ShapeInference`", "when a node is made",
         "`InferTypeOpInterface`", "fake tensors", "ONNX shape inference"),
    ],
    header=("here", "中文", "TVM", "XLA", "Glow", "MLIR", "PyTorch 2", "ONNX Runtime"),
)  # fmt: skip

# %% [markdown]
# (Sources: onnx.ai, *Versioning* and the operator changelogs; tvm.apache.org, *Importing Models*;
# openxla.org, *StableHLO compatibility*; Glow's repository; mlir.llvm.org; docs.pytorch.org.)
#
# ## Check yourself

# %%
lesson.ask(
    "1. Which part of the file is weights, in percent?",
    None,
    lambda: 100 * weights / len(data),
    hint="Bytes of the initializers by bytes of the file.",
    why="The structure of the network is the small part, about 2 kB.",
    within=0.01,
)

# %%
lesson.ask(
    "2. SAME_UPPER on 14 elements, kernel 3, stride 2: padding (begin, end)?",
    None,
    lambda: pads_of(NodeView(upper), (14,), (3,), (2,)),
    hint="7 windows; the last one starts at element 12.",
    why="One element is missing for the last window, and UPPER puts it at the end.",
)

# %%
lesson.ask(
    "3. The bounds of Clip became inputs. Since which opset?",
    None,
    lambda: next(since for op_type, _, _, since in moved if op_type == "Clip"),
    hint="It is in the table of what moved.",
    why="Files of opset 6 to 10 have min and max as attributes.",
)

# %%
lesson.ask(
    "4. How many converters may be deleted from MINE before this file cannot be read?",
    None,
    lambda: len(MINE) - len({n.op_type for n in model.graph.node}),
    hint="Which op_types does the file have?",
    why="None: it has exactly these six kinds of op.",
)

# %% [markdown]
# **The question of the lesson.** The file says which ops, in which order, with which weights:
# 24,204 of its 26,454 bytes, 91.5 %, are weights. What the ops mean it leaves to its reader, who
# must know the opset: up to opset 18 alone, attributes became inputs 19 times. And yes: two
# importers read the same graph from it.
#
# **The question of the field.** *Why do compilers meet at a format such as ONNX?* With M
# frameworks and N chips somebody has to write M × N translations, or M + N through a common form.
# Our half of one was six converters. The price is in this lesson, too: a number in the file that
# decides what ops mean, forms that change, and details such as which side gets the padding, which
# no type can check.
#
# **Graded task** of assignment a1 that starts from here: **1.7** an op whose attribute became an
# input.
#
# ## What you have now
#
# Chapter 1 is complete: a graph that checks itself, a text for it, and two ways in, from Python
# and from a file. What comes in is correct and wasteful. One of the twelve nodes reshapes a
# weight, on every run, to the same result. Chapter 2 is about such things: it changes graphs
# without changing what they mean.
