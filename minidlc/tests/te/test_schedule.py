"""Writing, printing, storing and replaying schedules, and replacing their parts."""

from __future__ import annotations

import json

import pytest

from minidlc import te
from minidlc.expr.types import f32
from minidlc.loop.nodes import Alloc, LoopFunction, Scope, Store, walk
from minidlc.support.errors import OptionError, ParseError, ScheduleError
from minidlc.support.extension import counting, use
from minidlc.te import Schedule, State, parse_trace, replay
from minidlc.te.lower import lower_state
from minidlc.te.primitive import Primitive, Trace
from minidlc.te.primitives import Split, Vectorize
from minidlc.tests.counting import python_calls
from minidlc.tests.te.programs import gemm, stencil

pytestmark = pytest.mark.ch04


def fast_gemm(checked: bool = True) -> Schedule:
    """The reference schedule: packed B, register tile, epilogue on registers."""
    case = gemm(31, 64, 9)
    sch = te.create_schedule(case.outputs, checked=checked)
    sch["C"].cache_read("B", {1: 32})
    io, ii = sch["D"].split("i", 14)
    jo, ji = sch["D"].split("j", 32)
    jv, jl = sch["D"].split(ji, 16, names=("jv", "jl"))
    sch["D"].reorder(jo, io, ii, jv, jl).unroll(ii, jv).vectorize(jl).parallel(jo)
    sch["C"].compute_at(sch["D"], io).set_scope("register")
    sch["C"].split("j", 16, names=("jv", "jl"))
    sch["C"].reorder("k", "i", "jv", "jl").unroll("i", "jv").vectorize("jl")
    return sch


TEXT = """\
cache_read("B", ["C"], tiles=[[1, 32]])
split("D", "i", 14, ["io", "ii"], tail="cut")
split("D", "j", 32, ["jo", "ji"], tail="cut")
split("D", "ji", 16, ["jv", "jl"], tail="cut")
reorder("D", ["jo", "io", "ii", "jv", "jl"])
unroll("D", "ii")
unroll("D", "jv")
vectorize("D", "jl")
parallel("D", "jo")
compute_at("C", "D", "io")
set_scope("C", "register")
split("C", "j", 16, ["jv", "jl"], tail="cut")
reorder("C", ["k", "i", "jv", "jl"])
unroll("C", "i")
unroll("C", "jv")
vectorize("C", "jl")"""


def test_a_trace_prints_one_primitive_a_line_and_parses_back() -> None:
    trace = fast_gemm().trace
    assert str(trace) == TEXT
    assert parse_trace(TEXT) == trace
    assert parse_trace("# packing first\n\n" + TEXT.replace(', tail="cut"', "")) == trace


def test_a_trace_is_json() -> None:
    trace = fast_gemm().trace
    assert json.loads(trace.to_json())[1] == ["split", "D", "i", 14, ["io", "ii"], "cut"]
    assert Trace.from_json(trace.to_json()) == trace
    assert Primitive.from_list(trace[1].to_list()) == trace[1]
    assert len(trace.to_json()) < 960


def test_replaying_a_trace_gives_the_same_program() -> None:
    sch = fast_gemm()
    again = Schedule(sch.outputs, parse_trace(TEXT))
    assert again.lower() == sch.lower()
    assert str(lower_state(replay(sch.outputs, sch.trace))) == str(sch.lower(partition=False))
    assert fast_gemm(checked=False).lower() == sch.lower()


def test_the_main_part_of_a_gemm_has_no_masks_and_no_address_arithmetic() -> None:
    text = str(fast_gemm().lower("gemm", lanes=16))
    assert "min(" not in text
    assert "if " not in text
    assert "//" not in text
    assert "B_p[jo, k, 16*jv + jl]" in text
    assert 'C = alloc(f32[14, 32], "register")' in text
    assert text.startswith("def gemm(A: f32[31, 9], B: f32[9, 64], bias: f32[64], D: f32[31, 64]):")


