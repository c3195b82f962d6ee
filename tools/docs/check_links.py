#!/usr/bin/env python3
"""Checks the links of README.md and docs/*.md: the file exists, and so does the heading behind a #.

    check_links.py [FOLDER]    FOLDER has an installation of these pages, of which all are checked; no link leads out of it

An anchor is a heading as GitHub writes it: in lower case, with hyphens for spaces, without other signs.
"""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def plain(path):
    """The text without its blocks of code."""
    return re.sub(r"^(```|~~~).*?^\1", "", path.read_text(), flags=re.S | re.M)


def anchors(path):
    found = set()
    for heading in re.findall(r"^#+ (.*)$", plain(path), re.M):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)).strip().lower().replace(" ", "-")
        count = 0
        while (name := f"{slug}-{count}" if count else slug) in found:
            count += 1
        found.add(name)
    return found


def links(path):
    """(target, text of the link) of every link, inline or by reference."""
    text = re.sub(r"`[^`\n]*`", "", plain(path))
    text = re.sub(r"(?<=\S)\n(?=\w)", " ", text)  # a label may go on in the next line
    targets = dict(re.findall(r"^ {0,3}\[([^]]+)\]:\s*(\S+)", text, re.M))
    for label, target in re.findall(r"\[([^]]+)\]\(([^)\s]+)\)", text):
        yield target, label
    for label, name in re.findall(r"\[([^]]+)\]\[([^]]+)\]", text):
        yield targets.get(name), f"{label}][{name}"


def problem(page, target, root):
    """Why the target is wrong, or None."""
    if target is None:
        return "has no target"
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    path = pathlib.Path(os.path.normpath(page.parent / name)) if name else page
    if not path.exists() or not path.is_relative_to(root):
        return f"leads to {target}, which does not exist"
    if anchor and (path.suffix != ".md" or anchor not in anchors(path)):
        return f"leads to {target}, a heading that does not exist"
    return None


def main():
    problems = []
    count = 0
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    pages = [ROOT / "README.md", ROOT / "tools/bench/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages if root == ROOT else sorted(root.rglob("*.md")):
        for target, label in links(page):
            count += 1
            if why := problem(page, target, root):
                problems.append(f"{page.relative_to(root)}: [{label}] {why}")
    for text in problems:
        print(text)
    print(f"check_links: {count} links, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
