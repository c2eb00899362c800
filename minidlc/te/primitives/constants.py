"""The primitive for what is known at compile time: a stage of weights is computed once, ahead.

    Prepack("B_p").apply(state)                 # B_p becomes a parameter of the loops
    lower(sch), lower_init(sch)                 # the loops of each call; those that run once

Reads and writes `State`. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minidlc.te.placement import check_placement
from minidlc.te.primitive import Primitive, register
from minidlc.te.stage import State


@register("prepack")
@dataclass(frozen=True)
class Prepack(Primitive):
    """Compute a stage of constants once, at compile time; the loops get it as a parameter.

    Before:                               After `prepack("B_p")`, the loops of a call:

        def f(A, B, C):                       def f(A, B_p, C):
            B_p = alloc(f32[2, 8, 32])            for j in serial(0, 64):
            …  B_p[i1o, i0, i1i] = B[…]               …  C[j] = C[j] + A[k] * B_p[j//32, k, j%32]
            for j in serial(0, 64):
                …  C[j] = C[j] + A[k] * …     and those that run once:

                                              def f_init_B_p(B, B_p):
                                                  …  B_p[i1o, i0, i1i] = B[i0, 32*i1o + i1i]

    Its loops are scheduled as those of any stage. What it needs of other stages is computed there
    too; a prepacked stage may read another one. Which placeholders are constants is said to
    `create_schedule`.
    Refuses: a stage that depends on a placeholder that is no constant (MDLC0628), an output, a
    stage computed at a loop or kept elsewhere than in memory (MDLC0629), one that was inlined.
    """

    def apply(self, state: State) -> State:
        new = state.update(replace(state.stage(self.stage), prepacked=True))
        check_placement(new)
        return new
