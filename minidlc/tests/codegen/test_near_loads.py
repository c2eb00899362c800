"""Lanes that lie near each other, not side by side: loads and shuffles in place of a gather."""

from __future__ import annotations

import re

import pytest

from minidlc.codegen.llvm import emit
from minidlc.loop.text import parse_function
from minidlc.target import host
from minidlc.tests.codegen.helpers import WIDTHS, check

pytestmark = [pytest.mark.llvm, pytest.mark.ch03]

# every second element, each one twice or three times, backwards, with holes
PLACES = {
    "2*i": lambda i: 2 * i,
    "2*i + 1": lambda i: 2 * i + 1,
    "3*i": lambda i: 3 * i,
    "4*i": lambda i: 4 * i,
    "i//2": lambda i: i // 2,
    "i//3 + 2": lambda i: i // 3 + 2,
    "i%4": lambda i: i % 4,
    "7 - i%8": lambda i: 7 - i % 8,
    "i + i//3": lambda i: i + i // 3,
    "3*(i//2) + i%2": lambda i: 3 * (i // 2) + i % 2,
    "i//32 + 1": lambda i: i // 32 + 1,
}
FAR = {"9*i": lambda i: 9 * i}  # more vectors than a gather is worth


def program(place, extent, element="f32"):
    """C[i] = A[place], with an A that ends where the last lane reads."""
    size = max(map({**PLACES, **FAR}[place], range(extent))) + 1
    return f"""
def f(A: {element}[{size}], C: {element}[{extent}]):
    for i in vectorized(0, {extent}):
        C[i] = A[{place}]
"""


def llvm(source):
    """Code for the widest vectors."""
    return emit(parse_function(source), host(vector_width=WIDTHS[-1]), "f")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("place", [*PLACES, *FAR])
def test_right(place, width):
    for extent in (1, 2, 3, 7, 8, 16, 17, 24):
        check(program(place, extent), host(vector_width=width))


@pytest.mark.parametrize("element", ["f16", "f64", "i8", "bool"])
def test_other_elements(element):
    check(program("i//2", 16, element), host())
    check(program("2*i + 1", 16, element), host())


@pytest.mark.parametrize("place", PLACES)
def test_no_gather(place):
    code = llvm(program(place, WIDTHS[-1]))
    assert "masked.gather" not in code
    assert len(re.findall(r"= load", code)) <= 4


def test_lanes_far_apart_are_gathered():
    assert "masked.gather" in llvm(program("9*i", WIDTHS[-1]))


def test_under_a_test_of_the_program_lanes_are_read_one_by_one():
    source = """
def f(A: f32[20], C: f32[8]):
    for i in vectorized(0, 8):
        C[i] = select(4 - i >= 0, A[4*i], 0.0)
"""
    check(source, host(vector_width=8))


GUARDED = """
def f(A: f32[40], C: f32[24]):
    for i in vectorized(0, 24):
        C[i] = select({test}, A[{place}], -1.0)
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("test", "place"),
    [
        ("i - 1 >= 0 and 20 - i >= 0", "(i - 1)//2"),
        ("0 - i%2 >= 0", "i//2"),
        ("0 - i%2 >= 0", "2*i - 7*(i//5)"),
        ("i - 5 >= 0", "2*i - 10"),
        ("18 - 2*i >= 0", "2*i + 3"),
    ],
)
def test_lanes_that_a_test_of_positions_turns_off_are_not_read(test, place, width):
    source = GUARDED.format(test=test, place=place)
    check(source, host(vector_width=width))
    assert "masked.gather" not in llvm(source)
