"""Rows of one task, with workers in threads; what needs a process is in test_grading.py."""

import dataclasses

import numpy as np
import pytest

import minidlc as mc
from grader import expect, feedback, runner
from grader.collect import Test
from grader.manifest import load
from grader.model import Row, Status
from grader.program import Program
from grader.runner import TaskRun, rng_of
from grader.student import Died, StudentRaised
from grader.tests.threads import TOY, ThreadProcess, ThreadWorkers

TASK = load(TOY).task("9.1")
RIGHT = "def twice(x):\n    return x + x\n"


def run(source, *tests, reference=RIGHT, workers=None, task=TASK, seed=1):
    """Rows of these test functions; those named hidden_… are hidden."""
    found = []
    for function in tests:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        public = not function.__name__.startswith("hidden")
        found.append(Test(function.__name__, public, function, {}, names, 1.0, "A claim."))
    return TaskRun(
        task,
        found,
        program(source),
        "",
        workers or ThreadWorkers(),
        seed,
        lambda: {"twice": lambda x: x + x} if reference else 1 / 0,
        program(reference) if reference else None,
    ).run()


def program(source):
    cells = [["cell 9.1", part] for part in source.split("# next cell\n")]
    return Program(cells, {"9.1": "twice"})


def public(student):
    expect.equal(student.call("9.1", 3), 6, "twice 3", given="x = 3")


def hidden(student):
    expect.equal(student.call("9.1", 417), 834, "twice 417", given="x = 417")


def test_a_right_answer():
    result = run(RIGHT, public, hidden)
    assert (result.earned, result.status, result.calls) == (4, Status.PASSED, 2)
    assert result.hint == ""
    assert [row.claim for row in result.rows] == ["A claim."] * 2


def test_a_wrong_answer_shows_its_input_only_if_it_is_public():
    shown, secret = run("def twice(x):\n    return x * x\n", public, hidden).rows
    assert (shown.status, shown.earned, shown.out_of) == (Status.FAILED, 0, 1)
    assert shown.sentence == "Not as expected: twice 3."
    assert shown.details == "input: x = 3\nexpected: 6\ngot: 9"
    assert secret.sentence == "The answer is not the expected one."
    assert secret.details == secret.expected == secret.yours == ""
    assert "expected: 834" in secret.private
    assert "417" not in str(dataclasses.replace(secret, private=""))


def test_an_exception_shows_class_and_own_lines():
    source = "class Odd(Exception): pass\ndef twice(x):\n    raise Odd(f'got {x}')\n"
    shown, secret = run(source, public, hidden).rows
    assert (shown.status, shown.exception) == (Status.ERROR, "Odd")
    assert shown.sentence == "Odd: got 3"
    assert shown.frames == ("cell 9.1, line 3: raise Odd(f'got {x}')",)
    assert secret.sentence == "Your code raised Odd."
    assert secret.private == "Odd: got 417"
    assert "417" not in str(dataclasses.replace(secret, private=""))


def test_neither_class_nor_frames_carry_a_hidden_input_out():
    source = (
        "def twice(x):\n"
        "    code = compile(f'\\n' * 2 + 'raise type(\"E\" + str(x), (Exception,), {})',"
        " f'<cell {x}>', 'exec')\n"
        "    exec(code, {'x': x})\n"
    )
    _, secret = run(source, public, hidden).rows
    assert secret.exception == "an exception of its own"
    assert secret.frames == ("cell 9.1, line 3: exec(code, {'x': x})",)
    assert "417" not in str(dataclasses.replace(secret, private=""))


def test_no_text_names_a_folder_of_the_run():
    said = "/tmp/grader-p1bx1hel/overlay-2ffc9d94b0d64ba7/grader/serve.py:40 in f at 0x7f00aa"
    assert feedback.clean(said) == "grader/serve.py:40 in f at 0x…"


