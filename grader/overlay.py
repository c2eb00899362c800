"""What a worker may import: minidlc without the parts that a task asks for, and little else.

    folder = build_overlay(("minidlc.graph.graph:_toposort",), cache)   # Path, for sys.path
    build_overlay(("minidlc.graph.verify",), cache)                     # every function of a module

The folder holds `minidlc/` (withheld functions keep their signature and raise), a `grader/` that
cannot grade, and the packages that a notebook may import. Withheld source is not in it: there is
nothing to undo. Equal contents are built once. Treated in course chapter 01_graph_ir (assignment
a1).
"""

from __future__ import annotations

import ast
import compileall
import hashlib
import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import grader
import minidlc

PACKAGES = (
    *("numpy", "ml_dtypes", "llvmlite", "onnx", "matplotlib", "graphviz", "graphviz-pure"),
    *("rich", "ipython"),
)  # what notebooks of students import; and what these need
WITHOUT = {"onnx": ("reference", "backend", "test")}  # they would answer tasks
_COPIED = ("minidlc", "grader", "root")
_LEFT_OUT = ("tests", "benchmarks", "docs")
_INNER = ("limits", "kernel", "room", "locks", "server", "keeper", "worker")
_SERVING = ("wire.py", "serve.py", "warm.py", *(f"sandbox/{name}.py" for name in _INNER))
_HOME = Path(minidlc.__file__).parent
_GRADER = Path(grader.__file__).parent
_PLAIN_GRADER = '''"""In a worker: the checks of the notebook do nothing."""


def check_here(*args: object, **kwargs: object) -> None:
    """Nothing: the grader has its own tests."""


def keep(*args: object, **kwargs: object) -> None:
    """Nothing."""
'''


class OverlayError(Exception):
    """A withheld part that does not exist, or that cannot be taken away."""


