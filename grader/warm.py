"""What a worker would else compute anew each time; the fork server imports this before it forks.

    import grader.warm                              # the annotations of all ops are resolved

Reading the annotations of an op's attributes costs a millisecond or more an op, and a fresh
process needs them at its first graph. Holds nothing of a test.
"""

from __future__ import annotations

from minidlc.ops import registered_ops
from minidlc.support.options import hints

for _cls in registered_ops().values():
    hints(_cls)