def test_lines_of_a_hidden_test_spell_nothing():
    source = "def a(): b()\ndef b(): raise ValueError\ndef twice(x): a()\n"
    shown, secret = run(source, public, hidden).rows
    assert len(shown.frames) == 3
    assert secret.frames == ("cell 9.1, line 2: def b(): raise ValueError",)


def test_several_failures_are_shown_and_a_hint_that_fits():
    wrong = run("def twice(x):\n    return 6\n", public, hidden, hidden)
    assert [row.status for row in wrong.rows] == ["passed", "failed", "failed"]
    assert wrong.hint == "return x + x (section 01 Numbers)"  # one claim is left
    assert run("def twice(x): pass", hidden).hint.startswith("What is twice 3?")
    assert wrong.earned == round(4 / 3, 2)


@pytest.mark.parametrize(
    ("right", "wrong", "hint"), [(0, 1, 0), (9, 1, 2), (9, 2, 1), (9, 3, 0), (1, 8, 0)]
)
def test_the_fewer_claims_fail_the_more_the_hint_says(right, wrong, hint):
    rows = [Row(f"r{i}", True, Status.PASSED, claim=f"Right {i}.") for i in range(right)]
    cases = [(claim, case) for claim in range(wrong) for case in range(5)]
    rows += [Row(f"w[{c}]", True, Status.FAILED, claim=f"Wrong {w}.") for w, c in cases]
    assert feedback.hint_for(TASK, rows).startswith(TASK.hints[hint])


def test_a_withheld_part_is_named_and_nothing_else():
    part = "minidlc.graph.graph:toposort"
    task = dataclasses.replace(TASK, withheld=(part, "minidlc.graph.verify"))
    raises = "def twice(x):\n    raise NotImplementedError('withheld: {} is for you to write')\n"
    said = f": {part} is withheld, it is for you to write."
    for name, sentence in (
        (part, said),
        ("minidlc.graph.verify:check", said.replace(part, "minidlc.graph.verify")),
        (part + "_417", "."),
        ("417", "."),
    ):
        shown, secret = run(raises.format(name), public, hidden, task=task).rows
        assert name in shown.sentence
        assert secret.sentence == f"Your code raised NotImplementedError{sentence}"


def test_frames_of_the_grader_are_not_shown():
    notes = ("it is called so\n/x/overlay-2f/grader/serve.py:40 in f: return g()\n<cell>:3 in g",)
    raised = StudentRaised("OptionError", "No.", notes=notes)
    test = Test("t", True, public, {}, (), 1.0, "A claim.")
    row = feedback.row_of(test, raised, program(RIGHT))
    assert row.details == "it is called so\n<cell>:3 in g"


def test_types_are_shown_as_a_graph_text_has_them():
    assert feedback.text_of([mc.f32["N", 4], mc.i8]) == '[f32["N", 4], i8]'
    assert feedback.text_of(mc.f32["N", 4].shape) == "(N, 4)"


def test_a_plain_assertion_says_what_does_not_hold(tmp_path):
    file = tmp_path / "tests.py"  # where pytest does not rewrite assertions
    asks = 'assert student.call("9.1", 3) == 6'
    said = f"{asks}, '3 was not doubled\\nat all'"
    file.write_text(f"def stated(student):\n    {asks}\ndef said(student):\n    {said}\n")
    exec(compile(file.read_text(), str(file), "exec"), space := {})
    stated, said = space["stated"], space["said"]

    def failed(student):
        if student.call("9.1", 3) != 6:
            pytest.fail("3 was not doubled")

    rows = run("def twice(x):\n    return 0\n", stated, said, failed).rows
    assert [row.status for row in rows] == ["failed"] * 3
    assert rows[0].sentence == 'This does not hold: assert student.call("9.1", 3) == 6.'
    assert (rows[1].sentence, rows[1].details) == ("3 was not doubled.", "at all")
    assert rows[2].sentence == "3 was not doubled."


