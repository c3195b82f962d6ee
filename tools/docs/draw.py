#!/usr/bin/env python3
"""Draws the pictures of the documents: docs/pictures/NAME.svg from the text in docs/pictures/NAME.txt.

    draw.py              draws every picture
    draw.py --check      draws nothing, and fails if a picture is out of date

A source can be read as it stands. It has statements at the left margin, each with indented lines below it:

    # COMMENT
    picture 900x480  TITLE            the size, and the title; the lines below describe the picture to a screen reader
    KIND NAME X,Y WxH                 a box; its first line is the heading
    note X,Y [middle|right]           text without a box
    move BOX.SIDE -> BOX.SIDE         an arrow along which goroutines move; the lines below are its label
    act BOX.SIDE -> BOX.SIDE          an arrow from a thread to the thing that it acts on, dashed
    link BOX.SIDE -> BOX.SIDE         a line

KIND is a key of KINDS. SIDE is left, right, top or bottom, and @0.3 behind it means the point at 30 % of that side.
Without the @ that end slides along the side to make the arrow straight. An end may also be a point X,Y. Behind its ends
an arrow has "via X,Y X,Y" for its corners, if it has any, and "at X,Y [middle|right]" for its label.

In a line of text, `x` is code, (7) is goroutine 7, ( ) an empty place in a queue, [M 1] a thread and {P 1} a P. The last
four are drawn as chips: circles and small boxes. Two or more spaces behind a text lead to the next column of the box.

The script measures each text with the widest font that readers have. It fails if a text does not fit into its box, and
if two texts, two boxes, or an arrow and a text overlap. It depends on nothing but the source, so a picture is the same
wherever it is drawn.
"""

import argparse
import collections
import pathlib
import re
import sys
from xml.sax.saxutils import escape

PICTURES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pictures"

SIZE, SMALL, HEADING, TITLE = 11.5, 9.5, 12, 16  # of text
LINE, CHIP_LINE, GAP, HEADING_GAP = 15, 22, 7, 2  # heights: a line, one with chips, an empty one; below a heading
PAD_X, PAD_Y = 10, 7
COLUMN, SPACE = 52, 14  # width of a column in a box; space between the parts of a line where there are no columns
CHIP, PITCH = 8.5, 20  # radius of a goroutine, and the distance between two
CORNER, HEAD = 8, 7  # radius of an arrow's corner, length of its head

# The kinds of box. The colours are fill and line, in the light and in the dark; radius is that of the corners. The line
# may be dashed, the text may stand in the middle.
Kind = collections.namedtuple("Kind", "light dark radius dashed middle", defaults=(False, False))
KINDS = {
    "band": Kind(("#f3f5f7", "#dde2e7"), ("#191f26", "#2d3640"), 8),
    "shared": Kind(("#eef0f2", "#98a4af"), ("#20262c", "#66727e"), 8),
    "queue": Kind(("#ffffff", "#b9c4ce"), ("#11161b", "#46525e"), 6),
    "p": Kind(("#e6f2f1", "#4d9690"), ("#132a2a", "#4d9690"), 8),
    "thread": Kind(("#fbf0dc", "#c98f2b"), ("#2e2413", "#b98632"), 8),
    "foreign": Kind(("#fdf8ee", "#c98f2b"), ("#211b10", "#b98632"), 8, True),
    "cycle": Kind(("#f4eff8", "#9b7fb5"), ("#231b2b", "#8d70a8"), 8),
    "kernel": Kind(("#eceef0", "#eceef0"), ("#20262c", "#20262c"), 6, False, True),
    "ended": Kind(("#f3f5f7", "#98a4af"), ("#191f26", "#66727e"), 24, False, True),
    "runnable": Kind(("#e6f2f1", "#4d9690"), ("#132a2a", "#4d9690"), 24, False, True),
    "running": Kind(("#fbf0dc", "#c98f2b"), ("#2e2413", "#b98632"), 24, False, True),
    "waiting": Kind(("#eef0f2", "#98a4af"), ("#20262c", "#66727e"), 24, False, True),
}
INK = {  # the colours in the light and in the dark
    "page": ("#ffffff", "#0d1117"), "edge": ("#e3e7eb", "#262d35"), "text": ("#24303b", "#dfe5ea"),
    "faint": ("#5d6b78", "#97a3ae"), "go": ("#2f6fa8", "#4f8fc9"), "act": ("#a8721a", "#d0a04a"),
    "on": ("#ffffff", "#ffffff"), "hollow": ("#a9b8c6", "#4a5865"),
}
# Widths of DejaVu Sans in ems. It is wider than Arial, Helvetica and Inter.
WIDTHS = {c: w for w, cs in {
    0.28: "'ijl", 0.3: "IJ", 0.33: " ,.·", 0.34: "/:;\\|", 0.36: "f-", 0.39: "()[]t", 0.41: "!r", 0.46: '"', 0.5: "*_–",
    0.53: "sz?", 0.56: "cL", 0.59: "vxyFk", 0.61: "PTYaoe", 0.64: "ESbdghnpqu$0123456789{}µ", 0.69: "KAVBRXZC",
    0.76: "HNDGU", 0.79: "OQ&", 0.84: "w#+<=>^~→", 0.98: "M%mW@…—"}.items() for c in cs}
