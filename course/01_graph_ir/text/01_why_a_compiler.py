# %% [markdown]
# # 01 · Why a compiler
#
# **LLVM has turned loops into fast code for twenty years. What is missing, so that a neural network
# runs well, and how much is it worth?**
#
# A trained network is a list of operations on arrays. Each of them is a loop nest that a beginner
# can write. So we write the loops, give them to LLVM with all its optimisations on, and look at what
# comes out. Five times we shall count something that it did not do and could not have done.
#
# At the end stands one number: how many times faster the same twelve nodes run, on your machine,
# once a compiler sees them as a network and not as loops.
#
# *Time: 50 minutes. You need: Python and NumPy. That C compilers turn text into machine code you have
# heard; how, this lesson shows.*

# %%
import ast
import ctypes
import difflib
import re
from dataclasses import dataclass, field, replace
from math import prod

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

import minidlc as mc
from minidlc import driver, lesson
from minidlc.loop.count import compulsory_bytes
from minidlc.origin import Recipe

# %% [markdown]
# ### The net
#
# The model in the box reads handwritten digits. This is all of it. Read it from left to right.

# %%
net = mc.load_onnx(lesson.model("lenet"))
images, labels = lesson.digits()
mc.viz.graph(net, title=f"The digit classifier: {len(net.nodes)} nodes")

# %% [markdown]
# ### Without a compiler: a kernel for each pair
#
# Somebody has to write code for each **op**, the operation of a node. If every framework (PyTorch,
# TensorFlow, PaddlePaddle …) brings its own code for every chip, that is a product. If the frameworks
# write one common program and each chip has one translator, it is a sum.

# %%
kinds = sorted({node.op.name for node in net.nodes})
print("kinds of ops in this small net:", ", ".join(kinds))
lesson.table(
    [
        [m, n, m * n * len(kinds), (m + n) * len(kinds)]
        for m, n in ((1, 1), (4, 5), (8, 20))
    ],
    header=["M frameworks", "N chips", "kernels, each pair: M · N · ops", "through a middle: (M + N) · ops"],
)  # fmt: skip

# %% [markdown]
# With one framework and one chip the middle costs more than it gives. It pays from the second on.
# GCC and LLVM exist for the same reason: M languages, N processors, and one **intermediate
# representation** (IR, 中间表示) between them.
#
# So a compiler for networks looks like any other. What is alike, and what is not?

# %%
lesson.table(
    [
        ["reads", "text of a language", "a graph that a framework exports"],
        ["smallest thing it sees", "a number", "a tensor of known shape"],
        ["knows of memory", "pointers that may point anywhere", "every buffer, its size, its last use"],
        ["alike", "constant folding, CSE, dead code", "the same, on tensors"],
        ["only here", "register allocation, inlining", "fusion, layouts, tiling, gradients"],
        ["floats", "must not change a bit", "may, within what training forgives"],
        ["runs the result", "on any input, sizes unknown", "millions of times, sizes mostly known"],
        ["may spend on one loop", "milliseconds", "minutes: it may try and measure"],
    ],
    header=["", "traditional compiler 传统编译器", "deep-learning compiler 深度学习编译器"],
)  # fmt: skip

# %% [markdown]
# *Constant folding* computes now what is known now. *CSE*, common subexpression elimination, computes
# equal things once. *Dead code* is what nobody reads. Fusion and tiling come further down. A *layout*
# is the order in which the elements of a tensor lie in memory, and a *gradient* is what training needs
# (chapters 2 and 3).
#
# Enough claims. We build the left column, and let it compile the net.
#
# ## Build it from nothing
#
# ### Loops are Python
#
# The language of our traditional compiler: functions over arrays with loops, one element at a time.
# It is a subset of Python, so Python's own parser reads it. Here is the first ReLU of the net.

# %%
RELU = """
def relu(x: f32[8, 784], y: f32[8, 784]):
    for i in serial(0, 8):
        for j in serial(0, 784):
            y[i, j] = max(x[i, j], 0.0)
"""


def tree(node, depth=0):
    """Print a program as Python's parser sees it, one line for each part."""
    text = getattr(node, "id", node.value if isinstance(node, ast.Constant) else "")
    print("  " * depth + type(node).__name__, text)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr_context):
            tree(child, depth + 1)


tree(ast.parse(RELU).body[0].body[0].body[0].body[0].value)

# %% [markdown]
# A tree, as in every compiler: a call of `max`, and in it the subscript `x[i, j]` and a constant.
#
# ### Where an element lies
#
# Memory is one long row. Element `[i, j]` of an array with 784 columns lies at `i * 784 + j`. We write
# that as **LLVM IR** (LLVM 的中间表示), the language that LLVM reads: each line computes one number and
# gives it a name. `ir.IRBuilder` of llvmlite appends such lines for us.