def build_overlay(withheld: tuple[str, ...], folder: Path) -> Path:
    """The overlay without these functions (`module:qualname`), classes, or whole modules.

    Raises OverlayError for a name that is not in minidlc.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base = _base(folder)
    key = hashlib.sha256("\n".join([base.name, *sorted(withheld)]).encode()).hexdigest()[:16]
    return _made(folder / f"overlay-{key}", lambda new: _fill(new, base, withheld))


def _made(target: Path, fill: Callable[[Path], None]) -> Path:
    """The folder, made whole under another name first: two processes may want it at once."""
    if target.exists():
        return target
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        new.chmod(0o755)  # workers may have a user id of their own
        fill(new)
        with suppress(OSError):  # the other process was quicker
            new.rename(target)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return target


def _base(folder: Path) -> Path:
    """minidlc, compiled, and the packages: what all overlays share."""
    digest = hashlib.sha256(f"{sys.version} {sys.prefix}".encode())
    for path in _sources():
        digest.update(str(path).encode() + path.read_bytes())
    for name, distribution in sorted(_distributions().items()):
        digest.update(f"{name} {distribution.version}".encode())
    return _made(folder / f"base-{digest.hexdigest()[:16]}", _fill_base)


def _sources() -> list[Path]:
    """Files of minidlc that a worker gets, and the part of the grader that runs in it."""
    own = [Path(__file__)] + [_GRADER / name for name in _SERVING]
    for parent, folders, files in os.walk(_HOME):
        folders[:] = sorted(set(folders) - {*_LEFT_OUT, "__pycache__"})
        own += [Path(parent, name) for name in sorted(files)]
    return own


def _fill_base(new: Path) -> None:
    shutil.copytree(_HOME, new / "minidlc", ignore=_left_out)
    inner_grader(new)
    compileall.compile_dir(str(new), quiet=2)
    for entry in _entries():
        target = new / entry.name
        if entry.name in WITHOUT:
            shutil.copytree(entry, target, ignore=_ignored_at(entry))
        else:
            target.symlink_to(entry.resolve())


def inner_grader(folder: Path) -> None:
    """The part of the grader that runs in workers, and an empty place for their root folder."""
    for name in _SERVING:
        target = folder / "grader" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(_GRADER / name, target)
    (folder / "grader/__init__.py").write_text(_PLAIN_GRADER)
    (folder / "grader/sandbox/__init__.py").write_text('"""The inner side of the sandbox."""\n')
    (folder / "root").mkdir()


def _left_out(at: str, names: list[str]) -> list[str]:
    """For copytree: compiled files are taken along only where their source is."""
    if Path(at).name != "__pycache__":
        return [name for name in names if name in _LEFT_OUT]
    tag = f".{sys.implementation.cache_tag}.pyc"
    sources = {path.stem for path in Path(at).parent.glob("*.py")}
    return [name for name in names if name.removesuffix(tag) not in sources]


def _ignored_at(top: Path) -> Callable[[str, list[str]], list[str]]:
    """For copytree: only what stands directly in `top` is left out."""
    return lambda at, names: [
        name for name in names if Path(at) == top and name in WITHOUT[top.name]
    ]


def _distributions() -> dict[str, importlib.metadata.Distribution]:
    """The packages and, again and again, what they require."""
    found: dict[str, importlib.metadata.Distribution] = {}
    todo = list(PACKAGES)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        with suppress(importlib.metadata.PackageNotFoundError):  # optional, or for another system
            found[name] = importlib.metadata.distribution(name)
            todo += [
                re.split(r"[^\w.-]", requirement)[0]
                for requirement in found[name].requires or ()
                if "extra ==" not in requirement
            ]
    return found


def _entries() -> list[Path]:
    """Files and folders of these packages, directly in site-packages."""
    entries: set[Path] = set()
    for distribution in _distributions().values():
        root = Path(str(distribution.locate_file("")))
        tops = {file.parts[0] for file in distribution.files or ()}
        entries |= {root / top for top in tops if top not in ("..", "__pycache__")}
    return sorted(entry for entry in entries if entry.suffix != ".pth" and entry.exists())


def _fill(new: Path, base: Path, withheld: tuple[str, ...]) -> None:
    for name in _COPIED:
        shutil.copytree(base / name, new / name, copy_function=_link)
    for entry in base.iterdir():
        if entry.name not in _COPIED:
            (new / entry.name).symlink_to(entry.resolve())
    parts: dict[Path, list[str]] = {}
    for part in withheld:
        module, _, name = part.partition(":")
        parts.setdefault(_file_of(module, new, part), []).append(name)
    for path, names in parts.items():
        module = ".".join(path.relative_to(new).with_suffix("").parts)
        text = without(path.read_text(encoding="utf-8"), names, module)
        path.unlink()  # the link to the whole one
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        compileall.compile_file(str(path), quiet=2)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _file_of(module: str, root: Path, part: str) -> Path:
    path = root.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    for candidate in candidates if module.split(".")[0] == "minidlc" else ():
        if candidate.exists():
            return candidate
    raise OverlayError(f"withheld {part!r}: there is no module {module!r}")


def without(text: str, names: list[str], module: str) -> str:
    """Source text in which these functions raise; "" stands for every function of the module.

    Signature, decorators and docstring stay; of the body not a line. Raises OverlayError for a
    name that is not defined there.
    """
    functions = dict(_functions(ast.parse(text).body, ""))
    chosen: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for name in names:
        match = {q: f for q, f in functions.items() if _within(q, name)}
        if not match:
            known = ", ".join(list(functions)[:20])
            raise OverlayError(f"withheld '{module}:{name}': not in {module}, which has {known}")
        chosen |= match
    lines = text.splitlines(keepends=True)
    outer = {q: f for q, f in chosen.items() if not any(_inside(f, g) for g in chosen.values())}
    for name, function in sorted(outer.items(), key=lambda pair: -pair[1].lineno):
        _empty(lines, function, f"{module}:{name}")
    return "".join(lines)


def _functions(
    body: list[ast.stmt], prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions and methods with their qualified names, also under `if` and `try`."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{prefix}{statement.name}.")
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            inner = [s for s in ast.iter_child_nodes(statement) if isinstance(s, ast.stmt)]
            yield from _functions(inner, prefix)


def _within(qualified: str, name: str) -> bool:
    return name in ("", qualified) or qualified.startswith(name + ".")


def _inside(inner: ast.stmt, outer: ast.stmt) -> bool:
    same = inner is outer
    return not same and outer.lineno < inner.lineno <= (outer.end_lineno or 0)


def _empty(lines: list[str], function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> None:
    """Replace the body and the comments around it by a raise, in place."""
    first, last = function.body[0], function.body[-1]
    message = f"raise NotImplementedError({f'withheld: {name} is for you to write'!r})\n"
    start, end = first.lineno - 1, last.end_lineno or last.lineno
    before = lines[start].encode()[: first.col_offset].decode()
    if ast.get_docstring(function, clean=False) is not None and not before.strip():
        start = first.end_lineno or start
    while not before.strip() and start > function.lineno and _is_comment(lines[start - 1], 0):
        start -= 1
    while end < len(lines) and _is_comment(lines[end], function.col_offset + 1):
        end += 1
    lines[start:end] = [before + message]


def _is_comment(line: str, indent: int) -> bool:
    text = line.strip()
    return text.startswith("#") and len(line) - len(line.lstrip()) >= indent
