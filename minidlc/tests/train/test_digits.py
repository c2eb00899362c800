"""A CNN from nothing: the script of README, the same numbers twice, killed and resumed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minidlc
from minidlc.train.checkpoint import load

pytestmark = [pytest.mark.llvm, pytest.mark.long, pytest.mark.ch03]

README = Path(minidlc.__file__).parents[1] / "README.md"


def script() -> str:
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if "load_digits" in block)
    return found


def run(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "README.md", "exec"), names)
    return names


def test_the_script_of_readme_learns_real_digits(capsys: pytest.CaptureFixture[str]) -> None:
    text = script()
    assert sum(bool(line.strip()) for line in text.split("\n")) <= 25
    run(text)
    (percent,) = re.findall(r"^([\d.]+)% of the test images are right$", capsys.readouterr().out)
    assert float(percent) >= 97


def test_the_same_seed_gives_the_same_numbers_twice() -> None:
    short = script().replace("fit(epochs=12)", "fit(epochs=2)")
    assert short != script()
    first, second = run(short), run(short)
    assert first["step"] is not second["step"]
    assert first["logits"].tobytes() == second["logits"].tobytes()
    got, want = first["step"].state(), second["step"].state()
    assert [(k, v.tobytes()) for k, v in got.items()] == [(k, v.tobytes()) for k, v in want.items()]


TRAINING = """
import sys, time
import numpy as np
import minidlc as mc

def loss(x, y, k, w):
    x = mc.max_pool(mc.relu(mc.conv(x, k, pads=(1, 1, 1, 1))), kernel_shape=(2, 2), strides=(2, 2))
    return mc.train.cross_entropy(mc.flatten(mc.dropout(x, ratio=0.3)[0]) @ w, y)

def noisy(record, rng):
    return record | {"x": record["x"] + rng.normal(0, 0.1, (1, 8, 8)).astype(np.float32)}

def slow(batch):
    time.sleep(0.01)
    return batch

folder, workers, result = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)
x, y = rng.random((336, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 336)
params = {
    "k": rng.normal(0, 0.3, (8, 1, 3, 3)).astype(np.float32),
    "w": rng.normal(0, 0.1, (128, 10)).astype(np.float32),
}
graph = mc.trace(loss, mc.f32[16, 1, 8, 8], mc.i64[16], mc.f32[8, 1, 3, 3], mc.f32[128, 10])
step = mc.compile_train_step(graph, params, mc.train.adam(1e-2), threads=2)
data = mc.train.dataset({"x": x, "y": y}).shuffle(1).map(noisy, seed=2).batch(16).map(slow)
data = data.prefetch(3, workers=workers)
mc.train.Trainer(step, data, folder=folder, every=4).fit(3, resume=True)
mc.train.save(result, step.state())
"""


def training(folder: Path, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", TRAINING, folder, str(workers), folder.with_suffix(".mdlt")]
    return subprocess.Popen(command)


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_killed_and_resumed_is_bit_equal_with_any_number_of_workers(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with training(whole, workers=0) as process:
        assert process.wait() == 0
    for begun, workers in ((2, 1), (9, 2)):  # 63 steps: checkpoints 4, 8, …
        with training(killed, workers) as process:
            until = time.monotonic() + 60
            while not any(int(p.stem[-8:]) >= 4 * begun for p in killed.glob("step-*.mdlt")):
                assert process.poll() is None, "the run ended before it was killed"
                assert time.monotonic() < until
                time.sleep(0.002)
            process.kill()
    with training(killed, workers=2) as process:
        assert process.wait() == 0
    got, want = load(tmp_path / "killed.mdlt").state, load(tmp_path / "whole.mdlt").state
    assert int(want["counters/steps"]) == 63
    assert got.keys() == want.keys()
    for key in want:
        np.testing.assert_array_equal(got[key], want[key], key)