CODE_WIDTH, BOLD = 0.602, 1.14
TOKEN = re.compile(r"`(?P<code>[^`]+)`|\((?P<chip>[ 0-9G]{1,2})\)|\[(?P<thread>[^]]+)\]|\{(?P<p>[^}]+)\}|(?P<tab> {2,})"
                   r"|(?P<text>(?:(?! {2})[^`([{]|\((?![ 0-9G]{1,2}\)))+)")

Rect = collections.namedtuple("Rect", "x y w h")
End = collections.namedtuple("End", "point slides side")  # of an arrow; it slides along the side if no @ gives its place
Arrow = collections.namedtuple("Arrow", "style points where")


class Mistake(Exception):
    """A source that cannot be read."""


class Box:
    def __init__(self, kind, name, rect):
        self.kind, self.name, self.rect = kind, name, Rect(*rect)

    def point(self, side, share):
        x, y, w, h = self.rect
        return {"left": (x, y + h * share), "right": (x + w, y + h * share),
                "top": (x + w * share, y), "bottom": (x + w * share, y + h)}[side]


class Text:
    """A line of text. Its left end, its middle or its right end is at x."""

    def __init__(self, words, x, y, anchor="left", size=SIZE, bold=False, ink="text", columns=False):
        self.words, self.x, self.y, self.size, self.bold, self.ink = words, x, y, size, bold, ink
        self.tokens = [(m.lastgroup, m[m.lastgroup]) for m in TOKEN.finditer(words)]
        self.chips = any(kind in ("chip", "thread", "p") for kind, _ in self.tokens)
        self.columns = columns
        self.width = self.lay_out(None)
        self.x -= {"left": 0, "middle": self.width / 2, "right": self.width}[anchor]
        # Text without chips and columns is placed by the browser, which knows the widths of its font.
        alone = all(kind in ("text", "code") for kind, _ in self.tokens)
        self.given, self.anchor = (x, anchor) if alone else (self.x, "left")

    def rect(self):
        return Rect(self.x, self.y - self.size, self.width, self.size * 1.3)

    def lay_out(self, out):
        """Appends the elements to out, unless that is None. Returns the width."""
        x, run, start = 0.0, [], 0.0

        def end_run():
            if run and out is not None:
                place = {"left": "", "middle": ' text-anchor="middle"', "right": ' text-anchor="end"'}[self.anchor]
                out.append(f'<text x="{num(self.given + start)}" y="{num(self.y)}" font-size="{num(self.size)}"{place}'
                           f' class="ink-{self.ink}{" bold" if self.bold else ""}">{"".join(run)}</text>')
            run.clear()

        before = ""
        for kind, value in self.tokens:
            if kind == "text":
                if not run:
                    start = x
                run.append(escape(value))
                x += sum(WIDTHS.get(c, 0.7) for c in value) * self.size * (BOLD if self.bold else 1)
            elif kind == "code":
                if not run:
                    start = x
                run.append(f'<tspan class="code" font-size="{num(self.size - 0.5)}">{escape(value)}</tspan>')
                x += len(value) * CODE_WIDTH * (self.size - 0.5)
            else:
                end_run()
                if kind == "tab":
                    x = (x // COLUMN + 1) * COLUMN if self.columns and before == "text" else x + SPACE
                elif kind == "chip":
                    if out is not None:
                        out += chip(self.x + x + CHIP, self.y - 4, value.strip())
                    x += PITCH
                else:
                    w = len(value) * 6.6 + 10
                    if out is not None:
                        out += pill(self.x + x, self.y - 4, w, value, kind)
                    x += w + 4
            before = kind
        end_run()
        return x


def num(x):
    return f"{x:.1f}".rstrip("0").rstrip(".")


def chip(x, y, value):
    if not value:
        return [f'<circle cx="{num(x)}" cy="{num(y)}" r="{CHIP - 0.7}" class="hollow"/>']
    return [f'<circle cx="{num(x)}" cy="{num(y)}" r="{CHIP}" class="goroutine"/>',
            f'<text x="{num(x)}" y="{num(y + 3.4)}" font-size="{SMALL}" text-anchor="middle" class="ink-on bold">'
            f"{value}</text>"]


def pill(x, y, w, value, kind):
    return [f'<rect x="{num(x)}" y="{num(y - 8.5)}" width="{num(w)}" height="17" rx="4" class="{kind}-pill"/>',
            f'<text x="{num(x + w / 2)}" y="{num(y + 3.6)}" font-size="10" text-anchor="middle" class="ink-text bold">'
            f"{escape(value)}</text>"]


class Picture:
    """A source that has been read."""

    def __init__(self, path):
        self.path, self.boxes, self.arrows, self.texts, self.problems = path, {}, [], [], []
        self.size, self.title, self.about = (0, 0), "", []
        statement = []
        for number, line in enumerate(path.read_text().splitlines() + ["#"], 1):
            if line.startswith((" ", "\t")) or not line.strip():
                if statement:
                    statement.append(line.strip())
                continue
            if statement:
                self.read(*statement)
            statement = [] if line.startswith("#") else [number, line.split("  #")[0].rstrip()]

    def read(self, number, head, *lines):
        self.where = f"{self.path.name}:{number}"
        while lines and not lines[-1]:
            lines = lines[:-1]
        word = head.split()[0]
        if word == "picture":
            m = self.match(r"picture (\d+)x(\d+)\s+(.*)", head)
            self.size, self.title, self.about = (int(m[1]), int(m[2])), m[3], lines
            self.texts.append(Text(self.title, 20, 32, size=TITLE, bold=True))
        elif word == "note":
            m = self.match(r"note (\d+),(\d+)(?: (middle|right))?", head)
            self.put_lines(lines, float(m[1]), float(m[2]), m[3] or "left", ink="faint")
        elif word in ("move", "act", "link"):
            self.read_arrow(word, head, lines)
        elif word in KINDS:
            m = self.match(r"\w+ (\w+) (\d+),(\d+) (\d+)x(\d+)", head)
            box = self.boxes[m[1]] = Box(word, m[1], map(int, m.groups()[1:]))
            self.fill(box, lines)
        else:
            raise Mistake(f"{self.where}: what is {word}?")

    def problem(self, text):
        self.problems.append(f"{self.where}: {text}")

    def match(self, pattern, text):
        m = re.fullmatch(pattern, text)
        if not m:
            raise Mistake(f"{self.where}: cannot read {text!r}")
        return m

    def put_lines(self, lines, x, y, anchor="left", first_bold=False, ink="text", columns=False):
        """Returns the y below the last line."""
        chips = False  # in the line above
        for i, line in enumerate(lines):
            if not line:
                y += GAP
                continue
            bold = first_bold and i == 0
            text = Text(line, x, y, anchor, HEADING if bold else SIZE, bold, ink, columns)
            height = CHIP_LINE if text.chips else LINE
            y += GAP / 2 if chips and not text.chips else 0
            chips = text.chips
            text.y = y + height - (7.5 if text.chips else 4.5)
            self.texts.append(text)
            y += height + (HEADING_GAP if bold else 0)
        return y

    def fill(self, box, lines):
        x, y, w, h = box.rect
        middle = KINDS[box.kind].middle
        first = len(self.texts)
        if middle:
            height = sum(GAP if not line else CHIP_LINE if Text(line, 0, 0).chips else LINE for line in lines)
            bottom = self.put_lines(lines, x + w / 2, y + (h - height) / 2, "middle", box.kind != "kernel")
        else:
            bottom = self.put_lines(lines, x + PAD_X, y + PAD_Y, "left", True, columns=True)
        room = w - 2 * (6 if middle else PAD_X)
        for text in self.texts[first:]:
            if text.width > room + 0.5:
                self.problem(f"{text.words!r} is {text.width - room:.0f} too wide")
        if bottom > y + h - 2:
            self.problem(f"{box.name} is {bottom - y - h + 2:.0f} too low")

    def read_arrow(self, style, head, lines):
        m = self.match(r"\w+ (\S+) -> (\S+)(?: via ((?:\d+,\d+ ?)+))?(?: ?at (\d+),(\d+)(?: (middle|right))?)?", head)
        start, end = self.end_of_arrow(m[1]), self.end_of_arrow(m[2])
        points = [start.point, *(tuple(map(float, p.split(","))) for p in (m[3] or "").split()), end.point]
        if start.slides:
            points[0] = in_line(start, points[1])
        if end.slides and (m[3] or not start.slides):
            points[-1] = in_line(end, points[-2])
        for (x1, y1), (x2, y2) in zip(points, points[1:]):
            if abs(x1 - x2) > 0.1 and abs(y1 - y2) > 0.1:
                self.problem(f"{num(x1)},{num(y1)} to {num(x2)},{num(y2)} is a slope")
        self.arrows.append(Arrow(style, points, self.where))
        if lines:
            if not m[4]:
                raise Mistake(f"{self.where}: the label needs a place")
            self.put_lines(lines, float(m[4]), float(m[5]), m[6] or "left", ink="go" if style == "move" else "act")

    def end_of_arrow(self, text):
        if m := re.fullmatch(r"(\d+),(\d+)", text):
            return End((float(m[1]), float(m[2])), False, "")
        m = self.match(r"(\w+)\.(left|right|top|bottom)(?:@([\d.]+))?", text)
        if m[1] not in self.boxes:
            raise Mistake(f"{self.where}: no box {m[1]}")
        return End(self.boxes[m[1]].point(m[2], float(m[3] or 0.5)), m[3] is None, m[2])

    def check(self):
        self.where = self.path.name
        boxes = list(self.boxes.values())
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                if overlap(a.rect, b.rect) and not inside(a.rect, b.rect):
                    self.problem(f"{a.name} lies on {b.name}")
        for i, a in enumerate(self.texts):
            for b in self.texts[:i]:
                if overlap(a.rect(), b.rect()):
                    self.problem(f"{a.words!r} lies on {b.words!r}")
            r = a.rect()
            if r.x < 8 or r.y < 4 or r.x + r.w > self.size[0] - 8 or r.y + r.h > self.size[1] - 4:
                self.problem(f"{a.words!r} is outside of the picture")
            for box in self.boxes.values():
                if overlap(r, box.rect) and not inside(r, box.rect):
                    self.problem(f"{a.words!r} crosses the edge of {box.name}")
            for arrow in self.arrows:
                for (x1, y1), (x2, y2) in zip(arrow.points, arrow.points[1:]):
                    line = Rect(min(x1, x2) - 1, min(y1, y2) - 1, abs(x1 - x2) + 2, abs(y1 - y2) + 2)
                    if overlap(r, line):
                        self.problem(f"the arrow of line {arrow.where.split(':')[1]} lies on {a.words!r}")

    def svg(self):
        self.check()
        w, h = self.size
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img">',
               f"<title>{escape(self.title)}</title>", f'<desc>{escape(" ".join(self.about))}</desc>', style(),
               f'<rect x="0.5" y="0.5" width="{w - 1}" height="{h - 1}" rx="12" class="page"/>']
        for box in self.boxes.values():
            x, y, bw, bh = box.rect
            out.append(f'<rect x="{x}" y="{y}" width="{bw}" height="{bh}" rx="{KINDS[box.kind].radius}"'
                       f' class="{box.kind}"/>')
        for arrow in self.arrows:
            out += draw_arrow(arrow)
        for text in self.texts:
            text.lay_out(out)
        out.append("</svg>\n")
        return "\n".join(out)


