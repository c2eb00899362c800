"""Which submissions look alike: fingerprints of token sequences, names left out.

    pairs = compare({"ada": source, "bob": source}, base=released_source)
    pairs[0].share                                  # 0.83 of the shorter one's fingerprints

Winnowing: S. Schleimer, D. Wilkerson, A. Aiken, "Winnowing: local algorithms for document
fingerprinting", SIGMOD 2003. Renaming, comments, blank lines and order of functions do not hide a
copy; what the release gave to all is left out. It points at pairs to read, it proves nothing.
"""

from __future__ import annotations

import io
import itertools
import keyword
import tokenize
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.files import put
from grader.notebook import SubmissionError, find, instructor, read
from grader.release import blank
from grader.reports.klass import csv_text
from grader.scheduler import find_submissions

GRAM = 12  # tokens of one fingerprint: shorter sequences are alike by chance
WINDOW = 8  # of each so many fingerprints in a row, one is kept
MIN_PRINTS = 8  # a shorter text says nothing

_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Pair:
    """Two students and what part of the shorter text's fingerprints both have."""

    first: str
    second: str
    share: float
    common: int


def compare(sources: Mapping[str, str], base: str = "", least: float = 0.5) -> list[Pair]:
    """The pairs that share at least `least`, the most alike first."""
    known = set(_grams(tokens(base)))
    prints = {name: fingerprints(text) - known for name, text in sources.items()}
    long = {name: found for name, found in prints.items() if len(found) >= MIN_PRINTS}
    pairs: list[Pair] = []
    for first, second in itertools.combinations(sorted(long), 2):
        common = len(long[first] & long[second])
        share = common / min(len(long[first]), len(long[second]))
        if share >= least:
            pairs.append(Pair(first, second, round(share, 2), common))
    return sorted(pairs, key=lambda p: (-p.share, -p.common, p.first, p.second))


def fingerprints(source: str) -> set[int]:
    """The winnowed hashes of a Python text."""
    grams = _grams(tokens(source))
    if len(grams) <= WINDOW:
        return set(grams)
    return {min(grams[i : i + WINDOW]) for i in range(len(grams) - WINDOW + 1)}


def _grams(words: list[str]) -> list[int]:
    """A hash of every sequence of GRAM tokens; crc32 is the same in every process."""
    runs = (" ".join(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1))
    return [zlib.crc32(run.encode()) for run in runs]


def tokens(source: str) -> list[str]:
    """Tokens without layout and comments; names, texts and docstrings by their kind alone."""
    return list(_words(source))


def _words(source: str) -> Iterable[str]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in _LAYOUT:
                continue
            if token.type == tokenize.STRING:
                yield "text"
            elif token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                yield "name"
            else:
                yield token.string
    except (tokenize.TokenError, SyntaxError):
        return  # what stands before the fault is compared


def write_pairs(submissions: Path, assignment: Path, out: Path) -> list[Path]:
    """Compare all submissions of a folder; writes `similarity.csv`, most alike first.

    What the release gives to everybody does not count. Raises SubmissionError if none can be read.
    """
    known = instructor(assignment)
    base = "\n".join(blank(cell.source) for cell in known.cells if cell.code)
    sources: dict[str, str] = {}
    for student, path in find_submissions(submissions, assignment.name).items():
        try:
            cells = read(find(path, assignment.name)).cells
        except SubmissionError:
            continue  # `grade` names it
        sources[student] = "\n".join(cell.source for cell in cells if cell.code and not cell.grade)
    if not sources:
        raise SubmissionError(f"{submissions}: none of the submissions there can be read")
    rows = [["first", "second", "share", "common fingerprints"]]
    pairs = compare(sources, base)
    rows += [[p.first, p.second, f"{p.share:.2f}", str(p.common)] for p in pairs]
    return [put(out / "similarity.csv", csv_text(rows))]