# %%
F32, I64 = ir.FloatType(), ir.IntType(64)


@dataclass
class Writer:
    b: ir.IRBuilder
    names: dict = field(default_factory=dict)  # loop variable → value, array → (pointer, shape)
    flags: tuple = ()  # permissions for float arithmetic: none


def address(w, subscript):
    """The pointer to an element: its position in the row."""
    pointer, sizes = w.names[subscript.value.id]
    at, *rest = (value(w, index) for index in indices(subscript))
    for size, index in zip(sizes[1:], rest, strict=True):
        length = I64(size) if isinstance(size, int) else w.names[size]
        at = w.b.add(w.b.mul(at, length), index)
    return w.b.gep(pointer, [at], source_etype=F32)


def indices(subscript):
    return getattr(subscript.slice, "elts", [subscript.slice])


# %% [markdown]
# ### Expressions
#
# An expression is either a position (an integer) or an element (a float). `a + b` is `add` for one and
# `fadd` for the other. `max` is a comparison and a choice. `exp` is a function of the C library.

# %%
LINES = {"Add": "add", "Sub": "sub", "Mult": "mul", "FloorDiv": "sdiv", "Mod": "srem"}


def value(w, e):
    """The value of an expression, lines appended to the function."""
    match e:
        case ast.Constant(int(n)):
            return I64(n)
        case ast.Constant(float(x)) | ast.Call(ast.Name("f32"), [ast.Constant(x)]):
            return F32(float(x))
        case ast.Name(name):
            return w.names[name]
        case ast.Subscript():
            return w.b.load(address(w, e), typ=F32)
        case ast.BinOp(left, op, right):
            a, b = value(w, left), value(w, right)
            line = LINES[type(op).__name__]
            if a.type == F32:
                return getattr(w.b, "f" + line)(a, b, flags=w.flags)
            return getattr(w.b, line)(a, b)
        case ast.Call(ast.Name(name), arguments):
            return call(w, name, [value(w, a) for a in arguments])
        case ast.Compare(left, [ast.Lt()], [right]):
            return w.b.fcmp_ordered("<", value(w, left), value(w, right))


# %%
def call(w, name, arguments):
    """A function of elements: a choice, or a call of the C library."""
    if name == "where":
        return w.b.select(*arguments)
    if name == "max":
        a, b = arguments
        return w.b.select(w.b.fcmp_ordered("<", a, b), b, a)
    known = w.b.module.globals
    if name + "f" not in known:
        ir.Function(w.b.module, ir.FunctionType(F32, [F32] * len(arguments)), name + "f")
    return w.b.call(known[name + "f"], arguments)


f = ir.Function(ir.Module(), ir.FunctionType(F32, [ir.PointerType(), I64, I64]), "f")
array, i, j = f.args
w = Writer(ir.IRBuilder(f.append_basic_block()), {"x": (array, (8, 784)), "i": i, "j": j})
value(w, ast.parse("max(x[i, j] * 0.5, 0.0)", mode="eval").body)
print(*w.b.block.instructions, sep="\n")


# %% [markdown]
# Two lines for the position, then the address, a load, a product, a comparison and a choice: one
# expression is seven lines, each with one operation.
#
# ### Statements
#
# A store, a loop, and an array of one's own. A loop is three **basic blocks** (基本块, lines without
# a jump in between): a head that asks whether to go on, a body, and what comes after.


# %%
def statement(w, s):
    """Append the lines of one statement."""
    match s:
        case ast.For(ast.Name(variable), ast.Call(_, [start, stop]), body):
            loop(w, variable, value(w, start), value(w, stop), body)
        case ast.Assign([ast.Name(name)], ast.Call(ast.Name("alloc"), [kind, _])):
            with w.b.goto_entry_block():
                w.names[name] = w.b.alloca(F32, I64(prod(shape(kind)))), shape(kind)
        case ast.Assign([target], e):
            w.b.store(value(w, e), address(w, target))


def loop(w, variable, start, stop, body):
    """The head asks, the body runs and jumps back to the head."""
    b, before = w.b, w.b.block
    head, inside, after = (
        b.append_basic_block(f"{p}.{variable}") for p in ("head", "body", "after")
    )
    b.branch(head)
    b.position_at_end(head)
    w.names[variable] = b.phi(I64)  # 0 when we come from before, else what the last turn left
    w.names[variable].add_incoming(start, before)
    turn(w, variable, stop, body, (head, inside, after))


