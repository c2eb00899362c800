"""The helper process of crew.py: loop functions come in, LLVM text and object files go out.

    python -c "from minidlc.codegen.worker import serve; serve()"

Reads pickles of (function, target, symbol) from standard input and answers each on standard output;
None says that it could not. The process ends with its input. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import IO

from minidlc.codegen.cache import source_digest
from minidlc.codegen.compile import build_kernel
from minidlc.loop.nodes import LoopFunction
from minidlc.target import Target


def serve() -> None:
    """Compile until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who then ends us
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what LLVM or a library prints is no answer
    answer_all(sys.stdin.buffer, answers)


def answer_all(requests: IO[bytes], answers: IO[bytes]) -> None:
    """The first request asks for the digest of the code generator, all others for a kernel."""
    found: object = source_digest()
    while True:
        try:
            request = pickle.load(requests)
            if request is not None:
                found = _built(*request)
            pickle.dump(found, answers)
            answers.flush()
        except (EOFError, OSError):
            return


def _built(fn: LoopFunction, target: Target, symbol: str) -> tuple[str, bytes] | None:
    try:
        return build_kernel(fn, target, symbol)
    except Exception:  # the parent compiles it again, and meets the error where it can be seen
        return None
