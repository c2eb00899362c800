"""The machine that code is made for.

    from minidlc import target
    target.host()                                   # this machine, all it can
    target.host(vector_width=8)                     # the same, eight f32 lanes only

Treated in course chapter 05_backend_opt.
"""

from minidlc.target.host import host
from minidlc.target.target import PRECISIONS, Target

__all__ = ["PRECISIONS", "Target", "host"]
