"""docs/errors.md explains every error code of the source, and no other."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from minidlc.support import errors

ROOT = Path(errors.__file__).parents[1]
DOCS = ROOT / "docs" / "errors.md"
CLASSES = {
    name: value.default_code[:6]
    for name, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, errors.CompileError)
}


def codes_in_source() -> dict[str, str]:
    """Each code with one file that uses it; some files write "0307" and add MDLC in a helper."""
    found: dict[str, str] = {}
    for path in sorted(ROOT.rglob("*.py")):
        if "tests" not in path.relative_to(ROOT).parts:
            text = path.read_text(encoding="utf-8")
            digits = re.findall(r"\bMDLC(\d{4})\b", text)
            if 'f"MDLC{code}"' in text:
                digits += re.findall(r'"(\d{4})"', text)
            for number in digits:
                found.setdefault(f"MDLC{number}", str(path.relative_to(ROOT)))
    return found


def sections() -> dict[str, str]:
    """Each `## MDLCnnnn` of docs/errors.md with the text below it."""
    parts = re.split(r"^## +(\S+)[ \t]*$", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {parts[i]: parts[i + 1].strip() for i in range(1, len(parts), 2)}


def test_every_code_of_the_source_is_explained() -> None:
    explained = sections()
    missing = {code: path for code, path in codes_in_source().items() if code not in explained}
    assert not missing, f"codes without a heading in docs/errors.md: {missing}"


def test_every_explained_code_is_in_the_source() -> None:
    stale = sections().keys() - codes_in_source().keys()
    assert not stale, f"headings of docs/errors.md whose code nothing raises: {sorted(stale)}"


def test_codes_are_explained_once_and_in_order() -> None:
    headings = re.findall(r"^## +(\S+)", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings == sorted(set(headings))


@pytest.mark.parametrize("code", sorted(sections()))
def test_section_names_the_class_of_its_range(code: str) -> None:
    text = sections()[code]
    first = re.match(r"`(\w+)`\. ", text)
    assert first, f"the section of {code} begins with the class: `TypeRuleError`. ..."
    assert first[1] in CLASSES, f"{first[1]} is no class of support/errors.py"
    assert code.startswith(CLASSES[first[1]]), f"{code} is outside the range of {first[1]}"
    assert len(text.split()) >= 15, f"{code}: a paragraph says what it means and what to do"