def test_a_test_that_stumbles_is_the_students_fault_only_if_the_reference_passes():
    def careless(student):
        first, second = student.call("9.1", "ab")[:2]
        assert first + second == "ab"

    def broken(student):
        student.call("9.1", 3).no_such_method()

    def refused(student):
        student.call("9.1", object())  # cannot cross: the test's fault

    for none in ("def twice(x):\n    return None\n", "def twice(x):\n    return 5\n"):
        rows = run(none, careless, broken, refused).rows
        assert [row.status for row in rows] == ["failed", "grader_error", "grader_error"]
    assert "does not have the form" in rows[0].sentence
    assert rows[1].sentence == feedback.OURS
    assert "no_such_method" in rows[1].private
    assert not run(none, broken).counts


def test_a_reference_that_fails_is_our_fault():
    def compares(student, reference):
        assert student.call("9.1", 3) == reference["twice"](3)

    assert run(RIGHT, compares).status == Status.PASSED
    assert run(RIGHT, compares, reference=None).status == Status.GRADER_ERROR


def test_no_function_is_missing_and_a_failing_cell_stops_only_itself():
    rows = run("x = 1\n", public, hidden).rows
    assert [row.status for row in rows] == ["missing"] * 2
    assert rows[0].sentence == "Not found in the notebook: twice (task 9.1)."
    assert run("1 / 0\n# next cell\n" + RIGHT, public, hidden).earned == 4
    assert run(RIGHT + "twice(object())\n", public, hidden).earned == 4
    rows = run("1 / 0\n" + RIGHT, public, hidden).rows
    assert [row.status for row in rows] == ["error"] * 2
    assert rows[0].sentence == "ZeroDivisionError: division by zero"
    assert run("def twice(x) return x", public).rows[0].exception == "SyntaxError"


def test_graphs_give_a_picture_and_an_evaluator_only_when_asked():
    graph = mc.trace(lambda x: mc.relu(x), mc.f32[2])

    def same(student):
        expect.same_graph(student.call("9.1", graph), graph, given=graph)

    def meaning(student):
        [y] = student.evaluate(student.call("9.1", graph), [np.array([-1, 2], np.float32)])
        expect.close(y, np.array([0, 2], np.float32))

    workers = ThreadWorkers()
    source = "import minidlc as mc\ndef twice(g):\n    return mc.trace(mc.exp, mc.f32[2])\n"
    [row] = run(source, same, workers=workers).rows
    assert "relu" in row.expected
    assert "exp" in row.yours
    assert len(row.details.split("\n")) <= feedback.MAX_LINES
    assert workers.evaluators == 0
    assert run("def twice(g):\n    return g\n", same, meaning, workers=workers).earned == 4
    assert workers.evaluators == 1


def test_details_are_at_most_thirty_lines():
    def long(student):
        many = "\n".join(f"line {i} " + "x" * 500 for i in range(100))
        expect.equal(student.call("9.1", 1), many, "the text", given=many)

    [row] = run("def twice(x):\n    return [list(range(10**3))] * 9\n", long).rows
    lines = row.details.split("\n")
    assert len(lines) <= feedback.MAX_LINES
    assert max(map(len, lines)) <= feedback.MAX_WIDTH + 1
    assert any("more lines" in line for line in lines)


class Scripted(ThreadWorkers):
    """Workers that die at the n-th request."""

    def __init__(self, deaths):
        super().__init__()
        self.deaths = list(deaths)

    def worker(self, task, seconds):
        process = super().worker(task, seconds)
        self.seconds = seconds
        at, status = self.deaths.pop(0) if self.deaths else (0, None)
        plain, count = process.request, 0

        def request(message, answer):
            nonlocal count
            count += 1
            if count == at:
                raise Died(status, "It ended.")
            return plain(message, answer)

        process.request = request
        return process


