"""Every illegal step is refused where it stands, and says what is in the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from minidlc import te
from minidlc.expr.types import f32
from minidlc.support.errors import LoweringError, ScheduleError
from minidlc.support.locations import PyLoc
from minidlc.te import Schedule
from minidlc.te.primitives import TransformLayout
from minidlc.tests.te.programs import gemm, softmax, stencil

pytestmark = pytest.mark.ch04


@dataclass(frozen=True)
class Refusal:
    """Steps on a fresh schedule; the last one raises `code` with all of `words`."""

    code: str
    use: Callable[[Schedule], object]
    words: tuple[str, ...]


def matmul() -> Schedule:
    """C = A @ B (6 x 8, depth 5); D = relu(C + bias)."""
    return te.create_schedule(gemm(6, 8, 5).outputs)


def two_readers() -> Schedule:
    """a is read by b and c, b by c."""
    return te.create_schedule(stencil(10, 4).outputs)


def rows() -> Schedule:
    """mx, e, s, y of softmax."""
    return te.create_schedule(softmax(4, 9).outputs)


def then(*steps: Callable[[Schedule], object]) -> Callable[[Schedule], object]:
    def use(s: Schedule) -> None:
        for step in steps:
            step(s)

    return use


def attach(s: Schedule) -> None:
    s["C"].compute_at("D", "i")


LOOPS = {
    "unknown stage": Refusal("MDLC0602", lambda s: s["E"], ("'E'", "known: C, D")),
    "placeholder": Refusal("MDLC0602", lambda s: s["A"], ("'A' is a placeholder",)),
    "unknown loop": Refusal(
        "MDLC0603", lambda s: s["C"].split("z", 2), ("split: no loop 'z' in stage 'C'", "i, j, k")
    ),
    "loop that was split": Refusal(
        "MDLC0603",
        then(lambda s: s["C"].split("i", 2), lambda s: s["C"].unroll("i")),
        ("unroll: 'i' of stage 'C' is no loop any more", "io, ii, j, k"),
    ),
    "factor": Refusal("MDLC0604", lambda s: s["C"].split("i", 0), ("factor is 0, expected 1",)),
    "tail": Refusal(
        "MDLC0604", lambda s: s["C"].split("i", 2, tail="cute"), ("'cute'", "did you mean 'cut'")
    ),
    "name taken": Refusal(
        "MDLC0604",
        lambda s: s["C"].split("i", 2, names=("j", "ii")),
        ("loop name 'j' is taken in stage 'C'", "taken: i, j, k"),
    ),
    "no name": Refusal(
        "MDLC0604", lambda s: s["C"].fuse("i", "j", "i j"), ("'i j' is not a name",)
    ),
    "tile names": Refusal(
        "MDLC0604",
        lambda s: s["C"].tile("i", "j", 2, 2, names=("io", "jo", "ii")),
        ("tile names four loops", "got 3"),
    ),
    "split where a stage hangs": Refusal(
        "MDLC0605",
        then(attach, lambda s: s["D"].split("i", 2)),
        ("split: stage 'C' is computed at D.i", "before compute_at of 'C'"),
    ),
    "fuse where a stage hangs": Refusal(
        "MDLC0605",
        then(attach, lambda s: s["D"].fuse("i", "j")),
        ("fuse: stage 'C' is computed at D.i",),
    ),
    "fuse of loops apart": Refusal(
        "MDLC0606",
        lambda s: s["C"].fuse("i", "k"),
        ("fuse: 'k' is not the loop right inside 'i'", "i, j, k", "reorder first"),
    ),
    "fuse of a loop with itself": Refusal(
        "MDLC0606", lambda s: s["C"].fuse("i", "i"), ("'i' is not the loop right inside 'i'",)
    ),
    "fuse of space and reduction": Refusal(
        "MDLC0606", lambda s: s["C"].fuse("j", "k"), ("'k' is a reduction loop",)
    ),
    "kind twice": Refusal(
        "MDLC0607",
        then(lambda s: s["D"].unroll("j"), lambda s: s["D"].vectorize("j")),
        ("vectorize: loop 'j' is unrolled already",),
    ),
    "split of an unrolled loop": Refusal(
        "MDLC0607",
        then(lambda s: s["D"].unroll("j"), lambda s: s["D"].split("j", 2)),
        ("split: loop 'j' is unrolled already", "before making it unrolled"),
    ),
    "reorder names a loop twice": Refusal(
        "MDLC0608", lambda s: s["C"].reorder("i", "j", "i"), ("reorder: loop 'i' is named twice",)
    ),
    "vectorise around a stage": Refusal(
        "MDLC0609",
        then(lambda s: s["C"].compute_at("D", "j"), lambda s: s["D"].vectorize("j")),
        ("stage 'C' is computed at D.j: each lane of 'j' would need a copy of it",),
    ),
    "stage into a vectorised loop": Refusal(
        "MDLC0609",
        then(lambda s: s["D"].vectorize("j"), lambda s: s["C"].compute_at("D", "j")),
        ("compute_at: stage 'C' is computed at D.j: each lane of 'j'",),
    ),
    "vectorised loop not innermost": Refusal(
        "MDLC0610",
        lambda s: s["C"].vectorize("j"),
        ("vectorize: 'k' (serial) lies inside 'j'", "must be innermost", "reorder first"),
    ),
    "reorder into a vectorised loop": Refusal(
        "MDLC0610",
        then(lambda s: s["D"].vectorize("j"), lambda s: s["D"].reorder("j", "i")),
        ("reorder: 'i' (serial) lies inside 'j'",),
    ),
    "two vectorised loops": Refusal(
        "MDLC0610",
        then(lambda s: s["D"].vectorize("j"), lambda s: s["D"].vectorize("i")),
        ("vectorize: 'j' (vectorized) lies inside 'i'",),
    ),
    "lanes that run different times": Refusal(
        "MDLC0610",
        then(
            lambda s: s["D"].split("j", 3),
            lambda s: s["D"].unroll("ji"),
            lambda s: s["D"].vectorize("jo"),
        ),
        ("'ji' runs min(3, 8 - 3*jo) times", "differs between the lanes of 'jo'"),
    ),
    "unrolled loop of no constant extent": Refusal(
        "MDLC0611",
        then(
            lambda s: s["D"].split("i", 4),
            lambda s: s["D"].reorder("io", "j", "ii"),
            lambda s: s["D"].fuse("io", "j", "x"),
            lambda s: s["D"].unroll("ii"),
        ),
        ("unroll: 'ii' is unrolled, but runs", "choose a factor that divides"),
    ),
    "fused inner loop of no constant extent": Refusal(
        "MDLC0611",
        then(
            lambda s: s["D"].split("j", 3),
            lambda s: s["D"].reorder("jo", "i", "ji"),
            lambda s: s["D"].fuse("i", "ji", "x"),
        ),
        ("fuse: 'ji' of stage 'D' is fused, but runs a different number of times",),
    ),
    "more iterations than lanes": Refusal(
        "MDLC0612",
        then(lambda s: s["D"].vectorize("j"), lambda s: s.lower(lanes=4)),
        ("'j' is vectorised and runs 8 times; the target has 4 lanes", "split it by 4"),
    ),
    "parallel reduction": Refusal(
        "MDLC0613",
        lambda s: s["C"].parallel("k"),
        ("parallel: 'k' is a reduction loop", "threads would add to the same elements"),
    ),
    "parallel in parallel": Refusal(
        "MDLC0613",
        then(lambda s: s["D"].parallel("i"), lambda s: s["D"].parallel("j")),
        ("parallel: 'j' lies inside 'i', which is parallel already", "fuse the two loops"),
    ),
    "loop that does not read": Refusal(
        "MDLC0614",
        lambda _: compute_where_it_is_not_read(),
        ("compute_at: nothing inside the loop E.i reads 'C'", "its readers: D"),
    ),
    "cycle": Refusal(
        "MDLC0616", lambda s: s["C"].compute_at("C", "i"), ("computed inside each other: C -> C",)
    ),
    "output inside a loop": Refusal(
        "MDLC0621", lambda s: s["D"].compute_at("C", "i"), ("'D' is an output: it is computed",)
    ),
    "inlined reduction": Refusal(
        "MDLC0617",
        lambda s: s["C"].compute_inline(),
        ("compute_inline: stage 'C' reduces over k", "compute_at places it"),
    ),
    "inlined output": Refusal(
        "MDLC0621", lambda s: s["D"].compute_inline(), ("'D' is an output: it must be stored",)
    ),
    "registers at a moving position": Refusal(
        "MDLC0618",
        then(lambda s: s["C"].set_scope("register"), lambda s: s.lower()),
        (
            "set_scope: 'C' is in registers, but accessed at [i, j], where 'i' is no number",
            "unroll",
        ),
    ),
    "registers of another thread": Refusal(
        "MDLC0618",
        then(
            lambda s: s["C"].set_scope("register").unroll("i", "j"),
            lambda s: s["D"].parallel("i"),
            lambda s: s.lower(),
        ),
        ("'C' is in registers, but used inside the parallel loop 'i'",),
    ),
    "cache in registers at a moving position": Refusal(
        "MDLC0618",
        then(lambda s: s["C"].cache_write("register"), lambda s: s.lower()),
        ('step: cache_write("C", "register")', "'C_c' is in registers"),
    ),
    "scope": Refusal("MDLC0604", lambda s: s["C"].set_scope("heap"), ("no scope 'heap'", "stack")),
    "scope of an output": Refusal(
        "MDLC0621", lambda s: s["D"].set_scope("stack"), ("'D' is an output: it lives in memory",)
    ),
    "cache_write after split": Refusal(
        "MDLC0619",
        then(lambda s: s["C"].split("i", 2), lambda s: s["C"].cache_write("stack")),
        ("cache_write: the loops of 'C' were changed before", "cache_write first"),
    ),
    "cache_write with a stage inside": Refusal(
        "MDLC0605",
        then(attach, lambda s: s["D"].cache_write("stack")),
        ("cache_write: stage 'C' is computed at D.i",),
    ),
    "cache_read by a stage that does not read": Refusal(
        "MDLC0620",
        lambda s: s["D"].cache_read("A"),
        ("cache_read: 'D' does not read 'A'", "its readers: C"),
    ),
    "cache_read of a dimension that is none": Refusal(
        "MDLC0604",
        lambda s: s["C"].cache_read("B", {2: 4}),
        ("a tile of 4 in dimension 2 of f32[5, 8]",),
    ),
    "rfactor of a spatial loop": Refusal(
        "MDLC0623",
        then(lambda s: s["C"].split("j", 4), lambda s: s["C"].rfactor("ji")),
        ("rfactor: 'ji' is a spatial loop of 'C'", "reduction loops: k"),
    ),
    "rfactor of a whole reduction": Refusal(
        "MDLC0623",
        lambda s: s["C"].rfactor("k"),
        ("rfactor: 'k' is a reduction loop of 'C', but no half", "split 'k' first"),
    ),
    "rfactor of what was fused": Refusal(
        "MDLC0623",
        then(
            lambda s: s["C"].split("k", 2),
            lambda s: s["C"].fuse("ko", "ki", "kk"),
            lambda s: s["C"].split("kk", 2),
            lambda s: s["C"].rfactor("kki"),
        ),
        ("'kki' is a reduction loop of 'C', but no half of a split reduction loop",),
    ),
    "rfactor of no loop": Refusal("MDLC0603", lambda s: s["C"].rfactor("ki"), ("no loop 'ki'",)),
    "rfactor of a stage without reduction": Refusal(
        "MDLC0623", lambda s: s["D"].rfactor("j"), ("'j' is a spatial loop", "loops: none")
    ),
    "rfactor to an odd place": Refusal(
        "MDLC0604",
        then(lambda s: s["C"].split("k", 2), lambda s: s["C"].rfactor("ki", "frist")),
        ("no position 'frist'", "did you mean 'first'"),
    ),
    "rfactor around a stage": Refusal(
        "MDLC0605",
        then(
            lambda s: s["C"].cache_read("B"),
            lambda s: s["C"].split("k", 2),
            lambda s: s["B_p"].compute_at("C", "ko"),
            lambda s: s["C"].rfactor("ki"),
        ),
        ("rfactor: stage 'B_p' is computed at C.ko", "before compute_at of 'B_p'"),
    ),
    "layout of an output": Refusal(
        "MDLC0621",
        lambda s: s["D"].transform_layout({0: 4}),
        ("'D' is an output: it has the layout that the caller expects",),
    ),
    "layout of a dimension that is none": Refusal(
        "MDLC0604",
        lambda s: s["C"].transform_layout({2: 4}),
        ("transform_layout: a tile of 4 in dimension 2 of f32[6, 8]",),
    ),
    "layout that tiles a dimension twice": Refusal(
        "MDLC0604",
        lambda s: s.apply(TransformLayout("C", ((1, 2), (1, 4)))),
        ("a tile of 2 in dimension 1", "each dimension once"),
    ),
    "layout after split": Refusal(
        "MDLC0619",
        then(lambda s: s["C"].split("i", 2), lambda s: s["C"].transform_layout({0: 2})),
        ("the loops of 'C' were changed before", "transform_layout first"),
    ),
    "shifted reduction": Refusal(
        "MDLC0625",
        lambda s: s["C"].split("k", 2, tail="shift"),
        ("split: 'k' is a reduction loop: what two blocks cover would be added twice",),
    ),
    "shifted blocks inside a reduction": Refusal(
        "MDLC0625",
        then(
            lambda s: s["C"].split("j", 3, tail="shift"), lambda s: s["C"].reorder("k", "jo", "ji")
        ),
        ("reorder: split of 'j' with tail=\"shift\": 'jo' lies inside the reduction loop 'k'",),
    ),
    "shifted blocks in parallel": Refusal(
        "MDLC0625",
        then(lambda s: s["D"].split("j", 3, tail="shift"), lambda s: s["D"].parallel("jo")),
        ("parallel: split of 'j'", "'jo' is parallel: two threads would store the same elements"),
    ),
    "shift of a tail": Refusal(
        "MDLC0625",
        then(
            lambda s: s["D"].split("j", 7),
            lambda s: s["C"].compute_at("D", "jo"),
            lambda s: s["C"].split("j", 2, tail="shift"),
        ),
        ("'j' runs min(7, 8 - 7*jo) times, which is not proved to be 2 or more",),
    ),
    "shift of a half that varies": Refusal(
        "MDLC0625",
        then(lambda s: s["D"].split("j", 5), lambda s: s["D"].split("ji", 2, tail="shift")),
        ("'ji' runs a varying number of times", 'use tail="cut"'),
    ),
    "stored inside of where it is computed": Refusal(
        "MDLC0626",
        then(attach, lambda s: s["C"].store_at("D", "j")),
        ("store_at: 'C' is computed at D.i, which is not inside D.j",),
    ),
    "store of an output": Refusal(
        "MDLC0621", lambda s: s["D"].store_at("D", "i"), ("'D' is an output: it lives in memory",)
    ),
}


def compute_where_it_is_not_read() -> None:
    """E does not read C, which is read by D."""
    A = te.placeholder(f32[4], "A")
    C = te.compute((4,), lambda i: A[i] + 1.0, name="C")
    D = te.compute((4,), lambda i: C[i] + 1.0, name="D")
    E = te.compute((4,), lambda i: A[i] * 2.0, name="E")
    te.create_schedule([D, E])["C"].compute_at("E", "i")


@pytest.mark.parametrize("name", LOOPS)
def test_refused_where_it_stands(name: str) -> None:
    refusal = LOOPS[name]
    with pytest.raises(ScheduleError) as caught:
        refusal.use(matmul())
    report = str(caught.value)
    assert caught.value.code == refusal.code, report
    for words in refusal.words:
        assert words in report
    loc = caught.value.loc
    assert isinstance(loc, PyLoc)
    assert loc.file == __file__


def test_a_reader_outside_the_loop_is_named() -> None:
    s = two_readers()
    with pytest.raises(ScheduleError, match=r"'b' reads 'a' too, outside the loop c\.i") as caught:
        s["a"].compute_at("c", "i")
    assert caught.value.code == "MDLC0615"
    assert "consumers before producers" in (caught.value.hint or "")
    s["b"].compute_at("c", "i")
    s["a"].compute_at("c", "i")  # in this order it is legal


def test_a_reader_moved_away_is_refused_then() -> None:
    s = rows()
    s["s"].compute_at("y", "i")
    s["e"].compute_at("y", "i")
    with pytest.raises(ScheduleError) as caught:
        s["e"].compute_at("s", "l")  # y reads e too
    assert caught.value.code == "MDLC0615"
    assert "'y' reads 'e' too" in caught.value.message


def test_reorder_that_takes_a_reader_out_is_refused() -> None:
    s = two_readers()
    s["b"].compute_at("c", "j")
    s["a"].compute_at("c", "j")
    s["c"].split("i", 2)
    s["a"].compute_at("c", "ii")
    with pytest.raises(ScheduleError) as caught:
        s["b"].compute_at("c", "io")
    assert caught.value.code == "MDLC0615"


def test_two_stages_inside_each_other() -> None:
    A = te.placeholder(f32[4], "A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((4,), lambda i: B[i] + 1.0, name="C")
    D = te.compute((4,), lambda i: B[i] * C[i], name="D")
    s = te.create_schedule(D)
    s["C"].compute_at("D", "i")
    s["B"].compute_at("D", "i")
    with pytest.raises(ScheduleError) as caught:
        s["C"].compute_at("B", "i")
    assert caught.value.code == "MDLC0614"
    assert "nothing inside the loop B.i reads 'C'" in caught.value.message


def test_a_refused_step_changes_nothing() -> None:
    s = matmul()
    s["C"].split("i", 2)
    before, text = s.trace, str(s.lower())
    with pytest.raises(ScheduleError):
        s["C"].parallel("k")
    assert s.trace == before
    assert str(s.lower()) == text


def test_the_report_shows_step_and_loops() -> None:
    s = matmul()
    s["D"].split("j", 4)
    with pytest.raises(ScheduleError) as caught:
        s["C"].parallel("k")
    report = str(caught.value)
    assert report.startswith("error[MDLC0613]: parallel: 'k' is a reduction loop")
    assert f"--> {__file__}:" in report
    assert '= step: parallel("C", "k")' in report
    assert "= loops before this step:" in report
    assert "for jo in serial(0, 2):" in report


def test_a_trusted_schedule_is_checked_by_lower_and_the_step_is_named() -> None:
    s = te.create_schedule(gemm(6, 8, 5).outputs, checked=False)
    s["D"].split("j", 3)
    s["D"].reorder("jo", "i", "ji")
    s["D"].fuse("i", "ji", "x")
    s["D"].unroll("jo")
    with pytest.raises(ScheduleError) as caught:
        s.lower()
    assert caught.value.code == "MDLC0611"
    assert 'step: fuse("D", "i", "ji", "x")' in str(caught.value)


def test_parameters_that_are_not_there() -> None:
    s = matmul()
    assert [p.name for p in s.lower().params] == ["A", "B", "bias", "D"]
    order = ("D", "A", "B", "bias")
    assert tuple(p.name for p in s.lower(params=order).params) == order
    with pytest.raises(LoweringError) as caught:
        s.lower(params=("A", "B", "bia", "D"))
    assert caught.value.code == "MDLC0724"
    assert "did you mean 'bias'" in str(caught.value)


def test_outputs_that_cannot_be_computed() -> None:
    A = te.placeholder(f32[4], "A")
    with pytest.raises(LoweringError) as caught:
        te.create_schedule(A)
    assert caught.value.code == "MDLC0723"
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    again = te.compute((4,), lambda i: B[i] + 1.0, name="A")
    with pytest.raises(LoweringError, match="two different tensors named 'A'") as caught:
        te.create_schedule(again)
    assert caught.value.code == "MDLC0704"
