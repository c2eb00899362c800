"""mc.script: every refusal at its line, with its rule and hint; errors inside the function too."""

from __future__ import annotations

import functools
import inspect

import pytest

import minidlc as mc
from minidlc.frontend.script import frame
from minidlc.frontend.script.refusals import STATEMENTS, WHERE_TENSORS_DECIDE
from minidlc.support.errors import TypeRuleError
from minidlc.tests.frontend import refused_functions as refused


def helper(x, limit):
    return x if x.sum() > limit else -x


def made_by_exec():
    scope = {}
    exec("def made(x):\n    return x\n", scope)
    return scope["made"]


@pytest.mark.parametrize("name", refused.REFUSED)
def test_a_refusal_has_its_line_rule_and_hint(name, monkeypatch):
    fn, text = refused.REFUSED[name]
    monkeypatch.setattr(frame, "MOST_STATEMENTS", 500)
    types = [mc.f32[3]] + [mc.i64[()]] * ("n" in inspect.signature(fn).parameters)
    log = list(refused.LOG)
    with pytest.raises(TypeRuleError) as e:
        mc.script(fn, *types)
    error = e.value
    assert error.code == "MDLC0226"
    assert error.notes == (f"rule: {name.split(':')[0].split(' ')[0]}",)
    assert error.hint
    inner = {
        refused.r_recursion: refused.recursive,
        refused.r_side_effect_called: refused.logs,
        refused.r_lost: refused.empties,
    }
    lines, first = inspect.getsourcelines(inner.get(fn, fn))
    assert error.loc.file == refused.__file__
    assert text in lines[error.loc.line - first]
    assert log == refused.LOG


def test_every_rule_of_the_catalogue_is_tested():
    tested = {name.split(":")[0].split(" ")[0] for name in refused.REFUSED}
    assert tested == {*STATEMENTS, *WHERE_TENSORS_DECIDE}


def test_the_message_shows_the_types():
    with pytest.raises(TypeRuleError) as e:
        mc.script(refused.r_branch_type, mc.f32[3])
    assert "y is f32[3] on one way and f32[()] on the other" in str(e.value)
    assert "    if x.sum() > 0.0:" in str(e.value)
    with pytest.raises(TypeRuleError, match=r"s is f32\[\(\)\] before the loop and f32\[3\]"):
        mc.script(refused.r_loop_type, mc.f32[3])


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda x: x, "lambda"),
        (made_by_exec(), "could not get source code|another function's"),  # by Python's version
        (max, "no source of its own"),
        (functools.partial(helper, limit=1.0), "partial has no source"),
        (functools.lru_cache(helper), "a decorated function"),
        (eval("lambda x: x"), "lambda"),
    ],
)
def test_what_has_no_source(fn, text):
    with pytest.raises(TypeRuleError, match=text) as e:
        mc.script(fn, mc.f32[3])
    assert e.value.code == "MDLC0225"
    assert e.value.loc.file == __file__
    assert e.value.hint


def test_an_ops_error_and_an_exception_have_the_line_in_the_function():
    def wrong(x, w):
        if x.sum() > 0.0:
            x = x @ w
        return x

    with pytest.raises(TypeRuleError, match="inner dimensions") as e:
        mc.script(wrong, mc.f32[4, 8], mc.f32[7, 3])
    assert e.value.loc.line == wrong.__code__.co_firstlineno + 2

    def divides(x):
        return x / (1 // 0)

    with pytest.raises(ZeroDivisionError):
        mc.script(divides, mc.f32[3])
