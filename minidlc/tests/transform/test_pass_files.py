"""What the pipeline writes: numbered dumps, reports, and the reproducer of a failure."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import minidlc.ops  # noqa: F401
from minidlc.graph import Graph, load_text, parse
from minidlc.support import extension
from minidlc.support.errors import OptionError, PassError
from minidlc.transform import Cse, Dce, Fuse, Pass, Pipeline, parse_pipeline

pytestmark = pytest.mark.ch02

G = parse(
    """\
def f(x: f32[2, 4], w: f32[4, 4], b: f32[4]):
    c: f32[4, 4] = const("c", sha256="")
    m = gemm(x, w, b)
    n = matmul(m, c)
    e = exp(n)
    d = exp(n)
    r = add(e, d)
    return r
""".replace(', sha256=""', ""),
    {"c": np.arange(16, dtype=np.float32).reshape(4, 4)},
)


def test_a_dump_is_numbered_parses_and_shows_what_changed(tmp_path: Path) -> None:
    after, records = Pipeline.default(1).run(G, dump=tmp_path / "out")
    names = [p.name for p in sorted((tmp_path / "out").glob("*.dlc"))]
    assert names == ["00_input.dlc", *(f"{n:02}_{r.name}.dlc" for n, r in enumerate(records, 1))]
    assert load_text(tmp_path / "out" / names[0]) == G
    assert load_text(tmp_path / "out" / names[-1]) == after
    diffs = [p.stem for p in sorted((tmp_path / "out").glob("*.diff"))]
    assert diffs == [f"{n:02}_{r.name}" for n, r in enumerate(records, 1) if r.changed]
    text = (tmp_path / "out" / f"{diffs[0]}.diff").read_text(encoding="utf-8")
    assert text.startswith("--- 00_input.dlc\n+++ 01_decompose.dlc\n@@ ")
    assert "-    m: f32[2, 4] = gemm(x, w, b)\n" in text
    assert "+    m: f32[2, 4] = add(matmul_1, b)\n" in text


def test_files_of_passes_before_a_failure_are_there(tmp_path: Path) -> None:
    def odd_name(graph: Graph) -> Graph:
        raise ValueError("no")

    with pytest.raises(PassError):
        Pipeline((Cse(),)).insert_after("cse", odd_name).run(G, dump=tmp_path, reproducer="")
    assert {p.name for p in tmp_path.glob("*.dlc")} == {"00_input.dlc", "01_cse.dlc"}


def repeat_note(e: PassError) -> str:
    return next(n for n in e.notes if n.startswith("to repeat it: ")).removeprefix("to repeat it: ")


def test_a_failure_leaves_the_graph_and_the_command(tmp_path: Path) -> None:
    """The command is run for real in tests/cli; here its passes fail on its graph again."""
    with pytest.raises(PassError) as caught:
        Pipeline((Cse(), Fuse(max_ops=8))).run(G, reproducer=tmp_path / "new")
    command = repeat_note(caught.value)
    assert command == (tmp_path / "new" / "f_fuse.txt").read_text(encoding="utf-8").strip()
    program, opt, file, option, passes = shlex.split(command)
    assert (program, opt, option) == ("minidlc", "opt", "--passes")
    with pytest.raises(PassError) as again:
        parse_pipeline(passes).run(load_text(file))
    assert (again.value.code, again.value.message) == (caught.value.code, caught.value.message)
    before, _ = Pipeline((Cse(),)).run(G)
    assert load_text(file) == before, "the last good graph, not the first"


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIDLC_REPRODUCER", str(tmp_path))
    with pytest.raises(PassError):
        Pipeline((Fuse(),)).run(G)
    assert (tmp_path / "f_fuse.dlc").exists()
    monkeypatch.delenv("MINIDLC_REPRODUCER")
    with pytest.raises(PassError) as caught:
        Pipeline((Fuse(),)).run(G)
    assert any(n.startswith("MINIDLC_REPRODUCER=DIR writes this graph") for n in caught.value.notes)


def test_a_pass_of_ones_own_is_repeated_in_python(tmp_path: Path) -> None:
    def mine(graph: Graph) -> Graph:
        return Graph(graph.name, graph.inputs, graph.nodes[1:], graph.outputs)

    with pytest.raises(PassError) as caught:
        Pipeline((Dce(),)).replace("dce", mine).run(G, reproducer=tmp_path)
    note = repeat_note(caught.value)
    assert note.startswith("mc.Pipeline((the pass 'dce',)).run(minidlc.graph.load_text(")
    file = re.findall(r"load_text\('(.*?)'\)", note)[0]
    assert load_text(file) == G
    with extension.use(**{"pass.dce": mine}), pytest.raises(PassError) as caught:
        Pipeline((Dce(),)).run(G, reproducer=tmp_path)
    assert repeat_note(caught.value).endswith("inside the same mc.use")


def test_a_reproducer_that_cannot_be_written_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PassError, match="requires 'decomposed'") as caught:
        Pipeline((Fuse(),)).run(G, reproducer=tmp_path / "file")
    assert any(n.startswith("no reproducer: ") for n in caught.value.notes)


def test_reports_go_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline.default()
    pipeline.run(G)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("MINIDLC_LOG", "passes, rewrites,fusion,refusals")
    _, records = pipeline.run(G)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    passes = [line for line in lines if line.startswith("passes: ")]
    first = re.sub(r"[0-9.]+ s", "T s", passes[0])
    assert first == "passes: decompose: T s, 5 -> 6 nodes, 1 rewrite"
    assert len(passes) == len(records)
    for topic, events in (
        ("rewrites", [(r.name, e) for r in records for e in r.rewrites]),
        ("refusals", [(r.name, e) for r in records for e in r.refusals]),
        ("fusion", [(r.name, e) for r in records for e in r.fusion]),
    ):
        told = [line for line in lines if line.startswith(f"{topic}: ")]
        assert told == [f"{topic}: {name}: {e}" for name, e in events]
        assert told, topic


def test_an_unknown_report_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIDLC_LOG", "passes,fusions")
    with pytest.raises(OptionError, match="MINIDLC_LOG: unknown report 'fusions'") as caught:
        Pipeline((Cse(),)).run(G)
    assert caught.value.code == "MDLC1041"
    assert "reports: passes, rewrites, refusals, fusion, kernels" in caught.value.notes
    assert caught.value.hint == "did you mean 'fusion'?"


@pytest.mark.parametrize("limit", [-1, True, 1.5, "2"])
def test_a_limit_is_a_number_of_rewrites(limit: object) -> None:
    with pytest.raises(OptionError, match="limit must be a number of rewrites, got") as caught:
        Cse(limit=limit)  # pyright: ignore
    assert caught.value.code == "MDLC1042"


def test_a_negative_limit_in_a_text_is_refused() -> None:
    with pytest.raises(OptionError, match="got -3") as caught:
        parse_pipeline("cse{limit=-3}")
    assert caught.value.code == "MDLC1042"


def test_a_limit_holds_outside_a_pipeline_too() -> None:
    g = parse(
        "def f(x: f32[2]):\n" + "".join(f"    v{n} = exp(x)\n" for n in range(5)) + "    return x"
    )
    assert [len(Dce(limit=n)(g).nodes) for n in (None, 0, 1, 3, 9)] == [0, 5, 4, 2, 0]


def test_until() -> None:
    p = Pipeline.default()
    assert p.until(0).passes == ()
    assert p.until(3) == Pipeline(p.passes[:3])
    assert p.until(len(p.passes)) == p
    assert p.until("fold_constants") == p.until(2), "the first of that name"
    assert str(p.until("cse", limit=2)).endswith("fold_constants,cse{limit=2}")
    assert p.until(0, limit=2) == Pipeline(())
    with pytest.raises(
        OptionError, match=f"no pass 99, the pipeline has {len(p.passes)}"
    ) as caught:
        p.until(99)
    assert caught.value.code == "MDLC1043"
    for wrong, code in ((-1, "1043"), ("csee", "1011"), (True, "1001"), (1.0, "1001")):
        with pytest.raises(OptionError) as caught:
            p.until(wrong)  # pyright: ignore
        assert caught.value.code == f"MDLC{code}"
    with pytest.raises(OptionError, match="limit must be"):
        p.until("cse", limit=-1)


def test_every_prefix_and_limit_of_a_pass_gives_a_graph() -> None:
    p = Pipeline.default()
    _, records = p.run(G)
    for count, record in enumerate(records, 1):
        assert p.until(count).run(G)[0] == record.after
        for limit in range(len(record.done) + 1):
            _, some = p.until(count, limit).run(G)
            assert some[-1].done == record.done[:limit]


def test_what_a_pass_requires_is_named_with_what_ensures_it() -> None:
    with pytest.raises(PassError) as caught:
        Pipeline((Fuse(),)).run(G, reproducer="")
    assert caught.value.message == "pass 'fuse': requires 'decomposed', which does not hold"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("passes that ensure it: decompose")


def test_a_pass_keeps_what_it_did_before_it_failed() -> None:
    class Breaks(Pass):
        name = "breaks"

        def run(self, graph: Graph) -> Graph:
            graph = Cse().run(graph)
            return Graph(graph.name, graph.inputs, graph.nodes[1:], graph.outputs)

    with pytest.raises(PassError) as caught:
        Pipeline((Breaks(),)).run(G, reproducer="")
    assert [str(r) for r in caught.value.done] == ["same as e at d: done"]
