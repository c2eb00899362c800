"""Mutants: each has one fault, is a program, and differs from the source."""

from __future__ import annotations

import ast

import pytest

from grader.mutants import all_mutants, sample

SOURCE = '''
import math

LIMIT = 3


def first(xs: list[int], least: int = 2) -> int:
    """Text with 1 < 2."""
    for x in reversed(xs):
        if x < least and not x == 7:
            continue
        if x > 100:
            raise ValueError(f"{x} > 100", max(1, 2))
        return x - 1
    return min(xs, key=abs)
'''


def test_every_mutant_is_a_program_with_one_fault() -> None:
    found = all_mutants(SOURCE)
    texts = [mutant.source for mutant in found]
    assert len(set(texts)) == len(texts)
    plain = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in found:
        compile(mutant.source, "mutant", "exec")
        lines = mutant.source.splitlines()
        assert len(lines) == len(plain)
        assert sum(a != b for a, b in zip(lines, plain, strict=True)) == 1, mutant.what


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("line 10: < → <=", "if x <= least and (not x == 7):"),
        ("line 10: and → or", "if x < least or not x == 7:"),
        ("line 10: without not", "if x < least and x == 7:"),
        ("line 10: == → !=", "if x < least and (not x != 7):"),
        ("line 10: 7 → 8", "if x < least and (not x == 8):"),
        ("line 10: condition always true", "if True:"),
        ("line 10: condition never true", "if False:"),
        ("line 9: without reversed", "for x in xs:"),
        ("line 9: leaves out the first", "for x in list(reversed(xs))[1:]:"),
        ("line 11: continue → pass", "pass"),
        ("line 13: raises nothing", "pass"),
        ("line 14: - → +", "return x + 1"),
        ("line 14: returns None", "return None"),
        ("line 15: min → max", "return max(xs, key=abs)"),
    ],
)
def test_kinds_of_faults(what: str, text: str) -> None:
    (mutant,) = [m for m in all_mutants(SOURCE) if m.what == what]
    assert text in [line.strip() for line in mutant.source.splitlines()]


def test_texts_defaults_and_module_level_stay() -> None:
    for mutant in all_mutants(SOURCE):
        assert '"""Text with 1 < 2."""' in mutant.source
        assert "LIMIT = 3" in mutant.source
        assert "least: int=2" in mutant.source
        if "raises nothing" not in mutant.what:
            assert "raise ValueError(f'{x} > 100', max(1, 2))" in mutant.source


def test_samples_have_every_kind_and_repeat() -> None:
    found = all_mutants(SOURCE)
    kinds = {mutant.kind for mutant in found}
    chosen = sample(found, len(kinds), seed=3)
    assert {mutant.kind for mutant in chosen} == kinds
    assert chosen == sample(found, len(kinds), seed=3)
    assert sample(found, 1000, seed=3) == found
    assert any(sample(found, 6, seed=s) != sample(found, 6, seed=3) for s in range(4, 9))