# %%
def turn(w, variable, stop, body, blocks):
    """One turn of a loop, whose head is open; afterwards lines go after the loop."""
    head, inside, after = blocks
    i = w.names[variable]
    w.b.cbranch(w.b.icmp_signed("<", i, stop), inside, after)
    w.b.position_at_end(inside)
    for s in body:
        statement(w, s)
    following = w.b.add(i, I64(1), flags=["nsw"])  # no signed wrap: i never passes the largest int
    i.add_incoming(following, w.b.block)
    w.b.branch(head)
    w.b.position_at_end(after)


def shape(kind):
    """(8, 784) of the annotation f32[8, 784]; a size may be a name."""
    return tuple(e.value if isinstance(e, ast.Constant) else e.id for e in indices(kind))


# %% [markdown]
# ### A function
#
# Each array comes in as a pointer. The two parameters at the end, scratch memory and a number of
# threads, we do not use; the real compiler will hand them to us later.


# %%
def to_llvm(text, symbol="f", noalias=False, flags=()):
    """LLVM IR of a function in our language. `noalias` and `flags` are promises: see below."""
    (definition,) = ast.parse(text).body
    sizes = [isinstance(a.annotation, ast.Name) for a in definition.args.args]
    kinds = [I64 if size else ir.PointerType() for size in sizes]
    f = ir.Function(
        ir.Module(),
        ir.FunctionType(ir.VoidType(), [*kinds, ir.PointerType(), ir.IntType(32)]),
        symbol,
    )
    w = Writer(ir.IRBuilder(f.append_basic_block("entry")), flags=flags)
    for a, parameter, size in zip(definition.args.args, f.args, sizes, strict=False):
        parameter.name = a.arg
        if noalias and not size:
            parameter.add_attribute("noalias")
        w.names[a.arg] = parameter if size else (parameter, shape(a.annotation))
    for s in definition.body:
        statement(w, s)
    w.b.ret_void()
    return str(f.module)


print(to_llvm(RELU).replace('"', "").partition("\n\n")[2].rstrip())

# %% [markdown]
# That is our front end: from loops to LLVM IR. Look for the row position, `mul` by 784, and for the
# two heads. `phi` stands in a head and says what the loop variable is: one value when we come from
# before the loop, another one after a turn.
#
# ## LLVM -O3
#
# Now LLVM takes over: its full list of optimisations, and then machine code. So that you count what
# we counted, we first compile for a **machine on paper**: an x86-64 processor of 2013, Haswell. It has
# 16 vector registers of 256 bits, that is eight floats each. Nothing of that needs to run.

# %%
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


def machine(triple, cpu, features=""):
    target = llvm.Target.from_triple(triple)
    options = dict(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small")
    return target.create_target_machine(**options)


paper = mc.target.Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, registers=16)
PAPER = machine(paper.triple, paper.cpu, paper.features)
print(paper)


# %%
def o3(text, machine=PAPER):
    """The text after every optimisation of `clang -O3`."""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return str(module)


text = to_llvm(RELU, noalias=True)
print(text.count("\n"), "lines in,", o3(text).count("\n"), "lines out")

# %% [markdown]
# Optimising has made the program longer, not shorter. What matters is the **inner loop**: there the
# time goes. It is the block that jumps back to itself.


# %%
def inner_loops(text):
    """The blocks that may jump to themselves."""
    blocks = re.split(r"^(?=[\w.]+:)", text, flags=re.MULTILINE)
    labels = [re.match(r"[\w.]+", block) for block in blocks]
    return [
        block
        for block, label in zip(blocks, labels, strict=True)
        if label and re.search(rf"label %{re.escape(label[0])}\b(?![.\w])", block)
    ]


def count(block, *what):
    """Lines of a block with one of these instructions."""
    return sum(
        bool(re.search(rf"(= |  )(tail )?({'|'.join(what)}) ", line)) for line in block.split("\n")
    )


loops = inner_loops(o3(to_llvm(RELU, noalias=True)))
print(f"{len(loops)} inner loops; the first begins\n\n" + "\n".join(loops[0].split("\n")[:21]))

# %% [markdown]
# `<8 x float>`: LLVM has rewritten our loop to work on eight floats at a time, four times a turn, and
# it wrote out the outer loop as well, row by row. Each number is loaded once and stored once. A ReLU
# cannot do with less.
#
# ### Does it run?
#
# On this machine, from the text to a function that NumPy arrays can be given to:


# %%
def here():
    host = mc.target.host()
    return machine(host.triple, host.cpu, host.features)


def native(text, **promises):
    """A Python function that runs our loops as machine code."""
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(o3(to_llvm(text, **promises), here())), here()
    )
    engine.finalize_object()
    start = engine.get_function_address("f")

    def run(*arrays, _engine=engine):  # the code lives as long as its engine
        kinds = [ctypes.c_void_p] * (len(arrays) + 1) + [ctypes.c_int32]
        ctypes.CFUNCTYPE(None, *kinds)(start)(*(a.ctypes.data for a in arrays), None, 1)

    return run


