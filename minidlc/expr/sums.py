"""How a sum of integer terms is written, so that Python reads the same sum back.

    print_sum([("io", 14, False), ("ii", 1, False)], -1)        # '14*io + ii - 1'
    print_sum([("jo", -14, False)], 127)                        # '127 - 14*jo'
    print_sum([("i//4", -1, True)], 0)                          # '-(i//4)', never (-i)//4

Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Sequence


def print_sum(terms: Sequence[tuple[str, int, bool]], const: int) -> str:
    """Text of `k1*term1 + k2*term2 + … + const`; a term is (text, k, whether it is a // or %).

    Largest factors first, then by name, the constant last; a positive part leads if there is one.
    """
    ordered = sorted(terms, key=lambda term: (-abs(term[1]), term[0]))
    parts = [(_product(text, k, division), k > 0) for text, k, division in ordered]
    if const or not parts:
        parts.append((str(abs(const)), const >= 0))
    lead = next((n for n, (_, positive) in enumerate(parts) if positive), 0)
    parts.insert(0, parts.pop(lead))
    text, positive = parts[0]
    if not positive:
        bare = ordered and ordered[0][1] == -1 and ordered[0][2]
        text = f"-({text})" if bare else f"-{text}"
    return text + "".join(f" {'+' if positive else '-'} {t}" for t, positive in parts[1:])


def _product(text: str, k: int, division: bool) -> str:
    """|k| times a term; // and % bind like *, so a factor needs parentheses around them."""
    if abs(k) == 1:
        return text
    return f"{abs(k)}*({text})" if division else f"{abs(k)}*{text}"


def print_dividend(text: str) -> str:
    """The left side of // or %: only a plain variable goes without parentheses."""
    return text if text.isidentifier() else f"({text})"
