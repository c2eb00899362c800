"""Norms that take their statistics from the row itself: layer, RMS, instance, group.

    y[i, j] = (x[i, j] - m[i]) * r[i] * scale[j] + bias[j]
    m[i] = mean of x[i],  r[i] = 1 / sqrt(mean of (x[i] - m[i])**2 + epsilon)

    step                    an element of y: loads and stores of memory
    an op, a kernel         9 loads, 5 stores                mean, sub, mul, mean, div, mul, add
    a row at a time         1 load of x, of scale, of bias,  three passes over a row that is in the
                            1 store                          first cache; x - m is computed twice
    vectorise               … / lanes
    sums in vectors         the same                         see reduction.py
    reciprocal              the same                         one division and one root a row

Two passes for the variance: the difference of two means of squares cancels. The loops are those of
rows.py. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from minidlc.schedules.rows import row_implementations

NORM = row_implementations("norm")