x = np.random.default_rng(0).standard_normal((8, 784), np.float32)
y = np.empty_like(x)
native(RELU)(x, y)
print("equal to NumPy:", np.array_equal(y, np.maximum(x, 0)))

# %% [markdown]
# A compiler in about 120 lines, LLVM's work not counted. It is a real one, and further down it
# compiles the whole net. (`noalias` in the calls above is a promise that the arrays do not overlap;
# limit 4 is about it.)
#
# ## Five limits, counted
#
# On the other side we put minidlc. It decides blocks and vectors itself, before LLVM sees anything.
# To be fair, its LLVM text goes through the same `-O3` for the same machine on paper. Both are counted
# in the same way.


# %%
def on_paper(fn, *types, machine=paper, opt_level=3):
    """minidlc's levels of a Python function of tensors, for the machine on paper: made, not run."""
    passes = mc.Pipeline.default(opt_level, machine)
    recipe = Recipe(1, machine, passes, fast=opt_level >= 3, max_bytes=1 << 30, cache=False)
    return driver.compile_levels(lambda: mc.trace(fn, *types), recipe)


def ours(fn, *types):
    """Inner loops of minidlc's code."""
    kernels = on_paper(fn, *types).kernels
    return [block for kernel in kernels for block in inner_loops(o3(kernel.llvm))]


def theirs(text, **promises):
    return inner_loops(o3(to_llvm(text, **promises)))


found = []  # one row for each limit

# %% [markdown]
# ### 1 · It does not fuse
#
# A framework calls one function for each op. Three ops are three passes over memory. We are generous
# and put all three loops into one function, where LLVM sees them together.

# %%
CHAIN = """
def chain(x: f32[4096], a: f32[4096], b: f32[4096], y: f32[4096]):
    for i in serial(0, 4096):
        a[i] = x[i] * 0.5
    for i in serial(0, 4096):
        b[i] = a[i] + 1.0
    for i in serial(0, 4096):
        y[i] = max(b[i], 0.0)
"""


def bytes_an_element(blocks):
    """Four bytes for each load and store; a loop stores each element once."""
    return sum(4 * count(b, "load", "store") / count(b, "store") for b in blocks)


llvm_bytes = bytes_an_element(theirs(CHAIN, noalias=True))
our_bytes = bytes_an_element(ours(lambda x: mc.relu(x * 0.5 + 1.0), mc.f32[4096]))
print(f"bytes moved for an element: {llvm_bytes:.0f} and {our_bytes:.0f}")
found.append(["1 fusion 算子融合", "bytes for an element of three ops", llvm_bytes, our_bytes])

# %% [markdown]
# LLVM keeps three loops and every store: `a` and `b` belong to the caller, who may read them. minidlc
# knows that nobody does: they are inner values of a graph, and not even in memory. Merging ops into one
# loop is called **fusion** (算子融合).
#
# How much time is that? On an array that is too large for the caches:

# %% tags=["nbval-ignore-output"]
n = 1 << 21
big = np.random.default_rng(0).standard_normal(n, np.float32)
rows = [np.empty_like(big) for _ in range(3)]
three = native(CHAIN.replace("4096", str(n)), noalias=True)
one = mc.compile(mc.trace(lambda x: mc.relu(x * 0.5 + 1.0), mc.f32[n]), threads=1)
seconds = lesson.times(
    {"three loops, LLVM": lambda: three(big, *rows), "fused": lambda: one(big, out=rows[2:])}
)

# %% [markdown]
# ### 2 · It may not reorder a sum
#
# `(a + b) + c` is not `a + (b + c)` for floats. So a compiler of C adds up in the order of the text,
# one after the other, and vectors are out of the question.

# %%
TOTAL = """
def total(x: f32[4096], y: f32[1]):
    y[0] = 0.0
    for i in serial(0, 4096):
        y[0] = y[0] + x[i]
"""


def lanes(blocks, instruction):
    """How many elements one such instruction of the busiest block works on."""
    busiest = max(blocks, key=lambda block: count(block, instruction))
    (wide,) = set(re.findall(rf"{instruction} (?:\w+ )*(<\d+ x float>|float)", busiest))
    return int(re.search(r"\d+|$", wide)[0] or 1)


