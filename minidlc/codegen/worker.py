"""The helper process of crew.py: loop functions come in, LLVM text and object files go out.

    python -c "from minidlc.codegen.worker import serve; serve()"

Reads pickles of (function, target, symbol) from standard input and answers each on standard output;
None says that it could not. The process ends with its input. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

import pickle
from typing import IO

from minidlc.codegen.cache import source_digest
from minidlc.codegen.compile import build_kernel
from minidlc.loop.nodes import LoopFunction
from minidlc.support.child import streams
from minidlc.target import Target


def serve() -> None:
    """Compile until nobody asks any more."""
    answer_all(*streams())


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
