"""What is told and kept when a pass fails: the last good graph, and how to see it fail again.

    Pipeline.default().run(g, reproducer="out")     # or MINIDLC_REPRODUCER=out in the environment
    # out/f_cse.dlc, out/f_cse.npz, out/f_cse.txt
    # minidlc opt out/f_cse.dlc --passes cse        # the line in the .txt: it fails the same way

A command knows the passes that the compiler brings. A pass of one's own, or one that `mc.use`
replaces, is repeated in Python: the note says how. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from minidlc.graph.graph import Graph
from minidlc.graph.text import save_text
from minidlc.support import extension
from minidlc.support.errors import CompileError, PassError
from minidlc.support.names import identifier
from minidlc.transform.pass_ import Pass, registered_passes

_SHOWN_LINES = 60  # of the last good graph, in an error


def failure(
    step: Pass, graph: Graph, earlier: tuple[str, ...], e: Exception, folder: str | Path | None
) -> PassError:
    """A PassError that says which pass, after which others, on which graph; files in `folder`."""
    notes = (
        f"passes before it: {', '.join(earlier) or 'none'}",
        _last_good(graph),
        _repeat(step, graph, folder),
    )
    if not isinstance(e, CompileError):
        text = f"pass {step.name!r} failed: {type(e).__name__}: {e}"
        return PassError(text, notes=notes, code="MDLC0507")
    code = e.code if isinstance(e, PassError) else "MDLC0501"
    rule = () if isinstance(e, PassError) else (f"rule {e.code}",)
    text = f"pass {step.name!r}: {e.message}"
    return PassError(text, loc=e.place, notes=(*rule, *e.notes, *notes), hint=e.hint, code=code)


def _last_good(graph: Graph) -> str:
    lines = str(graph).splitlines()
    more = [f"… {len(lines) - _SHOWN_LINES} more lines"] if len(lines) > _SHOWN_LINES else []
    return "\n    ".join(["last good graph:", *lines[:_SHOWN_LINES], *more])


def _repeat(step: Pass, graph: Graph, folder: str | Path | None) -> str:
    """How to repeat the failure; with a folder, the files for it are written."""
    if not folder:
        return "MINIDLC_REPRODUCER=DIR writes this graph, and how to see the pass fail again, there"
    path = Path(folder) / f"{identifier(graph.name)}_{identifier(step.name)}.dlc"
    how = _command(step, path) or _python(step, path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_text(graph, path)
        path.with_suffix(".txt").write_text(f"{how}\n", encoding="utf-8", newline="\n")
    except (OSError, CompileError) as problem:  # never in place of the failure itself
        return f"no reproducer: {path} cannot be written: {problem}"
    return f"to repeat it: {how}"


def _command(step: Pass, path: Path) -> str | None:
    """The command line; None where another process does not know the pass as it is here."""
    if registered_passes().get(step.name) is not type(step) or extension.active():
        return None
    if not type(step).__module__.startswith("minidlc.transform."):
        return None
    return shlex.join(["minidlc", "opt", str(path), "--passes", str(step)])


def _python(step: Pass, path: Path) -> str:
    loaded = f"minidlc.graph.load_text({str(path)!r})"
    inside = " inside the same mc.use" if extension.active() else ""
    return f"mc.Pipeline((the pass {str(step)!r},)).run({loaded}){inside}"