llvm_lanes = lanes(theirs(TOTAL, noalias=True), "fadd")
allowed = lanes(theirs(TOTAL, noalias=True, flags=("reassoc",)), "fadd")
our_lanes = lanes(ours(lambda x: mc.sum(x, axes=(0,)), mc.f32[4096]), "fadd")
print(f"elements an addition: {llvm_lanes}, with permission {allowed}; minidlc: {our_lanes}")
found.append(["2 order of sums 求和次序", "elements an addition", llvm_lanes, our_lanes])

# %% [markdown]
# LLVM can do it as soon as each addition carries the flag `reassoc`. What it lacks is permission. In
# our field the permission is given for the whole network: another order moves the last bits of a
# score, and no digit (40 of 40 are right further down, in the order of the text and in vectors). It is
# still an assumption. Here it fails:

# %%
terms = np.tile(np.float32([1e8, 1, -1e8, 1]), 1024)
in_order = np.zeros(1, np.float32)
native(TOTAL)(terms, in_order)
in_lanes = terms.reshape(-1, 4).sum(axis=0, dtype=np.float32).sum(dtype=np.float32)
print(f"in order {in_order[0]}, in four lanes {in_lanes}, exactly {terms.sum(dtype=np.float64)}")

# %% [markdown]
# ### 3 · It does not tile
#
# The product of two matrices, as in the textbook. Two numbers are fetched for every multiply-add, and
# every number is fetched 64 times.

# %%
MATMUL = """
def matmul(A: f32[64, 64], B: f32[64, 64], C: f32[64, 64]):
    for i in serial(0, 64):
        for j in serial(0, 64):
            C[i, j] = 0.0
            for k in serial(0, 64):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""


def loads_a_product(blocks):
    """Load instructions for one multiply-add of two numbers, in the busiest block."""
    busiest = max(blocks, key=lambda block: count(block, "fmul"))
    return count(busiest, "load") / (count(busiest, "fmul") * lanes([busiest], "fmul"))


llvm_loads = loads_a_product(theirs(MATMUL, noalias=True))
our_loads = loads_a_product(ours(lambda a, b: a @ b, mc.f32[64, 64], mc.f32[64, 64]))
print(f"loads for a multiply-add: {llvm_loads:.3f} and {our_loads:.3f}")
found.append(["3 tiling 循环分块", "loads for a multiply-add", llvm_loads, our_loads])

# %% [markdown]
# In minidlc's code a block of C, six rows by sixteen columns, stays in registers, and each number that
# is fetched serves six or sixteen products. Making loops work on blocks is **tiling** (循环分块). To do
# it, LLVM would have to know that the arrays do not overlap (limit 4) and to choose sizes for this
# machine, and `-O3` runs no pass that does.
#
# ### 4 · It does not know what the types do not say
#
# Our language may leave a size open, as C does, and C's pointers may point into each other.

# %%
ADD = """
def add(n: i64, x: f32[n], y: f32[n], z: f32[n]):
    for i in serial(0, n):
        z[i] = x[i] + y[i]
"""
FIXED = ADD.replace("n: i64, ", "").replace("n]", "4096]").replace(", n)", ", 4096)")


def questions(text):
    """Tests at run time outside of the inner loops."""
    return text.count("br i1") - sum(block.count("br i1") for block in inner_loops(text))


versions = []
for sizes, text in (("open", ADD), ("known", FIXED)):
    for arrays, free in (("may overlap", False), ("apart", True)):
        code = o3(to_llvm(text, noalias=free))
        versions.append([sizes, arrays, len(inner_loops(code)), questions(code)])
lesson.table(versions, header=["sizes", "arrays", "inner loops", "questions at run time"])
our_versions = len(ours(lambda x, y: x + y, mc.f32[4096], mc.f32[4096]))
found.append(["4 sizes, overlap 形状与别名", "versions of one loop", versions[0][2], our_versions])

# %% [markdown]
# One line of our language became several loops: many elements at a time, the rest one at a time, and
# all of them one at a time for arrays that overlap; and in front of them questions at run time. Two
# facts make all of that go away, and a graph has both: shapes are in the types, and each value has a
# buffer of its own. That two names may mean the same memory is called **aliasing** (别名).
#
# ### 5 · It does not open a call
#
# Softmax, GELU and sigmoid need `exp`. For LLVM that is a function in a library, which takes one float.

# %%
EXP = """
def exponentials(x: f32[4096], y: f32[4096]):
    for i in serial(0, 4096):
        y[i] = exp(x[i])