def test_a_death_is_one_row_and_the_rest_is_not_run():
    rows = run(RIGHT, public, public, hidden, workers=Scripted([(3, Status.CRASHED)])).rows
    assert [row.status for row in rows] == ["passed", "crashed", "not_run"]
    assert rows[2].sentence == "Not run: an earlier test ended the process (crashed)."
    rows = run(RIGHT, public, hidden, workers=Scripted([(1, Status.OOM)])).rows
    assert [row.status for row in rows] == ["oom", "not_run"]


def test_a_timeout_on_a_busy_machine_is_tried_again():
    workers = Scripted([(2, Status.TIMEOUT)])
    assert run(RIGHT, public, workers=workers).earned == 4
    assert workers.workers == 2
    assert workers.seconds == 3 * TASK.seconds
    workers = Scripted([(2, Status.TIMEOUT)] * 2)
    assert run(RIGHT, public, workers=workers).status == Status.TIMEOUT


@pytest.mark.parametrize(
    ("waited", "computed", "tries"),
    [(0.0, 0.0, 1), (TASK.seconds, 0.0, 2), (TASK.seconds, TASK.seconds, 1)],
    ids=["a sleeper", "it had no core", "it had one, and many threads"],
)
def test_another_try_is_for_who_had_no_core(monkeypatch, waited, computed, tries):
    monkeypatch.setattr(runner, "lost", lambda: 7.0)
    plain, used = ThreadProcess.close, {"waited_seconds": waited, "cpu_seconds": computed}
    monkeypatch.setattr(
        ThreadProcess, "close", lambda self: dataclasses.replace(plain(self), **used)
    )
    workers = Scripted([(2, Status.TIMEOUT)])
    status = run(RIGHT, public, workers=workers).status
    assert (workers.workers, status == Status.PASSED) == (tries, tries == 2)


def test_an_evaluator_that_dies_costs_one_row():
    graph = mc.trace(lambda x: mc.relu(x), mc.f32[2])

    class Dying(ThreadWorkers):
        def evaluator(self, task, seconds):
            process = ThreadProcess()

            def request(message, answer):
                raise Died(Status.OOM, "It needed more.")

            process.request = request
            return process

    def meaning(student):
        student.evaluate(graph, [np.zeros(2, np.float32)])

    rows = run(RIGHT, meaning, public, workers=Dying()).rows
    assert [row.status for row in rows] == ["oom", "passed"]
    assert rows[0].sentence == "While your result was evaluated: it needed more."


def test_a_machine_that_cannot_start_a_worker_is_our_fault():
    class Broken(ThreadWorkers):
        def worker(self, task, seconds):
            raise RuntimeError("no more processes")

    result = run(RIGHT, public, hidden, workers=Broken())
    assert [row.status for row in result.rows] == ["grader_error"] * 2
    assert "no more processes" in result.rows[0].private
    assert not result.counts


def test_random_inputs_depend_on_student_task_and_test_alone():
    seen = []

    def first(rng):
        seen.append(rng.integers(1 << 40))

    def second(rng, student):
        assert rng is student.rng
        seen.append(rng.integers(1 << 40))

    run(RIGHT, first, second)
    run(RIGHT, second, first)
    run(RIGHT, first, seed=2)
    a, b, b_again, a_again, other = seen
    assert (a, b) == (a_again, b_again)
    assert len({a, b, other}) == 3
    assert rng_of(1, "9.1", "first").integers(1 << 40) == a


def test_output_is_kept_only_if_it_cannot_hold_hidden_inputs():
    class Printing(ThreadWorkers):
        def worker(self, task, seconds):
            process = super().worker(task, seconds)
            close = process.close
            process.close = lambda: dataclasses.replace(close(), output="at 0x7f1234567890")
            return process

    assert run(RIGHT, public, workers=Printing()).output == "at 0x…"
    assert run(RIGHT, public, hidden, workers=Printing()).output == ""
