from datetime import datetime

import pytest

from grader.policy import Policy, PolicyError, load_policy, parse_policy

TEXT = """
due = 2026-10-14T23:59:00+02:00
grace_minutes = 10
percent_per_day = 10
days = 3
[extensions]
ada = 2026-10-17T23:59:00+02:00
"""


@pytest.mark.parametrize(
    ("student", "submitted", "factor", "words"),
    [
        ("bob", "2026-10-14T21:59:00+00:00", 1.0, "In time."),
        ("bob", "2026-10-14T22:08:59+00:00", 1.0, "In time."),
        ("bob", "2026-10-14T22:09:01+00:00", 0.9, "1 day late: 10 % off."),
        ("bob", "2026-10-15T21:59:00+00:00", 0.9, "1 day late"),
        ("bob", "2026-10-15T21:59:01+00:00", 0.8, "2 days late: 20 % off."),
        ("bob", "2026-10-17T21:59:00+00:00", 0.7, "3 days late"),
        ("bob", "2026-10-17T21:59:01+00:00", 0.0, "4 days late: more than the 3 that are accepted"),
        ("ada", "2026-10-17T21:59:00+00:00", 1.0, "with an extension to 2026-10-17 23:59"),
        ("ada", "2026-10-18T00:00:00+02:00", 1.0, "In time"),
        ("ada", "2026-10-18T12:00:00+02:00", 0.9, "1 day late, with an extension"),
        ("bob", "", 1.0, "not known"),
    ],
)
def test_days_late(student, submitted, factor, words):
    verdict = parse_policy(TEXT).judge(student, submitted)
    assert verdict.factor == factor
    assert words in verdict.sentence


def test_the_later_extension_counts():
    policy = parse_policy(TEXT)
    later = datetime.fromisoformat("2026-10-20T00:00:00+00:00")
    earlier = datetime.fromisoformat("2026-10-01T00:00:00+00:00")
    at = "2026-10-19T00:00:00+00:00"
    assert policy.judge("ada", at, later).factor == 1.0
    assert policy.judge("ada", at, earlier).factor == 0.8
    assert policy.judge("bob", at, later).factor == 1.0


def test_without_a_deadline_nothing_is_late():
    assert Policy().judge("bob", "2026-10-19T00:00:00+00:00").factor == 1.0
    assert parse_policy("").judge("bob", "").sentence == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("due = 1", "due: got 1, expected a time with its zone"),
        ("due = 2026-10-14T23:59:00", "expected a time with its zone"),
        ("du = 1", "du: no such key; did you mean 'due'?"),
        ("percent_per_day = -1", "percent_per_day: got -1, expected a number, 0 or more"),
        ("days = true", "days: got True"),
        ("percent_per_day = 10", "due: missing"),
        ("extensions = 3", "extensions: expected a table"),
        ("[extensions]\nada = 'monday'", "extensions.ada: got monday"),
        ("due", "not valid TOML"),
    ],
)
def test_a_policy_that_cannot_be_used_is_said(text, words):
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "my/policy.toml")
    assert str(caught.value).startswith("my/policy.toml: ")
    assert words in str(caught.value)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(tmp_path / "policy.toml")
