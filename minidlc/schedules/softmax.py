"""Softmax: a maximum, exponentials, their sum, a quotient; all for one row before the next.

    m[i] = max of x[i]; e[i, j] = exp(x[i, j] - m[i]); s[i] = sum of e[i]; y[i, j] = e[i, j] / s[i]

    step               an element of y: loads, stores, divisions
    naive              4 loads of memory, 2 stores, 1        four passes, e as large as x
    a row at a time    2 loads of memory, 1 store, 1         e is one row, on the stack
    vectorise          … / lanes                             rows of e are whole vectors: a masked
                                                             store would not forward to the load of
                                                             the next pass
    sums in vectors    the same                              see reduction.py
    reciprocal         0 divisions, 1 a row                  y = e * r with r = 1 / s

The loops are those of rows.py, which also has softmax over an axis that memory runs across.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from minidlc.schedules.rows import row_implementations

SOFTMAX = row_implementations("softmax")
