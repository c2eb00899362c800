"""A transformer of two layers learns to write like this kit's page on errors, letter by letter.

    text = corpus()                                 # docs/errors.md: it lies in the package
    run = train(text, steps=600)                    # run.losses: from ln(V) down; V characters
    run.losses[0], np.log(run.vocabulary)           # 4.4, 4.4: at first every character is likely
    print(write(run, "The ", 200))                  # what it takes for English

A decoder with norms in front, after Radford and others, "Language Models are Unsupervised Multitask
Learners", 2019: width 64, 4 heads, causal attention, AdamW with warm-up. From the shell:
`python -m minidlc.benchmarks.characters`. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minidlc as mc
from minidlc.expr.types import Array
from minidlc.graph.graph import Value
from minidlc.train.data import windows
from minidlc.train.losses import cross_entropy
from minidlc.train.optimizers import adamw
from minidlc.train.schedules import cosine, warmup
from minidlc.train.step import TrainStep, compile_train_step

LAYERS, WIDTH, HEADS, LENGTH, BATCH = 2, 64, 4, 64, 16
RATE = 3e-3


@dataclass(frozen=True)
class Run:
    """A model, its alphabet, and the loss of each step, in nats per character."""

    step: TrainStep
    alphabet: str
    losses: list[float]

    @property
    def vocabulary(self) -> int:
        """How many characters the model knows."""
        return len(self.alphabet)


def corpus() -> str:
    """A text of some length that everybody has who has the kit."""
    return (Path(mc.__file__).parent / "docs" / "errors.md").read_text(encoding="utf-8")


def decoder(ids: Value, p: dict[str, Value]) -> Value:
    """i64[batch, length] characters -> f32[batch, length, V] logits of those that follow."""
    x = mc.gather(p["characters"], ids) + p["places"]
    for n in range(LAYERS):
        y = mc.layer_norm(x, p[f"norm1_{n}"])
        q, k, v = (y @ p[f"{name}_{n}"] for name in ("query", "key", "value"))
        y = mc.attention(q, k, v, is_causal=True, q_num_heads=HEADS, kv_num_heads=HEADS)[0]
        x = x + y @ p[f"mix_{n}"]
        y = mc.gelu(mc.layer_norm(x, p[f"norm2_{n}"]) @ p[f"up_{n}"])
        x = x + y @ p[f"down_{n}"]
    return mc.layer_norm(x, p["norm"]) @ p["logits"]


def loss(ids: Value, after: Value, p: dict[str, Value]) -> Value:
    """The mean over all places of -log p(the character that follows), in nats."""
    return cross_entropy(mc.transpose(decoder(ids, p), perm=(0, 2, 1)), after)


def parameters(vocabulary: int, seed: int) -> dict[str, Array]:
    """Arrays to start with. With logits near 0, every character is likely: the loss is ln(V)."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "characters": (vocabulary, WIDTH),
        "places": (LENGTH, WIDTH),
        "norm": (WIDTH,),
        "logits": (WIDTH, vocabulary),
    }
    for n in range(LAYERS):
        shapes |= {f"norm1_{n}": (WIDTH,), f"norm2_{n}": (WIDTH,)}
        shapes |= {f"{name}_{n}": (WIDTH, WIDTH) for name in ("query", "key", "value", "mix")}
        shapes |= {f"up_{n}": (WIDTH, 4 * WIDTH), f"down_{n}": (4 * WIDTH, WIDTH)}
    made = {name: rng.normal(0, 0.02, shape) for name, shape in shapes.items()}
    ones = {name: np.ones(WIDTH) for name in shapes if name.startswith("norm")}
    return {name: array.astype(np.float32) for name, array in (made | ones).items()}


def train(text: str, steps: int, *, seed: int = 0, threads: int = 2, show: bool = False) -> Run:
    """Train a fresh model on windows of a text, each `LENGTH` characters and what follows them."""
    alphabet = "".join(sorted(set(text)))
    ids = np.array([alphabet.index(c) for c in text])
    arrays = parameters(len(alphabet), seed)
    types = {name: mc.f32[array.shape] for name, array in arrays.items()}
    graph = mc.trace(loss, mc.i64[BATCH, LENGTH], mc.i64[BATCH, LENGTH], types)
    trained = {f"p_{name}": array for name, array in arrays.items()}
    optimizer = adamw(RATE, weight_decay=0.01)
    step = compile_train_step(graph, trained, optimizer, clip_norm=1.0, threads=threads)
    data = windows(ids, LENGTH + 1).shuffle(seed).batch(BATCH, drop_last=True).map(shifted)
    rate = warmup(cosine(RATE, steps), steps=steps // 10)
    losses: list[float] = []
    for batch in itertools.islice(data.prefetch(2), steps):
        step.learning_rate = rate(step.steps)
        losses.append(float(step(batch)[0]))
        if show and len(losses) % 50 == 0:
            print(f"step {len(losses):4}: {np.mean(losses[-50:]):.3f} nats per character")
    return Run(step, alphabet, losses)


def shifted(window: Array) -> dict[str, Array]:
    """Characters, and for each the one behind it."""
    return {"ids": window[:, :-1], "after": window[:, 1:]}


def write(run: Run, begin: str, length: int, *, seed: int = 0) -> str:
    """Go on from `begin`, character after character as likely as the model takes it to be.

    Hidden by causality, what stands behind the last character does not matter: it is filled up.
    """
    rng = np.random.default_rng(seed)
    types = {name.removeprefix("p_"): mc.f32[a.shape] for name, a in run.step.params.items()}
    predict = mc.compile(mc.trace(decoder, mc.i64[1, LENGTH], types))
    ids = [run.alphabet.index(c) for c in begin]
    while len(ids) < length:
        seen = ids[-LENGTH:]
        padded = np.array([seen + [0] * (LENGTH - len(seen))])
        logits = predict(padded, *run.step.params.values())[0][0, len(seen) - 1]
        p = np.exp(logits.astype(np.float64) - logits.max())
        ids.append(int(rng.choice(len(p), p=p / p.sum())))
    return "".join(run.alphabet[i] for i in ids)


def main() -> None:
    """Train for a minute at most, then write a few lines."""
    run = train(corpus(), steps=800, show=True)
    print(f"from ln({run.vocabulary}) = {np.log(run.vocabulary):.3f}")
    print(write(run, "`TrainError`. The ", 400))


if __name__ == "__main__":
    main()