"""
llvm_calls = sum(count(block, "call float @expf.*") for block in theirs(EXP, noalias=True))
(block,) = ours(lambda x: mc.exp(x), mc.f32[4096])
our_calls = count(block, "call float @expf.*")
print("calls in the loop:", llvm_calls, "and", our_calls)
found.append(["5 library calls 库函数", "calls of expf for an element", llvm_calls, our_calls])

# %% [markdown]
# The call also stops everything else: a loop with a call is not vectorised. minidlc writes `exp` as a
# polynomial of its own, so there is nothing to call, and the same polynomial works on 8 or 16 floats.
# (A C compiler can be told of a library for vectors: clang has the option `-fveclib`.)
#
# ### All five

# %%
lesson.table(found, header=["limit", "counted", "LLVM -O3 on plain loops", "minidlc"])

# %% [markdown]
# None of these is a fault of LLVM. Each time it lacked a *fact* that was thrown away when a network
# became loops over pointers, or a *permission* that a language for all programs cannot give.
#
# ## See it
#
# The product of limit 3 as loops: on the left what the text says, on the right what minidlc makes
# of it before LLVM sees it. The length of a bar is the number of turns.

# %%
square = mc.f32[64, 64]
plain = on_paper(lambda a, b: a @ b, square, square, opt_level=0).kernels[0]
tuned = on_paper(lambda a, b: a @ b, square, square).kernels[0]
mc.viz.loops(
    [("as written", plain.schedule), ("scheduled", tuned.schedule)],
    target=paper,
    title="a @ b, 64 × 64: three loops, or blocks of 6 × 16 in registers",
)

# %% [markdown]
# ## Then the real one
#
# minidlc does not replace LLVM. It stands before it and hands over loops in which everything above is
# decided. Its way from the model to machine code is this function:

# %%
lesson.source(driver.compile_levels)

# %% [markdown]
# Five languages in a row: graph, tensor expressions, schedule, loops, LLVM IR. Two of them are new. A
# **tensor expression** (张量表达式) says what one element of a result is. A **schedule** (调度) is a list
# of steps that say in which loops the elements are computed. Why so many? Take one product with a bias
# and a ReLU, and print it at four of them.


# %%
def dense(x, w, b):
    return mc.relu(x @ w + b)


levels = on_paper(dense, square, square, mc.f32[64])
kernel = levels.kernels[0]
print(f"GRAPH\n{levels.source}\n\nTENSOR EXPRESSIONS\n{kernel.te.rstrip()}")

# %%
loops, lines = str(kernel.loops).split("\n"), kernel.llvm.split("\n")
first = next(n for n, line in enumerate(lines) if "fmul" in line)
print("LOOPS, the beginning\n" + "\n".join(loops[:14]) + "\n    …\n")
print("LLVM IR, around the first product\n" + "\n".join(lines[first - 4 : first + 3]))

# %% [markdown]
# Now we make two decisions anew. One is about the network: no ReLU. One is about the machine: it has 32
# vector registers, so blocks may be larger. How many lines change at each level?


# %%
def texts(levels):
    """The first kernel at every level, from the graph to LLVM IR."""
    k = levels.kernels[0]
    return [str(levels.source), k.te, k.trace, str(k.loops), k.llvm]


def changed(before, after):
    """Lines that came and lines that went."""
    lines = difflib.ndiff(before.split("\n"), after.split("\n"))
    return sum(line.startswith(("+", "-")) for line in lines)


def without_relu(x, w, b):
    return x @ w + b


without_relu.__name__ = "dense"  # so that the name is no difference
types = (square, square, mc.f32[64])

# %%
no_relu = texts(on_paper(without_relu, *types))
larger = texts(on_paper(dense, *types, machine=replace(paper, registers=32)))
names = ["graph", "tensor expressions", "schedule", "loops", "LLVM IR"]
lesson.table(
    [
        [name, len(a.split("\n")), changed(a, b), changed(a, c)]
        for name, a, b, c in zip(names, texts(levels), no_relu, larger, strict=True)
    ],
    header=["level", "lines", "lines changed: no ReLU", "lines changed: more registers"],
)

# %% [markdown]
# Each decision has a level where it is a few words. Below it the same decision is spread over the whole
# text, and above it the decision cannot be said at all: zero lines. (The schedule changes for the ReLU
# because its lines name the last step.)
#
# TVM is the well-known example. Its graph level is **Relay IR** (today Relax): functions, calls,
# tensors with types; there ops are fused and layouts chosen. Its loop level is **Tensor IR** (TIR):
# loops, buffers, blocks; there a schedule splits, reorders and vectorises. Fusing on Tensor IR would mean
# to prove that two loop nests run over the same elements; on Relay IR it means to look at two words.
# Tiling on Relay IR is impossible: there are no loops. (Sources: J. Roesch et al., *Relay: A New IR for
# Machine Learning Frameworks*, MAPL 2018; S. Feng et al., *TensorIR*, ASPLOS 2023.)
#
# ## Plug yours in
#
# The loops that minidlc prints are the language that we compile. So our compiler fits into its last
# stage, code generation: the extension point `emit` takes the loops of one kernel and returns LLVM text.


# %%
def emit(fn, target, symbol):
    """Our compiler in place of minidlc's: plain loops, LLVM -O3, no promises."""
    text = to_llvm(str(fn), symbol)
    return o3(text, machine(target.triple, target.cpu, target.features))


