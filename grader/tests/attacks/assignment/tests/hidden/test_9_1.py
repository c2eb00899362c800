from __future__ import annotations

import numpy as np
import pytest

from grader import expect

SECRET_OF_THIS_TEST = 271828


@pytest.mark.parametrize("size", [3, 5])
def test_random(student, rng, size):
    """Random arrays are doubled."""
    x = rng.standard_normal(size).astype(np.float32)
    expect.close(student.call("9.1", x), 2 * x)
