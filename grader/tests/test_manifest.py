import re

import pytest

from grader.manifest import ManifestError, load
from grader.tests.threads import TOY

TASK = """
[[task]]
id = "1.1"
title = "One"
function = "one"
points = 2
minutes = 5
difficulty = 1
topic = "t"
section = "s"
"""
HEAD = '[assignment]\nid = "a"\ntitle = "A"\n'


def faults(tmp_path, text):
    (tmp_path / "assignment.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ManifestError) as caught:
        load(tmp_path)
    return caught.value.faults


def test_a_manifest_is_read():
    toy = load(TOY)
    assert (toy.id, toy.version, toy.points) == ("toy", "1", 12)
    assert toy.task("9.2").withheld == ("minidlc.transform.dataflow.cse",)
    assert [task.end_to_end for task in toy.tasks] == [False, False, True]
    with pytest.raises(KeyError):
        toy.task("9.4")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("points = 2", "points = -1", "task 1.1: points: got -1, expected more than 0"),
        ("points = 2", "points = true", "task 1.1: points: got True, expected a number"),
        ("points = 2", "point = 2", "task 1.1: point: no such key; did you mean 'points'?"),
        ("minutes = 5", "minutes = 5.5", "task 1.1: minutes: got 5.5, expected a whole number"),
        ("difficulty = 1", "difficulty = 4", "task 1.1: difficulty: got 4, expected 1, 2 or 3"),
        ('"one"', '"1one"', "the name of a function, or '' for the end-to-end run"),
        ('id = "1.1"', 'id = "one"', "task one: id: got 'one', expected a text as '1.2'"),
        ('topic = "t"', "", "task 1.1: topic: missing"),
        ('topic = "t"', 'topic = "t"\nhints = ["a"]', "expected three hints"),
        ('topic = "t"', 'topic = "t"\nwithheld = ["os.path"]', "'minidlc.graph.graph:_toposort'"),
        ("[[task]]", "[[tasks]]", "[tasks]: did you mean 'task'?"),
        ('title = "A"', "", "[assignment] title: got None, expected a text"),
        ('id = "a"', 'id = "a b"', "expected letters, digits and _"),
    ],
)
def test_what_is_wrong_is_said_with_task_key_and_rule(tmp_path, old, new, fault):
    text = (HEAD + TASK).replace(old, new, 1)
    assert any(fault in line for line in faults(tmp_path, text))


def test_all_faults_come_at_once_with_the_file(tmp_path):
    text = HEAD + TASK.replace("points = 2", "points = 0") + TASK + TASK
    (tmp_path / "assignment.toml").write_text(text)
    with pytest.raises(ManifestError) as caught:
        load(tmp_path)
    assert len(caught.value.faults) == 3  # points, and the id and function that stand twice
    assert re.match(r".*/assignment\.toml: task 1\.1: points", str(caught.value))


def test_a_file_that_is_missing_or_no_toml(tmp_path):
    with pytest.raises(ManifestError, match="no such file"):
        load(tmp_path)
    assert "not valid TOML" in faults(tmp_path, "[assignment\n")[0]
    (tmp_path / "assignment.toml").write_bytes(b'\xff = "1"')
    with pytest.raises(ManifestError, match="not UTF-8"):
        load(tmp_path)
