import pytest

from grader.manifest import load
from grader.notebook import Cell, Notebook, instructor
from grader.program import Program, make_program, study, without_magics
from grader.tests.threads import TOY

TOY_ASSIGNMENT = load(TOY)
OWN = instructor(TOY)
IDS = {cell.grade_id: cell for cell in OWN.cells}
SETUP = IDS["setup"].source


def notebook(*cells):
    """Cells from texts, or from (grade_id, text)."""
    made = []
    for i, cell in enumerate(cells, 1):
        id, source = cell if isinstance(cell, tuple) else ("", cell)
        made.append(Cell(True, source, id, i, locked=id == "setup"))
    return Notebook(tuple(made))


def program(task, *cells) -> Program:
    return make_program(notebook(*cells), OWN, TOY_ASSIGNMENT, TOY_ASSIGNMENT.task(task))


def labels(made):
    return [label for label, _ in made.cells]


def value(made, call):
    """Run the program here (these cells are ours) and evaluate the call."""
    space = {}
    for _, source in made.cells:
        exec(source.replace("import grader", ""), space)
    return eval(call, space)


TASK_1 = ("task-9-1", "def twice(x):\n    return helper(x)")
HELPER = "def helper(x):\n    return x + x"
HANG = ("task-9-2", "def without_repeats(g):\n    return g\nwhile True: pass")


def test_a_task_gets_the_setup_its_cell_and_what_that_uses():
    made = program("9.1", ("setup", SETUP), HELPER, TASK_1, HANG, "print(twice(3))")
    assert labels(made) == ["cell setup", "cell 2", "cell 9.1"]
    assert made.functions == {"9.1": "twice"}
    assert value(made, "twice(4)") == 8


def test_the_end_to_end_run_gets_all_functions():
    made = program("9.3", ("setup", SETUP), HELPER, TASK_1, HANG)
    assert labels(made) == ["cell setup", "cell 2", "cell 9.1", "cell 9.2"]
    assert made.functions == {"9.1": "twice", "9.2": "without_repeats"}
    assert program("9.3", TASK_1).missing == ("9.2",)


def test_what_is_used_by_what_is_used_comes_too_in_the_order_of_the_notebook():
    made = program(
        "9.1", "def helper(x):\n    return inner(x)", TASK_1, "inner = abs", "unused = 1"
    )
    assert labels(made) == ["cell setup", "cell 1", "cell 9.1", "cell 3"]


def test_the_setup_is_the_instructors_and_additions_to_it_run_as_own_cells():
    made = program(
        "9.1", ("setup", "import os; os._exit(0)"), ("task-9-1", "def twice(x): return x")
    )
    assert made.cells[0] == ["cell setup", SETUP]
    assert labels(made) == ["cell setup", "cell 9.1"]
    more = SETUP + "\nimport math"
    made = program("9.1", ("setup", more), ("task-9-1", "def twice(x): return math.floor(x)"))
    assert labels(made) == ["cell setup", "cell 1", "cell 9.1"]
    assert labels(program("9.1", TASK_1, HELPER))[0] == "cell setup"  # deleted


def test_a_function_that_stands_twice_is_the_last_one():
    first, last = ("task-9-1", "def twice(x): return 1"), ("task-9-1", "def twice(x): return 2")
    assert value(program("9.1", first, last), "twice(0)") == 2
    assert labels(program("9.1", first, last)) == ["cell setup", "cell 9.1"]
    assert value(program("9.1", first, "def twice(x): return 3"), "twice(0)") == 3
    broken = ("task-9-1", "def twice(x) return")
    assert value(program("9.1", first, broken), "twice(0)") == 1
    assert program("9.1", broken).cells[1] == ["cell 9.1", broken[1]]


