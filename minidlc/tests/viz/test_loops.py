"""The picture of a loop nest: what it counts, and that it is legible."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import add

import pytest

from minidlc.expr.types import f32
from minidlc.loop.nodes import Kind, LoopFunction
from minidlc.loop.text import parse_function
from minidlc.support.errors import OptionError
from minidlc.target import Target
from minidlc.te import Schedule, compute, create_schedule, placeholder, reduce_axis, sum
from minidlc.tests.viz.geometry import Seen, meet, read_svg
from minidlc.viz import loops
from minidlc.viz.drawing import SMALLEST
from minidlc.viz.nest import LoopRow, TextRow, deepest, loop_count, nest_of, steps

MACHINE = Target("x86_64", "generic", "", l1=32 << 10, l2=512 << 10)

TEXT = """
def f(A: f32[64, 64], B: f32[64, 64], C: f32[64, 64]):
    for i in parallel(0, 5):
        T = alloc(f32[14, 64], "register")
        for ii in unrolled(0, min(14, 64 - 14*i)):
            for j in vectorized(0, 64):
                T[ii, j] = A[14*i + ii, j] * 2.0
        for once in serial(0, 1):
            for ii in serial(0, min(14, 64 - 14*i)):
                if ii - 1 >= 0:
                    C[14*i + ii, 0] = T[ii, 0] + B[ii, 3]
"""


def gemm() -> tuple[Schedule, Schedule]:
    a, b = placeholder(f32[256, 512], "A"), placeholder(f32[512, 256], "B")
    k = reduce_axis(512, "k")
    c = compute((256, 256), lambda i, j: sum(a[i, k] * b[k, j], k), name="C")
    plain, tiled = create_schedule([c]), create_schedule([c])
    io, ii = tiled[c].split("i", 14)
    jo, ji = tiled[c].split("j", 32)
    tiled[c].reorder(io, jo, "k", ii, ji)
    tiled[c].parallel(io)
    tiled[c].vectorize(ji)
    tiled[c].unroll(ii)
    return plain, tiled


@pytest.fixture(scope="module")
def fn() -> LoopFunction:
    return parse_function(TEXT)


def test_rows(fn: LoopFunction) -> None:
    rows = [r for r in nest_of(fn) if isinstance(r, LoopRow)]
    assert [(r.depth, r.var, r.kind, r.times) for r in rows] == [
        (0, "i", Kind.PARALLEL, 5),
        (1, "ii", Kind.UNROLLED, 14),
        (2, "j", Kind.VECTORIZED, 64),
        (1, "ii", Kind.SERIAL, 14),
    ]
    texts = [r.text for r in nest_of(fn) if isinstance(r, TextRow)]
    assert texts[0] == "T = alloc(f32[14, 64], register)"
    assert "C[14*i + ii, 0] = T[ii, 0] + B[ii, 3]" in texts


def test_bytes_touched(fn: LoopFunction) -> None:
    rows = [r for r in nest_of(fn) if isinstance(r, LoopRow)]
    whole = dict(rows[0].touched)
    assert whole["A"] == 64 * 64 * 4
    assert "T" not in whole  # in registers
    assert dict(rows[1].touched) == {"A": 14 * 64 * 4}
    assert dict(rows[2].touched) == {"A": 64 * 4}
    assert dict(rows[3].touched) == {"C": 14 * 4, "B": 14 * 4}


def test_counts_are_exact_with_tails(fn: LoopFunction) -> None:
    assert steps(fn.body) == 64 * 64 + 64
    assert loop_count(fn.body) == 4
    assert deepest(fn.body) == 3


def test_large_functions_keep_the_heaviest_nest() -> None:
    light = "\n".join(f"    for i{n} in serial(0, 4):\n        A[i{n}] = {n}.0" for n in range(60))
    text = f"def f(A: f32[64]):\n{light}\n    for k in serial(0, 64):\n        A[k] = 1.0\n"
    rows = nest_of(parse_function(text), limit=70)
    assert len(rows) <= 70
    assert any(isinstance(r, LoopRow) and r.var == "k" for r in rows)
    folded = [r for r in rows if isinstance(r, TextRow) and r.text.startswith("…")]
    assert folded[0].text == "… 1 loop that write A: 4 stores"


@pytest.fixture(scope="module", params=["one", "two"])
def seen(request: pytest.FixtureRequest, fn: LoopFunction) -> Seen:
    plain, tiled = gemm()
    nests = {"one": fn, "two": [("plain", plain), ("tiled", tiled), ("lowered", fn)]}
    return read_svg(loops(nests[request.param], target=MACHINE).svg)


def test_picture_is_legible(seen: Seen) -> None:
    assert min(seen.pixels(w) for w in seen.all_words) >= SMALLEST
    for a, b in itertools.combinations(seen.all_words, 2):
        assert not meet(a.area, b.area, 1), (a.text, b.text)
    for word in seen.all_words:
        assert word.area[0] >= 0
        assert word.area[2] <= seen.width, word.text


def test_bars_grow_with_the_extent_and_carry_marks() -> None:
    plain, tiled = gemm()
    svg = loops(plain, target=MACHINE).svg
    seen = read_svg(svg)
    lengths = [b[2] - b[0] for b in seen.areas["loop"]]
    assert lengths[0] == lengths[1] < lengths[2]  # i: 256, j: 256, k: 512
    words = {w.text for w in read_svg(loops(tiled, target=MACHINE).svg).words["loop"]}
    assert {"∥", "▥", "≡"} <= words


def test_caches_are_those_of_the_target() -> None:
    plain, _ = gemm()
    texts = [w.text for w in read_svg(loops(plain, target=MACHINE).svg).all_words]
    assert "1.3 MB > L2" in texts
    assert "4.1 kB ≤ L1" in texts
    assert any("L1 32 KiB, L2 512 KiB" in text for text in texts)


def test_a_long_statement_has_one_ellipsis_at_its_end() -> None:
    a = placeholder(f32[64], "a_tensor_with_a_long_name")
    c = compute((64,), lambda i: reduce(add, [a[i]] * 20), name="C")
    words = [w.text for w in read_svg(loops(create_schedule([c]), target=MACHINE).svg).all_words]
    (cut,) = [w for w in words if "…" in w and "[i]" in w]
    assert cut.count("…") == 1
    assert cut.endswith("…")
    assert "a_tensor" in cut


def test_same_bytes_on_every_run(fn: LoopFunction) -> None:
    assert loops(fn, target=MACHINE).svg == loops(fn, target=MACHINE).svg


def test_titles() -> None:
    plain, _ = gemm()
    assert loops(plain, target=MACHINE).title == "C: 3 loops, 3 deep, 33,619,968 stores"
    assert loops([("a", plain), ("b", plain)], target=MACHINE).title == "a | b"
    assert loops(plain, target=MACHINE, title="mine").title == "mine"


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(OptionError, match="the list is empty") as error:
        loops([], target=MACHINE)
    assert error.value.code == "MDLC1023"