def right(exe):
    return sum(int(np.argmax(exe(x)[0])) == label for x, label in zip(images, labels, strict=True))


with mc.use(emit=emit):
    op_by_op = mc.compile(net, threads=1, opt_level=1)
print(op_by_op.report().overrides, "·", right(op_by_op), "of", len(labels), "digits right")
scores, wanted = op_by_op(images[0])[0], mc.interpret(net, [images[0]])[0]
print("equal to the interpreter, to 5 digits:", np.allclose(scores, wanted, rtol=1e-5, atol=1e-2))

# %% [markdown]
# Ten kernels, each from our 120 lines and LLVM. That is stage one: **op by op**.
#
# ### Stage two: fused
#
# The pass `fuse` of minidlc joins ops into groups. And to make one loop of a group we need a schedule,
# our own. The **anchor** of a group is its op with a sum, such as `conv`. Pointwise steps behind it go
# into the place where they are read, and the sum is computed where its element is needed. Nothing
# else. (The pass `layout` stays out: it is for vectors, and we write none.)


# %%
def fused_loops(schedule, group, target):
    """One loop nest for a group: each result is finished before the next one begins."""
    for stage in group.after_anchor():
        schedule[stage].compute_inline()
    if group.anchor is not None and group.anchor is not group.last:
        schedule[group.anchor].compute_at(group.last, group.last.axes[-1])


mine = dict.fromkeys(["schedule.conv", "schedule.matmul", "schedule.pool"], fused_loops)
passes = mc.Pipeline.default(2).without("layout")
with mc.use(emit=emit, **mine):
    fused = mc.compile(net, threads=1, pipeline=passes)
print(fused.report().overrides, "·", right(fused), "of", len(labels), "digits right")
print("    for j" + str(fused.kernels[0].loops).partition("    for j")[2])

# %%
mc.viz.graph(fused.graph, title=f"The digit classifier after fuse: {len(fused.kernels)} kernels")

# %% [markdown]
# ### Stage three: scheduled
#
# Everything that minidlc has: layouts, tiles, vectors, weights brought into the order of their loops
# ahead of time, its own code generation.
# (A search may find better schedules still; that is chapter 6.) The model is the same, and so are the
# digits.

# %%
scheduled = mc.compile(net, threads=1)
print(right(scheduled), "of", len(labels), "digits right")


def through_memory(exe):
    return sum(compulsory_bytes(kernel.loops) for kernel in exe.kernels)


lesson.table(
    [
        ["op by op", len(op_by_op.kernels), through_memory(op_by_op)],
        ["fused", len(fused.kernels), through_memory(fused)],
    ],
    header=["stage", "kernels", "bytes that the kernels read and write"],
)

# %% [markdown]
# ### The answer
#
# The number that was promised: the last line, the last column.

# %% tags=["nbval-ignore-output"]
digit = images[0]
seconds = lesson.times(
    {
        "op by op, LLVM -O3": lambda: op_by_op(digit),
        "fused, LLVM -O3": lambda: fused(digit),
        "fused and scheduled": lambda: scheduled(digit),
    }
)

# %% [markdown]
# Fusion more than halves the bytes and changes the time little. This net is small: all of it lies in the
# first two caches, where bytes are cheap, and its time goes into the multiply-adds of two convolutions.
# There limits 2 and 3 decide. For the array of limit 1, which fits into no cache, fusion alone was the
# gain. Which limit costs most depends on the model and the machine, and so a compiler needs a remedy for
# each.
#
# ## Break it
#
# Limit 4 disappeared when we promised `noalias`: no two arrays overlap. Nobody checked. Here is a loop
# that reads what it wrote one turn before, if it is given the same array twice.

# %%
SHIFT = """
def shift(x: f32[1025], y: f32[1025]):
    for i in serial(0, 1024):
        y[i + 1] = x[i] + 1.0
"""


def last_of(run):
    row = np.zeros(1025, np.float32)
    run(row, row)
    return row[-1]


honest = last_of(native(SHIFT))
promised = last_of(native(SHIFT, noalias=True))
print(f"no promise: {honest}, with the promise the same: {promised == honest}")

# %% [markdown]
# A wrong number, no message, no crash. That is the price of a promise that nobody checks. The
# assumption is: *every tensor has memory of its own*. minidlc makes the same promise to LLVM for every
# kernel. But it does not trust itself: it plans all memory in one place, and the plan is proved before
# code is made. We replace the plan by one that puts every buffer at address 0:

# %%
try:
    with mc.use(memory_plan=lambda requests: [0 for _ in requests]):
        mc.compile(net, threads=1, opt_level=1)
except mc.CompileError as e:
    print(e)

# %% [markdown]
# ## In the field

# %%
lesson.table(
    [
        ["graph IR 图级中间表示", "Relay, now Relax", "HLO", "high-level graph", "dialects, e.g. TOSA", "FX graph", "ONNX graph"],
        ["loop IR 循环级中间表示", "Tensor IR", "LLVM IR; on GPU Triton", "low-level IR", "`affine`, `scf`", "Inductor's loops", "—"],
        ["fusion 算子融合", "`FuseOps`", "fusion computations", "operator stacking", "`linalg` fusion", "Inductor's scheduler", "graph optimisers"],
        ["kernel library 算子库", "BYOC", "custom calls", "`libjit`", "—", "`aten`, cuDNN", "execution providers"],
        ["tuning 自动调优", "MetaSchedule", "autotuner (GPU)", "—", "transform dialect", "`max-autotune`", "—"],
        ["machine code 代码生成", "LLVM, CUDA", "LLVM", "LLVM", "`llvm` dialect", "C++ or Triton", "compiled ahead"],
    ],
    header=["here", "TVM", "XLA", "Glow", "MLIR", "PyTorch 2", "ONNX Runtime"],
)  # fmt: skip

# %% [markdown]
# ONNX Runtime is the other answer to the same question: kernels written by hand for each op and chip,
# chosen one by one, plus a few fused ones. (Sources: the documentation of each project; N. Rotem et al.,
# *Glow: Graph Lowering Compiler Techniques for Neural Networks*, 2018; T. Chen et al., *TVM*, OSDI
# 2018.)
#
# ## Check yourself
#
# Write your answer in place of `None` and run the cell.

# %%
lesson.ask(
    "1. A chain of five pointwise ops, op by op: how many bytes are moved for an f32 element?",
    yours=None,
    truth=5 * 8,
    hint="Each op loads the element and stores it.",
    why="Fused it is 8, whatever the length of the chain.",
)
lesson.ask(
    "2. With 6 frameworks and 9 chips, how many translators does a common IR need?",
    yours=None,
    truth=6 + 9,
    hint="One into the IR for each framework, one out of it for each chip.",
    why="Without it each pair needs its own: 54.",
)

# %%
tile = """
def tile(A: f32[64, 64], B: f32[64, 64], C: f32[64, 64]):
    for i in serial(0, 16):
        for j in serial(0, 64):
            for k in serial(0, 64):
                C[4*i, j] = C[4*i, j] + A[4*i, k] * B[k, j]
                C[4*i + 1, j] = C[4*i + 1, j] + A[4*i + 1, k] * B[k, j]
                C[4*i + 2, j] = C[4*i + 2, j] + A[4*i + 2, k] * B[k, j]
                C[4*i + 3, j] = C[4*i + 3, j] + A[4*i + 3, k] * B[k, j]
"""
tiled, unsure = loads_a_product(theirs(tile, noalias=True)), loads_a_product(theirs(tile))

# %%
lesson.ask(
    "3. We tile by hand, four rows: how many loads for a multiply-add are left after LLVM -O3?",
    yours=None,
    truth=tiled,
    hint="B[k, j] is fetched once for four products, and each product needs its own A.",
    why="5 loads for 4 products. LLVM keeps what fits into registers, once the loops are written so.",
)
lesson.ask(
    "4. The same tile without `noalias`: fewer, as many or more loads?",
    yours=None,
    truth="more" if unsure > tiled else "as many" if unsure == tiled else "fewer",
    hint="After a store into C, can LLVM still trust the B[k, j] that it has in a register?",
    why="A store into C might have changed A or B, so they are fetched again.",
)

# %% [markdown]
# **The questions of the field.** *Why do traditional compilers hardly meet the needs of deep
# learning?* Because the facts that make networks fast (inner values that nobody else reads, fixed
# shapes, buffers apart, sums that may be reordered, a few functions known by name) are gone once the
# network is loops over pointers. The table of five limits has a number for each. *What do several IR
# levels bring?* Each fact is used where it is still visible, and each decision is a small step there.
#
# **Graded tasks** of assignment a1 begin with lesson 02: **1.1** type rule with broadcasting is the
# first.
#
# **What you have now**: a compiler from loops to machine code that ran ten kernels of a real model
# inside minidlc, five limits with a number each, and a schedule of your own. **Next**: lesson 02 builds
# the level that LLVM lacks: a graph of tensors.