def in_line(end, point):
    """The point of end, slid along its side until it is in line with point."""
    return (point[0], end.point[1]) if end.side in ("top", "bottom") else (end.point[0], point[1])


def overlap(a, b):
    return a.x < b.x + b.w and b.x < a.x + a.w and a.y < b.y + b.h and b.y < a.y + a.h


def inside(a, b):
    return a.x >= b.x and a.y >= b.y and a.x + a.w <= b.x + b.w and a.y + a.h <= b.y + b.h


def draw_arrow(arrow):
    points = arrow.points
    (x1, y1), (x2, y2) = points[-2:]
    length = max(abs(x2 - x1), abs(y2 - y1))
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    tip = (x2 - 2 * dx, y2 - 2 * dy)
    base = (tip[0] - HEAD * dx, tip[1] - HEAD * dy)
    path = f"M{num(points[0][0])} {num(points[0][1])}"
    for before, corner, after in zip(points, points[1:], points[2:]):
        a, b = toward(corner, before), toward(corner, after)
        path += f"L{num(a[0])} {num(a[1])}Q{num(corner[0])} {num(corner[1])} {num(b[0])} {num(b[1])}"
    if arrow.style == "link":
        return [f'<path d="{path}L{num(x2)} {num(y2)}" class="line link"/>']
    path += f"L{num(base[0])} {num(base[1])}"
    left = (base[0] - 3.8 * dy, base[1] + 3.8 * dx)
    right = (base[0] + 3.8 * dy, base[1] - 3.8 * dx)
    head = "L".join(f"{num(x)} {num(y)}" for x, y in (tip, left, right))
    return [f'<path d="{path}" class="line {arrow.style}"/>', f'<path d="M{head}Z" class="{arrow.style}-head"/>']


