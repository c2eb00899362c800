"""TfIdfVectorizer against counting by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minidlc.frontend.onnx import load_onnx
from minidlc.support.errors import CompileError
from minidlc.tests.frontend.helpers import F, model, node, run

POOL: dict[str, Any] = {
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 5, 6, 5],
    "ngram_counts": [0, 4, 10],
    "ngram_indexes": [2, 0, 1, 3, 6, 7, 5, 8],
}
GRAMS = [(2,), (3,), (5,), (4,), (5, 6), (7, 8), (6, 7), (5, 6, 5)]
WEIGHTS = [0.5, 2.0, 3.0, 0.25, 1.5, 2.5, 0.125, 4.0]


def by_hand(row: Any, mode: str, shortest: int, longest: int, skips: int) -> Any:
    counts = np.zeros(9, F)
    for gram, place, weight in zip(GRAMS, POOL["ngram_indexes"], WEIGHTS, strict=True):
        n, found = len(gram), 0
        for step in range(1, skips + 2 if n > 1 else 2):
            for first in range(len(row) - (n - 1) * step):
                found += tuple(row[first : first + (n - 1) * step + 1 : step]) == gram
        if shortest <= n <= longest:
            found = min(found, 1) if mode == "IDF" else found
            counts[place] = found * (1 if mode == "TF" else weight)
    return counts


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("lengths", "skips"), [((1, 1), 3), ((1, 3), 0), ((2, 3), 2), ((1, 2), 9)])
def test_counts(mode: str, lengths: tuple[int, int], skips: int) -> None:
    shortest, longest = lengths
    given = {"min_gram_length": shortest, "max_gram_length": longest, "max_skip_count": skips}
    vectorizer = node("TfIdfVectorizer", "x", "y", mode=mode, weights=WEIGHTS, **given, **POOL)
    rows = np.array([[5, 6, 5, 6, 7, 5, 2, 5], [3, 3, 7, 9, 8, 4, 6, 5]])
    wanted = [by_hand(row, mode, shortest, longest, skips) for row in rows.tolist()]
    for kind in (np.int64, np.int32):
        got = run(vectorizer, {"x": rows.astype(kind)})
        np.testing.assert_array_equal(got, np.array(wanted))
    np.testing.assert_array_equal(run(vectorizer, {"x": rows[0]}), wanted[0])
    np.testing.assert_array_equal(run(vectorizer, {"x": rows[:, :0]}), np.zeros((2, 9), F))


@pytest.mark.parametrize(
    ("attributes", "code", "text"),
    [
        ({"mode": "TF", "pool_strings": ["a"]}, "MDLC0116", "a pool of strings"),
        ({"mode": "T"}, "MDLC0115", "mode 'T' is none of"),
        ({"mode": "TF", "ngram_counts": [0, 3, 10]}, "MDLC0115", "do not fit together"),
        ({"mode": "IDF", "weights": [1.0]}, "MDLC0115", "8 finite numbers, got [1.0]"),
    ],
)
def test_refused(attributes: Any, code: str, text: str) -> None:
    given = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, **POOL, **attributes}
    with pytest.raises(CompileError) as caught:
        load_onnx(model([node("TfIdfVectorizer", "x", "y", **given)], {"x": np.zeros(3, np.int64)}))
    assert caught.value.code == code
    assert text in str(caught.value)
