# task: 9.1
# deserves: 0
# status: oom
import numpy as np


def double(x):
    # Never written to: filling the memory that is allowed takes longer than the deadline on a slow machine.
    return [np.empty(64 << 20, np.uint8) for _ in range(50)] and x
