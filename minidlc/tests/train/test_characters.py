"""The character transformer learns: from ln(V) to well below, the same numbers each time."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.benchmarks.characters import LENGTH, Run, corpus, decoder, train, write

pytestmark = [pytest.mark.llvm, pytest.mark.long, pytest.mark.ch03]


@pytest.fixture(scope="module")
def run() -> Run:
    return train(corpus(), steps=150)


def test_the_loss_falls_from_that_of_guessing_to_60_percent(run: Run) -> None:
    guessing = np.log(run.vocabulary)
    assert abs(run.losses[0] - guessing) < 0.05
    assert np.mean(run.losses[-20:]) <= 0.6 * guessing


def test_the_same_seed_gives_the_same_losses(run: Run) -> None:
    """The schedule of the rate depends on the number of steps, so this runs as long."""
    assert train(corpus(), steps=150).losses == run.losses


def test_what_it_writes_has_words(run: Run) -> None:
    text = write(run, "The ", 200)
    assert text.startswith("The ")
    assert len(text) == 200
    assert 3 < np.mean([len(word) for word in text.split()]) < 9  # random letters: 20 and more
    assert set(text) <= set(run.alphabet)


def test_nothing_is_seen_of_what_follows(run: Run) -> None:
    """Logits at a place do not change with the characters behind it."""
    p = {name.removeprefix("p_"): array for name, array in run.step.params.items()}
    with mc.eager():
        ids = np.arange(LENGTH)[None] % run.vocabulary
        other = np.where(np.arange(LENGTH) < 40, ids, 3)
        values = {name: mc.tensor(array) for name, array in p.items()}
        first = decoder(mc.tensor(ids), values).numpy()
        second = decoder(mc.tensor(other), values).numpy()
    np.testing.assert_array_equal(first[:, :40], second[:, :40])
    assert np.abs(first[:, 40:] - second[:, 40:]).max() > 0.01
