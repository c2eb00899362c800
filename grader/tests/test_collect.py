import dataclasses

import pytest

from grader.collect import BrokenTests, Tests
from grader.manifest import load
from grader.tests.threads import TOY

TASK = load(TOY).task("9.1")


@pytest.fixture
def tests_of(tmp_path):
    """Collects a public module (and a hidden one) written as text."""

    def make(public, hidden="", helper="", count=(1, 0), public_only=False):
        for kind, text in (("public", public), ("hidden", hidden)):
            folder = tmp_path / "tests" / kind
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "test_9_1.py").write_text(f"import pytest\n{text}\n")
            (folder / f"helper_{kind}.py").write_text(helper)
        task = dataclasses.replace(TASK, public_tests=count[0], hidden_tests=count[1])
        assignment = dataclasses.replace(load(TOY), folder=tmp_path, tasks=(task,))
        return Tests(assignment, public_only).of(task)

    return make


def test_the_toys_tests():
    tests = Tests(load(TOY))
    names = [test.name for test in tests.of(TASK)]
    expected = ["test_twice[three]", "test_twice[negative]"]
    assert names == [*expected, "test_arrays", "test_asked", "test_refused"]
    first, *_, last = tests.of(TASK)
    assert first.public
    assert not last.public
    assert first.claim == "Twice a number is the number added to itself."
    assert first.arguments == {"given": 3, "want": 6}
    assert first.fixtures == ("student",)
    assert tests.of(TASK)[2].weight == 2
    many = tests.of(load(TOY).task("9.2"))
    assert [(t.name, t.weight) for t in many][1:3] == [("test_many[3]", 1), ("test_many[five]", 2)]
    assert tests.of(TASK)[0] is first  # imported once


def test_names_of_cases_are_those_of_pytest(tests_of, tmp_path):
    text = """
@pytest.mark.parametrize("a", [1, None, "x", 2.5, True, len, [1]])
@pytest.mark.parametrize(("b", "c"), [(1, 2), pytest.param(3, 4, id="own")])
def test_one(student, a, b, c): pass

@pytest.mark.parametrize("kind", [int, str], ids=lambda k: k.__name__.upper())
def test_two(student, kind): pass
"""
    names = [test.name for test in tests_of(text, count=(16, 0))]
    (tmp_path / "conftest.py").write_text("import pytest\nstudent = pytest.fixture(lambda: 1)\n")
    file = tmp_path / "tests" / "public" / "test_9_1.py"
    seen = []

    class Names:
        def pytest_collection_modifyitems(self, items):
            seen.extend(item.name for item in items)

    arguments = ["--collect-only", "-qq", "-p", "no:cacheprovider", "-c", "/dev/null", str(file)]
    pytest.main(arguments, plugins=[Names()])
    assert sorted(names) == sorted(seen)
    assert "test_one[1-2-list]" not in names


def test_weights_of_module_function_and_case(tests_of):
    text = """
pytestmark = pytest.mark.points(3)
def test_a(student): pass
@pytest.mark.points(2)
def test_b(student): pass
@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.points(5))])
def test_c(student, x): pass
"""
    assert [test.weight for test in tests_of(text, count=(4, 0))] == [3, 2, 3, 5]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def test_a(student, tmp_path): pass", "no fixture 'tmp_path'; there are student, rng"),
        ("def test_a(student, reference): pass", "no fixture 'reference'"),
        ("@pytest.mark.skip\ndef test_a(student): pass", "the mark 'skip' is not known here"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError"),
        (
            "def test_a(student): pass\ndef test_b(student): pass",
            "has 2 tests, the manifest says 1",
        ),
        ("x = 1", "has 0 tests, the manifest says 1"),
        (
            "@pytest.mark.parametrize('a, b', [(1, 2), (1,)])\ndef test_a(student, a, b): pass",
            "case 1 of 'a, b' has 1 values",
        ),
    ],
)
def test_tests_that_cannot_be_used_are_said(tests_of, text, why):
    with pytest.raises(BrokenTests) as caught:
        tests_of(text)
    assert why in str(caught.value)


def test_hidden_tests_are_left_out_at_home(tests_of):
    one = "def test_a(student): pass"
    hidden = "def test_h(student, reference, rng): pass"
    assert [t.name for t in tests_of(one, hidden, count=(1, 1))] == ["test_a", "test_h"]
    assert [t.name for t in tests_of(one, "1 / 0", count=(1, 1), public_only=True)] == ["test_a"]
    with pytest.raises(BrokenTests, match="one name"):
        tests_of(one, one, count=(1, 1))


def test_two_assignments_may_have_helpers_of_one_name(tests_of):
    text = "from helper_public import VALUE\ndef test_a(student): return VALUE"
    first = tests_of(text, helper="VALUE = 1")[0]
    second = tests_of(text, helper="VALUE = 2")[0]
    assert (first.function(None), second.function(None)) == (1, 2)
