"""One request and its reply, with whatever the worker asks in between. Nothing a worker sends is
trusted: a reply has the form that is written here, or it is StudentRaised.

    reply = exchange(send, receive, message, answer)
    channel = StreamChannel(source, sink, nonce)    # a Channel over two streams: no deadline

Runs in the parent, on every system. Treated in course chapter 01_graph_ir (assignment a1).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from grader import wire
from grader.student import Died, StudentRaised
from minidlc.support.errors import CompileError

Answer = Callable[[int, list[Any]], Any]
MAX_TEXT = 2000  # characters of a message of an exception
MAX_LINES = 20  # notes, frames
_UNREADABLE = "UnreadableAnswer"


def new_nonce() -> bytes:
    """What marks the frames of one connection."""
    return secrets.token_bytes(wire.NONCE)


def exchange(
    send: Callable[[object, Callable[[Any], int] | None], None],
    receive: Callable[[], Any],
    message: dict[str, Any],
    answer: Answer,
) -> dict[str, Any]:
    """Send `message["message"]`; serve what is asked; the checked reply.

    `message["number"]`, if there is one, numbers the functions among the arguments. An exception
    of `answer` is raised in the worker, at the call; a verdict of the test (AssertionError) is
    raised here as well, once the worker has come to its end.
    Raises StudentRaised for a reply that is none, wire.Broken if nothing more can be read.
    """
    given = _Given(message.get("number"))
    send(message["message"], given.number if given.chosen else None)
    verdict: BaseException | None = None
    while True:
        reply = _received(receive)
        if reply.get("do") != "ask":
            break
        number, arguments = _asked(reply, given.count)
        try:
            send({"value": answer(number, arguments)}, None)
        except (Died, wire.Broken):
            raise
        except Exception as error:
            if isinstance(error, AssertionError):
                verdict = verdict or error
            send({"raised": type(error).__name__, "message": str(error)[:MAX_TEXT]}, None)
    if verdict is not None:
        raise verdict
    return _checked(reply)


@dataclass
class _Given:
    """Counts the functions that were handed out: only these may be asked for."""

    chosen: Callable[[Any], int] | None
    count: int = 0

    def number(self, function: Any) -> int:
        assert self.chosen is not None
        number = self.chosen(function)
        self.count = max(self.count, number + 1)
        return number


def _received(receive: Callable[[], Any]) -> dict[str, Any]:
    try:
        reply = receive()
    except wire.Broken:
        raise
    except wire.Refused as error:
        raise StudentRaised(_UNREADABLE, str(error)[:MAX_TEXT]) from None
    except CompileError as error:
        text = f"what was returned does not read back: {error.message}"[:MAX_TEXT]
        place = str(error.place or "")[:200]
        raise StudentRaised(_UNREADABLE, text, code=error.code, place=place) from None
    if not isinstance(reply, dict):
        raise wire.Broken("an answer that is no record")
    return cast(dict[str, Any], reply)


def _asked(reply: dict[str, Any], count: int) -> tuple[int, list[Any]]:
    number, arguments = reply.get("number"), reply.get("args")
    if type(number) is not int or not 0 <= number < count or not isinstance(arguments, list):
        raise wire.Broken("a call of a function that was not given")
    return number, cast(list[Any], arguments)


def _checked(reply: dict[str, Any]) -> dict[str, Any]:
    """The reply in the one form that callers read: `value`, or `raised` and its texts."""
    calls: dict[str, int] = {}
    counts = reply.get("calls")
    if isinstance(counts, dict):
        pairs = list(cast(dict[object, object], counts).items())[:1000]
        calls = {k: v for k, v in pairs if isinstance(k, str) and type(v) is int}
    if "raised" not in reply:
        if "value" not in reply:
            raise StudentRaised(_UNREADABLE, "an answer without a value")
        return {"value": reply["value"], "calls": calls}
    clean: dict[str, Any] = {"raised": _text(reply["raised"])[:200] or "Exception", "calls": calls}
    for name in ("message", "code", "hint", "place"):
        clean[name] = _text(reply.get(name))
    for name in ("notes", "frames"):
        lines = reply.get(name)
        items = cast(list[object], lines)[:MAX_LINES] if isinstance(lines, list) else []
        clean[name] = [_text(line) for line in items]
    return clean


def _text(value: object) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


@dataclass
class StreamChannel:
    """A Channel over two streams; deadlines and the end of a process are the owner's matter."""

    source: wire.Readable
    sink: wire.Writable
    nonce: bytes = bytes(wire.NONCE)

    def request(self, message: dict[str, Any], answer: Answer) -> dict[str, Any]:
        """Send the request, serve what is asked meanwhile, the reply. EOFError at the end."""

        def send(value: object, number: Callable[[Any], int] | None) -> None:
            wire.write(self.sink, value, number, self.nonce)

        def receive() -> Any:
            return wire.read(self.source, nonce=self.nonce)

        try:
            return exchange(send, receive, message, answer)
        except wire.Broken as error:
            raise StudentRaised(_UNREADABLE, str(error)) from None
