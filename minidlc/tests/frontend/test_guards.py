"""What a jitted function reads besides its arguments: attributes, classes, Python itself."""

from __future__ import annotations

import copy
import enum
import os

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import OptionError, TypeRuleError

X = np.arange(3, dtype=np.float32)


class Number(float):
    """A number with more to it."""

    def scaled(self):
        return self * FACTOR


class Numbers(list):
    """A list with more to it."""

    def scaled(self):
        return self[0] * FACTOR


class Mode(enum.Enum):
    """A choice with more to it."""

    TWICE = 2

    def scaled(self):
        return self.value * FACTOR


FACTOR = 2.0
NUMBER, NUMBERS, MODE = Number(3.0), Numbers([3.0]), Mode.TWICE
NUMBER.offset = NUMBERS.offset = 1.0


def helper(x):
    return x * helper.factor


helper.factor = 2.0
READS = {
    "field of a number": (lambda x: x * NUMBER.offset, NUMBER, "offset"),
    "field of a list": (lambda x: x * NUMBERS.offset, NUMBERS, "offset"),
    "attribute of a function": (lambda x: helper(x), helper, "factor"),
    "attribute of a function read outside": (lambda x: x + helper.factor, helper, "factor"),
}


@pytest.mark.parametrize(("fn", "owner", "name"), READS.values(), ids=READS)
def test_attributes_of_numbers_lists_and_functions_are_guarded(fn, owner, name, monkeypatch):
    jitted = mc.jit(fn)
    np.testing.assert_array_equal(jitted(X), fn(X))
    monkeypatch.setattr(owner, name, 7.0)
    np.testing.assert_array_equal(jitted(X), fn(X))
    assert len(jitted.recompiles) == 1


@pytest.mark.parametrize("owner", [NUMBER, NUMBERS, MODE], ids=["number", "list", "enum"])
def test_what_methods_of_such_classes_read_is_guarded(owner, monkeypatch):
    def fn(x):
        return x * owner.scaled()

    jitted = mc.jit(fn)
    np.testing.assert_array_equal(jitted(X), fn(X))
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    np.testing.assert_array_equal(jitted(X), fn(X))


UNSEEN = {
    "os.environ": lambda x: x * float(os.environ["SCALE"]),
    "globals": lambda x: x * globals()["FACTOR"],
    "eval": lambda x: x * eval("FACTOR"),
}


@pytest.mark.parametrize(("what", "fn"), UNSEEN.items(), ids=UNSEEN)
def test_what_no_guard_can_follow_is_refused(what, fn, monkeypatch):
    monkeypatch.setenv("SCALE", "2")
    with pytest.raises(TypeRuleError, match=rf"MDLC0224.*{what}"):
        mc.jit(fn)(X)


def test_numbers_and_functions_of_libraries_stay_what_they_are():
    """np.pi, os.sep and np.float32 are no reason to refuse."""
    fn = mc.jit(lambda x: x * np.float32(np.pi) if os.sep else x)
    np.testing.assert_allclose(fn(X), X * np.float32(np.pi))


def test_capture_is_a_function():
    with pytest.raises(OptionError, match="capture is a str, expected Callable"):
        mc.jit(lambda x: x, capture="script")


class Layer:
    """A method that a subclass calls."""

    def __init__(self, k):
        self.k = k

    @mc.jit
    def forward(self, x):
        return x * self.k

    @classmethod
    @mc.jit
    def of_class(cls, x):
        return x * len(cls.__name__)


class Shifted(Layer):
    @mc.jit
    def forward(self, x):
        return super().forward(x) + 1.0


class Slots:
    __slots__ = ("k",)

    @mc.jit
    def forward(self, x):
        return x * self.k


def test_a_method_that_calls_the_same_of_its_base_class():
    """Each has its own executables, at the second call too."""
    layer = Shifted(3.0)
    for k in (3.0, 3.0, 5.0):
        layer.k = k
        np.testing.assert_array_equal(layer.forward(X), X * k + 1)
    assert len(layer.forward.recompiles) == 1


def test_methods_of_copies_of_instances_and_after_they_were_replaced(monkeypatch):
    layer = Layer(2.0)
    layer.forward(X)
    other = copy.deepcopy(layer)
    other.k = 4.0
    np.testing.assert_array_equal(other.forward(X), X * 4)
    np.testing.assert_array_equal(layer.forward(X), X * 2)
    monkeypatch.setattr(Layer, "forward", mc.jit(lambda self, x: x - self.k))
    np.testing.assert_array_equal(layer.forward(X), X - 2)


def test_methods_of_classes_and_of_instances_with_slots():
    np.testing.assert_array_equal(Layer.of_class(X), X * 5)
    np.testing.assert_array_equal(Shifted.of_class(X), X * 7)
    one, two = Slots(), Slots()
    for k, slots in enumerate((one, two, one)):
        slots.k = float(k)
        np.testing.assert_array_equal(slots.forward(X), X * slots.k)