def test_a_cell_is_found_by_its_function_if_its_metadata_is_gone_or_wrong():
    assert value(program("9.1", "x = 1", "def twice(x): return 5"), "twice(0)") == 5
    swapped = program("9.1", ("task-9-2", "def twice(x): return 6"), ("task-9-1", "y = 2"))
    assert value(swapped, "twice(0)") == 6
    in_check = program("9.1", ("check-9-1", "def twice(x): return 7\ngrader.check_here('9.1')"))
    assert in_check.missing == ()
    assert program("9.1", ("task-9-1", "y = 2")).missing == ("9.1",)
    assert program("9.1", "twice.cache = {}").missing == ("9.1",)


@pytest.mark.parametrize(
    "cells",
    [
        ("table = {}", "table[1] = 2", "def twice(x): return table[x]"),
        ("table = {}", "table.update({1: 2})", "def twice(x): return table[x]"),
        ("table = {}", "for i in [1]:\n    table[i] = 2", "def twice(x): return table[x]"),
        ("def twice(x): return old[x]", "old = {1: 1}", "old = {1: 2}"),
        ("n = 1", "n += 1", "def twice(x): return n"),
        ("def twice(x): return 1", "twice = (lambda f: lambda x: f(x) + 1)(twice)"),
        ("def twice(x): return twice.n", "twice.n = 2"),
        ("def fill():\n    global n\n    n = 2", "fill()", "n = 2", "def twice(x): return n"),
        ("class A:\n    n = m", "m = 2", "def twice(x): return A.n"),
        ("from math import *", "def twice(x): return floor(2.5)"),
        ("two = 2", "def twice(x, n=two): return n"),
        ("def twice(x): return [two for _ in [0]][0]", "two = 2"),
        ("%matplotlib inline\ntwo = 2\n!ls\n", "def twice(x): return two"),
    ],
)
def test_it_is_as_if_the_notebook_ran_from_top_to_bottom(cells):
    if cells[0].startswith("class"):
        cells = (cells[1], cells[0], cells[2])
    made = program("9.1", *cells)
    assert value(made, "twice(1)") == 2


def test_what_is_named_alike_only_by_chance_does_not_run():
    loud = "def draw():\n    x = helper = 3\nraise SystemExit"
    local = ("task-9-1", "def twice(x):\n    helper = [y for y in [x]]\n    return x + x")
    alone = ["cell setup", "cell 9.1"]
    assert labels(program("9.1", loud, "helper = 1/0", "y = 1/0", local)) == alone
    again = "import minidlc as mc\nmc.use()\nimport torch"
    uses = ("task-9-1", "def twice(x): return mc.add(x, x)")
    assert labels(program("9.1", again, "mc.eager()", uses)) == alone


def test_magics_go_and_lines_keep_their_numbers():
    assert without_magics("%time x = 1\n  !ls\ny = 2") == "pass\n  pass\ny = 2"
    assert without_magics("files = !ls\nf?\n??f\nz = 1") == "pass\npass\npass\nz = 1"
    assert without_magics("%%time\ndef f(): return 1") == "pass\ndef f(): return 1"
    assert without_magics("%%bash\nrm -r x") == ""
    good = "x = (7\n  % 4)\ns = '''\n!not\n'''"
    assert without_magics(good) == good


def test_studying_odd_sources_neither_fails_nor_warns(recwarn):
    assert not study("def f(:\n  x").whole
    assert study("def f(:\n  x\ng = 1\nclass A:").binds == {"f", "g", "A"}
    for source in ("\0", "(" * 3000, "-" * 200_000 + "1", "é = '\\d'", "", "# nothing"):
        study(source)
    assert study("async def f(): pass\nasync def g():\n    await f()").binds == {"f", "g"}
    assert not recwarn.list


def test_a_line_is_looked_up_in_the_submission():
    made = program("9.1", ("task-9-1", "def twice(x):\n    return x  # here"))
    assert made.line("cell 9.1", 2) == "return x  # here"
    assert made.line("cell 9.1", 3) is None
    assert made.line("cell 9.9", 1) is None
