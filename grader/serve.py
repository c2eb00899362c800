"""The loop inside a student worker and inside an evaluator: requests in, answers out.

    serve(stream_in, stream_out)                    # until "stop" or the end of the stream

A worker gets the cells of one task and the assignment's glue, then calls. Glue (`glue.py` of the
assignment, given to students) says how a task's function is called: `GLUE["1.6"](fn, *args)`;
without glue it is `fn(*args)`. An evaluator gets graph texts and arrays. Holds no test and no
expected value. Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import linecache
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import minidlc as mc
from grader import wire
from minidlc.support.errors import CompileError

MAX_MESSAGE = 2000  # characters of an exception's text that are reported
MAX_FRAMES = 8
SPARE = 32 << 20  # bytes: more than the compiler needs for the largest notebook that is read


@dataclass
class Counted:
    """A student's function that counts its calls; the report shows the count."""

    function: Callable[..., Any]
    calls: int = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.function(*args, **kwargs)


@dataclass
class Worker:
    """The state of one worker: the module of the submission, and how its functions are called."""

    send: Callable[[object], None]
    receive: Callable[[], Any]
    module: types.ModuleType = field(default_factory=lambda: types.ModuleType("submission"))
    glue: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    functions: dict[str, Counted] = field(default_factory=dict[str, Counted])  # by task id

    def start(self, cells: list[list[str]], glue: str, functions: dict[str, str]) -> object:
        """Run the cells (label, source) as a notebook does; look up the functions (id -> name).

        Returns the ids whose function is not there. A cell that raises does not stop the next; if a
        function is missing then, the first such error is raised.
        """
        warnings.simplefilter("ignore")
        sys.modules["submission"] = self.module
        if glue:
            self.glue = _run({}, "glue", glue).get("GLUE", {})
        failed: BaseException | None = None
        for label, source in cells:
            try:
                _run(self.module.__dict__, label, source)
            except BaseException as error:  # SystemExit and KeyboardInterrupt of a cell too
                failed = error if failed is None else failed
        found = {task: getattr(self.module, name, None) for task, name in functions.items()}
        self.functions = {task: Counted(fn) for task, fn in found.items() if callable(fn)}
        missing = [task for task, fn in found.items() if not callable(fn)]
        if missing and failed is not None:
            raise failed
        return missing

    def call(self, task: str, args: list[Any], kwargs: dict[str, Any]) -> object:
        """Call the task's function through its glue; the end-to-end run gets all functions."""
        target: Any = self.functions.get(task, self.functions)
        if task in self.glue:
            return self.glue[task](target, *args, **kwargs)
        return target(*args, **kwargs)

    def counts(self) -> dict[str, int]:
        """Calls so far, by task id."""
        return {task: function.calls for task, function in self.functions.items()}

    def stand_in(self, number: int) -> Callable[..., Any]:
        """A function of the parent's: calling it asks the parent, and raises what it raised."""

        def ask(*args: Any) -> Any:
            self.send({"do": "ask", "number": number, "args": list(args)})
            reply = self.receive()
            if "raised" in reply:
                kind = _ASKED.get(reply["raised"], RuntimeError)
                raise kind(reply["message"])
            return reply["value"]

        return ask


_ASKED = {kind.__name__: kind for kind in (TypeError, ValueError, KeyError, IndexError)}


def evaluate(graph: mc.Graph, inputs: list[Any]) -> object:
    """What an evaluator does: the meaning of a graph that a student returned."""
    return mc.interpret(graph, inputs)


def compiled(graph: mc.Graph, inputs: list[Any]) -> object:
    """The same through machine code."""
    return mc.compile(graph, threads=1)(*inputs)


def _run(namespace: dict[str, Any], label: str, source: str) -> dict[str, Any]:
    """Execute one cell; its lines are known to tracebacks and `inspect` by its label."""
    file = f"<{label}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace.setdefault("__name__", "submission")
    exec(code_of(source, file), namespace)
    return namespace


@lru_cache(maxsize=16)
def code_of(source: str, file: str) -> types.CodeType:
    """The code of a cell, or of the glue, which a fork server compiles for all its workers.

    RecursionError where it is nested too deep for Python's compiler. CPython says MemoryError when
    its parser's stack is full; whether memory was short is asked here, as that is another outcome.
    """
    try:
        return compile(source, file, "exec")
    except MemoryError:
        bytearray(SPARE)  # raises MemoryError if there is indeed none left
    except RecursionError:
        pass
    raise RecursionError("Python's compiler gives up on code nested that deeply")


def frames_of(error: BaseException) -> list[str]:
    """The frames of the student's own cells: 'cell 1.2, line 4: return x'."""
    found = traceback.extract_tb(error.__traceback__)
    own = [f for f in found if f.filename.startswith("<cell")]
    return [f"{f.filename[1:-1]}, line {f.lineno}: {f.line}" for f in own][-MAX_FRAMES:]


def describe(error: BaseException) -> dict[str, object]:
    """An exception as plain data, whatever its class does when it is shown."""
    known = error if isinstance(error, CompileError) else None
    record: dict[str, object] = {"raised": "Exception", "message": "", "frames": []}
    with suppress(BaseException):
        record["raised"] = _text(type(error).__name__)
    with suppress(BaseException):
        record["message"] = _text(known.message if known else error)
    with suppress(BaseException):
        record["frames"] = [_text(line) for line in frames_of(error) + _syntax_frame(error)]
    with suppress(BaseException):
        if known:
            record["code"], record["hint"] = _text(known.code), _text(known.hint or "")
            record["place"] = _text(known.place or "")
            record["notes"] = [_text(note) for note in known.notes[:20]]
    return record


def _text(thing: object) -> str:
    """As text that can cross: bounded, whole characters."""
    return str(thing)[:MAX_MESSAGE].encode("utf-8", "replace").decode()


def _syntax_frame(error: BaseException) -> list[str]:
    if not isinstance(error, SyntaxError) or not str(error.filename or "").startswith("<cell"):
        return []
    where = str(error.filename)[1:-1]
    return [f"{where}, line {error.lineno}: {(error.text or '').strip()}"]


def serve(source: wire.Readable, sink: wire.Writable, nonce: bytes = bytes(wire.NONCE)) -> None:
    """Answer requests until the stream ends. Every answer carries the nonce and the call counts."""

    def send(message: object) -> None:
        wire.write(sink, message, nonce=nonce)

    def receive() -> Any:
        return wire.read(source, worker.stand_in, nonce, check=False)

    def next_request() -> dict[str, Any]:
        try:
            return receive()
        except EOFError:  # the parent is gone; an EOFError of a student's `input()` is an answer
            return {"do": "stop"}

    worker = Worker(send, receive)
    actions: dict[str, Callable[..., object]] = {
        "start": worker.start,
        "call": worker.call,
        "evaluate": evaluate,
        "compile": compiled,
    }

    def answer(message: dict[str, Any]) -> bytes:
        reply = {"value": actions[message.pop("do")](**message)}
        return wire.pack({**reply, "calls": worker.counts()}, nonce=nonce)

    while True:
        try:
            message = next_request()
            if message["do"] == "stop":
                return
            data = answer(message)
        except BaseException as error:  # a student's KeyboardInterrupt and SystemExit too
            data = wire.pack({**describe(error), "calls": worker.counts()}, nonce=nonce)
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        sink.write(data)
        sink.flush()
