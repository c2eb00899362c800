"""Who grades: processes of this machine, or a Dask cluster, through one interface.

    with executor(jobs=2, cluster="") as pool:      # concurrent.futures.Executor
        pool.submit(grade_one, …)

A job process ends when its parent is gone, however that ended, and its fork servers with it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Generator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from grader.gradebook import text_of
from grader.grading import Options, grade_submission
from grader.manifest import load
from grader.model import Assignment

_PATIENCE = "20s"  # for a Dask scheduler to answer


class JobsError(Exception):
    """Nobody is there to grade; the text says why and what to do."""


def grade_one(folder: str, submission: str, student: str, options: Options) -> str:
    """Grade one submission; its result as JSON text. Runs in a job process."""
    return text_of(grade_submission(_assignment(folder), Path(submission), student, options))


@lru_cache(maxsize=4)
def _assignment(folder: str) -> Assignment:
    return load(folder)


@contextmanager
def executor(jobs: int, cluster: str = "") -> Generator[tuple[Executor, int]]:
    """The executor, and how many submissions it grades at a time."""
    if cluster:
        yield from _cluster(cluster)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin)
    try:
        yield pool, jobs
    except BaseException:  # Ctrl-C, or a job process that died: wait for nobody
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    pool.shutdown()


def _cluster(address: str) -> Generator[tuple[Executor, int]]:
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        text = 'a cluster needs Dask: pip install "minidlc[cluster]"'
        raise JobsError(text) from None
    try:
        client = distributed.Client(address, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise JobsError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise JobsError(f"the Dask cluster at {address} has no workers")
        with client.get_executor() as pool:
            yield pool, threads


def _begin() -> None:
    """In a job process: leave Ctrl-C to the parent, and end when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