def toward(corner, other):
    (x, y), (ox, oy) = corner, other
    length = max(abs(ox - x), abs(oy - y))
    step = min(CORNER, length / 2)
    return x + (ox - x) / length * step, y + (oy - y) / length * step


def rules(side):
    """The colours: side is 0 for light and 1 for dark."""
    ink = {name: pair[side] for name, pair in INK.items()}
    yield f".page{{fill:{ink['page']};stroke:{ink['edge']}}}"
    for name in ("text", "faint", "go", "act", "on"):
        yield f".ink-{name}{{fill:{ink[name]}}}"
    for name, kind in KINDS.items():
        fill, line = (kind.light, kind.dark)[side]
        yield f".{name}{{fill:{fill};stroke:{line}}}"
        if name in ("thread", "p"):
            yield f".{name}-pill{{fill:{fill};stroke:{line}}}"
    yield f".goroutine{{fill:{ink['go']}}}.hollow{{fill:none;stroke:{ink['hollow']}}}"
    yield f".move{{stroke:{ink['go']}}}.move-head{{fill:{ink['go']}}}"
    yield f".link{{stroke:{ink['hollow']}}}"
    yield f".act{{stroke:{ink['act']}}}.act-head{{fill:{ink['act']}}}"


def style():
    dashed = "".join(f".{name}{{stroke-dasharray:4 3}}" for name, kind in KINDS.items() if kind.dashed)
    return "\n".join([
        "<style>",
        'text{font-family:Inter,"Helvetica Neue",Helvetica,Arial,"Liberation Sans","DejaVu Sans",sans-serif}',
        '.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}',
        ".bold{font-weight:600}.line{fill:none;stroke-width:1.6}",
        ".act{stroke-dasharray:5 3}.hollow{stroke-dasharray:2 2}",
        dashed, *rules(0), "@media (prefers-color-scheme:dark){", *rules(1), "}", "</style>"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    problems = []
    sources = sorted(PICTURES.glob("*.txt"))
    for source in sources:
        target = source.with_suffix(".svg")
        try:
            picture = Picture(source)
            svg = picture.svg()
            problems += picture.problems
        except Mistake as mistake:
            problems.append(str(mistake))
            continue
        if not check:
            target.write_text(svg)
        elif not target.exists() or target.read_text() != svg:
            problems.append(f"{target.name} is out of date: run tools/docs/draw.py")
    for picture in sorted(PICTURES.glob("*.svg")):
        # tools/bench/peers/page.py draws the others.
        if not picture.with_suffix(".txt").exists() and not picture.name.startswith("comparison-"):
            problems.append(f"{picture.name} has no source")
    for problem in problems:
        print(problem)
    print(f"draw: {len(sources)} pictures, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
