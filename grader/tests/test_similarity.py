"""A copy is found through renaming, comments and order; chance and the release are not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from grader.similarity import compare, fingerprints

ORDER = '''
def order(outputs):
    """Nodes in order."""
    seen, found, stack = set(), [], list(outputs)
    while stack:
        node = stack.pop()
        if id(node) in seen or not node.inputs:
            continue
        seen.add(id(node))
        found.append(node)
        for value in node.inputs:
            if value is not None and id(value) not in seen:
                stack.append(value)
    return found[::-1]
'''
COPY = """
# my own work
def my_sort(results):
    visited, answer, todo = set(), [], list(results)

    while todo:
        item = todo.pop()
        if id(item) in visited or not item.inputs:
            continue
        visited.add(id(item))
        answer.append(item)
        for thing in item.inputs:  # every one
            if thing is not None and id(thing) not in visited:
                todo.append(thing)
    return answer[::-1]
"""
OTHER = """
def order(outputs):
    done = {}
    def visit(value):
        if value in done:
            return
        for part in getattr(value, "inputs", ()):
            visit(part)
        done[value] = len(done)
    for out in outputs:
        visit(out)
    return sorted(done, key=done.get)
"""


def test_a_renamed_copy_is_found():
    [pair] = compare({"ada": ORDER, "bob": COPY, "eve": OTHER})
    assert (pair.first, pair.second) == ("ada", "bob")
    assert pair.share >= 0.9


def test_what_everybody_was_given_does_not_count():
    assert compare({"ada": ORDER + OTHER, "bob": ORDER + "x = 1\n"}, base=ORDER) == []


def test_short_or_broken_texts_say_nothing():
    assert compare({"a": "def f(:\n", "b": "def f(:\n", "c": "", "d": "x = 1"}) == []
    assert fingerprints("(" * 500) == fingerprints("(" * 500)


@pytest.mark.long
def test_the_same_in_every_process():
    code = f"from grader.similarity import fingerprints; print(sorted(fingerprints({ORDER!r})))"
    run = [sys.executable, "-c", code]
    seeds = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    first, second = (subprocess.check_output(run, env=env, text=True) for env in seeds)
    assert first == second == f"{sorted(fingerprints(ORDER))}\n"