def test_lowering_is_little_work() -> None:
    def work() -> None:
        fast_gemm(checked=False).lower(lanes=16)

    work()  # what is remembered from call to call
    assert python_calls(work) < 35_000  # some 10 ms


def test_a_handle_is_rebound_but_its_parts_never_change() -> None:
    sch = te.create_schedule(gemm(4, 4, 4).outputs)
    empty, state = sch.trace, sch.state
    handle = sch["C"]
    assert handle.split("i", 2) == ("io", "ii")
    assert handle.loops == ("io", "ii", "j", "k")
    assert empty == ()
    assert state.stage("C").leaves == ("i", "j", "k")
    assert repr(sch) == "<schedule of D: 1 primitives>"


def test_stages_are_addressed_by_tensor_name_or_handle() -> None:
    A = te.placeholder(f32[4], "A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((4,), lambda i: B[i] * 2.0, name="C")
    texts: set[str] = set()
    for target in (C, "C", None):
        sch = te.create_schedule([C])
        sch[B].compute_at(target or sch[C], "i")
        texts.add(str(sch.lower()))
    assert len(texts) == 1


def test_prefixes_are_schedules_of_their_own() -> None:
    sch = fast_gemm()
    prefixes = sch.prefixes()
    assert [len(p.trace) for p in prefixes] == list(range(17))
    assert str(prefixes[0].lower()) == str(te.create_schedule(sch.outputs).lower())
    for prefix in prefixes:
        assert "def kernel" in str(prefix.lower(partition=False))


def test_show_prints_the_loops_without_those_of_one_iteration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = gemm(4, 4, 4)
    sch = te.create_schedule(case.outputs)
    sch["C"].compute_at("D", "i")
    sch.show()
    shown = capsys.readouterr().out
    assert "for i_C in serial(0, 1)" in str(sch.lower(partition=False))
    assert "i_C" not in shown
    assert shown.startswith("def kernel(A: f32[4, 4]")
    sch.show(partition=True)
    assert capsys.readouterr().out == shown


def test_loop_names_are_the_authors_unless_they_clash() -> None:
    sch = te.create_schedule(gemm(4, 4, 4).outputs)
    assert "_C" not in str(sch.lower())
    sch["C"].compute_at("D", "j")
    text = str(sch.lower(partition=False))
    assert "for i_C in" in text
    assert "for j_C in" in text
    assert "for k in" in text


def test_stores_know_the_tensor_they_serve() -> None:
    sch = te.create_schedule(gemm(4, 8, 4).outputs)
    sch["C"].cache_read("B", {1: 4})
    sch["C"].cache_write("stack")
    stores = [s for s in walk(sch.lower().body) if isinstance(s, Store)]
    assert {(s.buffer, s.stage) for s in stores} == {
        ("B_p", "B"),
        ("C_c", "C"),
        ("C", "C"),
        ("D", "D"),
    }


def test_intermediate_stages_are_allocated_around_their_uses() -> None:
    sch = te.create_schedule(gemm(4, 4, 4).outputs)
    (alloc,) = [s for s in walk(sch.lower().body) if isinstance(s, Alloc)]
    assert (alloc.buffer, alloc.scope, alloc.type) == ("C", Scope.ARENA, f32[4, 4])


def test_an_output_that_is_read_is_still_an_output() -> None:
    A = te.placeholder(f32[4], "A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((4,), lambda i: B[i] * 2.0, name="C")
    fn = te.create_schedule([C, B]).lower()
    assert [p.name for p in fn.params] == ["A", "C", "B"]
    assert fn.outputs == ("C", "B")
    assert not [s for s in walk(fn.body) if isinstance(s, Alloc)]


BAD_TRACES = {
    'splti("C", "i", 2, ["io", "ii"])': (
        "MDLC0341",
        "no primitive 'splti'",
        "did you mean 'split'",
    ),
    'split("C", "i", 2': ("MDLC0301", "", ""),
    'split("C", "i")': ("MDLC0342", "split takes (stage, axis, factor, names, tail)", ""),
    'split("C", "i", 2, ["io", "ii"], tale="cut")': ("MDLC0342", "split takes", "'tale'"),
    'split("C", "i", 2.5, ["io", "ii"])': ("MDLC0342", "factor is 2.5, expected int", ""),
    'split("C", "i", True, ["io", "ii"])': ("MDLC0342", "factor is True, expected int", ""),
    'split("C", "i", 2, ["io"])': ("MDLC0342", "names is ('io',), expected tuple[str, str]", ""),
    'reorder("C", [1, 2])': ("MDLC0342", "names is (1, 2)", ""),
    'cache_read("B", ["C"], tiles=[[1]])': ("MDLC0342", "tiles is ((1,),)", ""),
    'split("C", i, 2, ["io", "ii"])': ("MDLC0340", "arguments are strings, numbers", ""),
    "x = 3": ("MDLC0340", "one primitive a line", "split("),
}


@pytest.mark.parametrize("text", BAD_TRACES)
def test_malformed_traces(text: str) -> None:
    code, message, hint = BAD_TRACES[text]
    with pytest.raises(ParseError) as caught:
        parse_trace(f'unroll("C", "k")\n{text}', "trace.txt")
    assert caught.value.code == code
    assert message in str(caught.value)
    assert hint in str(caught.value)
    assert str(caught.value.loc).startswith("trace.txt:2:")


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[[]]", '[["split"]]', '[["nothing", 1]]'])
def test_malformed_json(text: str) -> None:
    with pytest.raises(ParseError):
        Trace.from_json(text)


def test_a_primitive_can_be_replaced() -> None:
    def halved(step: Primitive, state: State) -> State:
        assert isinstance(step, Split)
        return Split(step.stage, step.axis, step.factor // 2, step.names).apply(state)

    with use(**{"primitive.split": halved}), counting() as calls:
        sch = te.create_schedule(gemm(8, 8, 2).outputs)
        sch["D"].split("j", 8)
        text = str(sch.lower())
    assert calls["primitive.split"] == 1
    assert "for ji in serial(0, 4)" in text


def test_an_unknown_primitive_cannot() -> None:
    with (
        pytest.raises(OptionError, match=r"unknown extension point 'primitive\.splt'"),
        use(**{"primitive.splt": lambda step, state: state}),
    ):
        pass


def test_lower_can_be_replaced_and_is_still_cut_and_checked() -> None:
    def mine(schedule: Schedule, name: str) -> LoopFunction:
        return te.lower(schedule, f"{name}_mine", partition=False)

    sch = te.create_schedule(stencil(10, 4).outputs)
    sch["c"].split("i", 4)
    with use(lower=mine), counting() as calls:
        text = str(sch.lower("blur"))
    assert calls["lower"] == 1
    assert text == str(sch.lower("blur_mine"))
    assert "min(" not in text
    sch["b"].set_scope("register")
    with use(lower=mine), pytest.raises(ScheduleError) as caught:
        sch.lower()
    assert caught.value.code == "MDLC0618"


def test_every_primitive_shows_the_loops_before_and_after() -> None:
    from minidlc.te import primitives

    for name in primitives.__all__:
        cls = getattr(primitives, name)
        assert issubclass(cls, Primitive)
        assert "Before:" in (cls.__doc__ or ""), name
        assert "After `" in (cls.__doc__ or ""), name
        assert "Refuses" in (cls.__doc__ or "") or "legal" in (cls.__doc__ or ""), name


def test_a_step_is_a_value() -> None:
    assert Vectorize("C", "j") == Vectorize("C", "j")
    assert {Split("C", "i", 4, ("io", "ii")): 1}[Split("C", "i", 4, ("io", "ii"))] == 1
