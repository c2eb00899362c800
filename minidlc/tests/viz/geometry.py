"""Reading a picture back from its SVG: where boxes, labels and lines are, and what is legible."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field

from minidlc.viz.drawing import SLIDE, SMALLEST, text_width

NS = "{http://www.w3.org/2000/svg}"
Area = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Word:
    text: str
    size: float
    area: Area


@dataclass
class Seen:
    """What stands in an SVG, by the class of the group it is in ('' outside of groups)."""

    width: float
    height: float
    words: dict[str, list[Word]] = field(default_factory=dict)
    areas: dict[str, list[Area]] = field(default_factory=dict)  # of whole groups
    bodies: list[Area] = field(default_factory=list)  # of boxes, without the marks around them
    lines: list[list[tuple[float, float]]] = field(default_factory=list)  # sampled edges

    @property
    def all_words(self) -> list[Word]:
        return [w for words in self.words.values() for w in words]

    def pixels(self, word: Word) -> float:
        """Size of a label on a slide 1920 pixels wide."""
        return word.size * SLIDE / self.width


def read_svg(svg: str) -> Seen:
    root = ET.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    seen = Seen(width, height)
    _read(root, "", seen)
    return seen


def _read(element: ET.Element, kind: str, seen: Seen) -> None:
    for child in element:
        match child.tag.removeprefix(NS):
            case "g":
                inner = child.get("class") or kind
                _read(child, inner, seen)
                areas = [_area(r) for r in child.iter(f"{NS}rect")]
                if child.get("class") and areas:
                    seen.areas.setdefault(inner, []).append(union(areas))
                if child.get("class") == "box":
                    seen.bodies.append(union([_area(r) for r in child if _is_body(r)]))
            case "text":
                seen.words.setdefault(kind, []).append(_word(child))
            case "path" if kind == "edge":
                seen.lines.append(list(_samples(child.attrib["d"])))


def _is_body(shape: ET.Element) -> bool:
    """True for what has a filling and an outline: neither a ring nor a sign."""
    filled = shape.get("fill", "none") != "none"
    return shape.tag == f"{NS}rect" and filled and shape.get("stroke") is not None


def _area(rect: ET.Element) -> Area:
    x, y, w, h = (float(rect.get(k, 0)) for k in ("x", "y", "width", "height"))
    return x, y, x + w, y + h


def _word(text: ET.Element) -> Word:
    size, content = float(text.attrib["font-size"]), text.text or ""
    bold, mono = "font-weight" in text.attrib, "Mono" in text.attrib["font-family"]
    width = text_width(content, size, bold=bold, mono=mono)
    x, y = float(text.attrib["x"]), float(text.attrib["y"])
    x -= width * {"middle": 0.5, "end": 1.0}.get(text.get("text-anchor", ""), 0.0)
    return Word(content, size, (x, y - 0.76 * size, x + width, y + 0.2 * size))


def _samples(path: str) -> Iterator[tuple[float, float]]:
    """Points along a path of one M and one C or L command."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", path)]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    if "C" not in path:
        for (ax, ay), (bx, by) in itertools.pairwise(points):
            yield from ((ax + (bx - ax) * t / 20, ay + (by - ay) * t / 20) for t in range(21))
        return
    for i in range(0, len(points) - 3, 3):
        a, b, c, d = points[i : i + 4]
        for n in range(21):
            t = n / 20
            u = 1 - t
            weights = (u**3, 3 * u * u * t, 3 * u * t * t, t**3)
            yield (
                sum(w * p[0] for w, p in zip(weights, (a, b, c, d), strict=True)),
                sum(w * p[1] for w, p in zip(weights, (a, b, c, d), strict=True)),
            )


def union(areas: list[Area]) -> Area:
    left, top, right, bottom = zip(*areas, strict=True)
    return min(left), min(top), max(right), max(bottom)


def meet(a: Area, b: Area, slack: float = 0.0) -> bool:
    """True if two areas share more than a rim of `slack`."""
    across = min(a[2], b[2]) - max(a[0], b[0]) > slack
    return across and min(a[3], b[3]) - max(a[1], b[1]) > slack


def inside(point: tuple[float, float], area: Area, rim: float = 0.0) -> bool:
    x, y = point
    return area[0] + rim < x < area[2] - rim and area[1] + rim < y < area[3] - rim


# what every picture of a graph must keep


def check_legible(seen: Seen) -> None:
    """All that follows."""
    check_labels_are_large_enough(seen)
    check_boxes_do_not_overlap(seen)
    check_frames(seen)
    check_free_labels(seen)
    check_text_stays_in_its_box(seen)
    check_lines_do_not_run_through_boxes(seen)
    check_everything_is_on_the_page(seen)


def check_labels_are_large_enough(seen: Seen) -> None:
    assert seen.all_words
    assert min(seen.pixels(w) for w in seen.all_words) >= SMALLEST
    assert seen.width <= SLIDE


def check_boxes_do_not_overlap(seen: Seen) -> None:
    for a, b in itertools.combinations(seen.areas["box"], 2):
        assert not meet(a, b), (a, b)


def check_frames(seen: Seen) -> None:
    """Frames lie beside each other or in each other, and hold their boxes whole."""
    frames = seen.areas.get("frame", [])
    for a, b in itertools.combinations(frames, 2):
        within = inside(b[:2], a) and inside(b[2:], a)  # outer frames are painted first
        assert within or not meet(a, b)
    for frame, box in itertools.product(frames, seen.areas["box"]):
        middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        if meet(frame, box):
            assert inside(middle, frame)
            assert frame[0] <= box[0]
            assert box[2] <= frame[2]


def check_free_labels(seen: Seen) -> None:
    """Labels outside of boxes cross neither boxes nor each other nor lines."""
    free = [w for w in seen.words[""] if w.size < 18]
    headlines = seen.words.get("headline", [])
    for a, b in itertools.combinations([*free, *headlines], 2):
        assert not meet(a.area, b.area), (a.text, b.text)
    for word, box in itertools.product([*free, *headlines], seen.areas["box"]):
        assert not meet(word.area, box), word.text
    for line in seen.lines:
        around = union([(*p, *p) for p in line])
        for word in free:
            near = meet(around, word.area, -1)
            assert not near or not any(inside(p, word.area) for p in line), word.text


def check_text_stays_in_its_box(seen: Seen) -> None:
    for word in seen.words["box"]:
        middle = ((word.area[0] + word.area[2]) / 2, (word.area[1] + word.area[3]) / 2)
        box = next(a for a in seen.areas["box"] if inside(middle, a))
        assert box[0] <= word.area[0], word.text
        assert word.area[2] <= box[2], word.text


def check_lines_do_not_run_through_boxes(seen: Seen) -> None:
    for line in seen.lines:
        around = union([(*p, *p) for p in line])
        for box in seen.bodies:
            near = meet(around, box, -1)  # a straight line has no area
            assert not near or not any(inside(p, box, 4) for p in line), box


def check_everything_is_on_the_page(seen: Seen) -> None:
    page = (0.0, 0.0, seen.width, seen.height)
    for word in seen.all_words:
        assert inside(word.area[:2], page)
        assert inside(word.area[2:], page)
    assert all(inside(p, page) for line in seen.lines for p in line)
