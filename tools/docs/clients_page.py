#!/usr/bin/env python3
"""Writes the table of docs/clients.md from the results of the tests in tests/clients.

    clients_page.py RESULTS   writes the table; RESULTS is the folder of the results, build/release/clients
    clients_page.py --check   compares the shape of the table with the tests; the exit code is 1 if they differ

Each test program writes a file NAME.BACKEND there, with lines "row<TAB>text". The rows are client, server, way, and the
names of the tests. The table has the figures of epoll. A row that fails with io_uring fails in the table, too. The tests
need a dozen servers, so most machines cannot make the table. --check looks only at what the sources tell: there is a row for
each test program, and no cell of it is empty or says that a test fails.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "clients"
PAGE = ROOT / "docs" / "clients.md"
BEGIN, END = "<!-- clients: begin -->\n", "<!-- clients: end -->\n"
ROWS = ("Crowd", "Faults", "Mixed", "Differential")
COLUMNS = ("client", "server", "way", *ROWS)
HEAD = ("client", "server", "how a goroutine waits", "a thousand wait", "faults", "mixed load", "as on a thread", "test")


def names():
    return sorted(p.stem.removesuffix("_test") for p in TESTS.glob("*_test.cc"))


def results_of(path):
    if not path.exists():
        return {}
    return dict(line.split("\t", 1) for line in path.read_text().splitlines())


def row_of(folder, name):
    """The cells of a row, or the reason why there is none."""
    found = results_of(folder / f"{name}.epoll")
    for column in COLUMNS:
        if not found.get(column):
            return None, f"{name}.epoll has no {column}"
    for backend in ("epoll", "uring"):
        for test, text in results_of(folder / f"{name}.{backend}").items():
            if text == "fails":
                return None, f"{name}.{backend}: {test} fails"
    return [*(found[c] for c in COLUMNS), f"[{name}](../tests/clients/{name}_test.cc)"], None


def line(cells):
    return "| " + " | ".join(cells) + " |\n"


def rows_in(page):
    """{test: cells} of the table in the page."""
    body = page[page.index(BEGIN) + len(BEGIN):page.index(END)]
    found = {}
    for text in body.splitlines()[2:]:
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        found[re.sub(r"^\[(.*)\]\(.*", r"\1", cells[-1])] = cells
    return found


def check(page):
    """Yields what is wrong with the table."""
    rows = rows_in(page)
    for name in names():
        if name not in rows:
            yield f"the table has no row for tests/clients/{name}_test.cc; run tools/gump clients"
    for name, cells in rows.items():
        if name not in names():
            yield f"there is no test for the row {name}"
        if len(cells) != len(HEAD) or not all(cells) or "fails" in cells:
            yield f"a cell of the row {name} is missing or fails"
    for name in names():
        text = (TESTS / f"{name}_test.cc").read_text()
        for row in ROWS:
            if not re.search(rf"^TEST_F\(\w+, {row}\)", text, re.M):
                yield f"tests/clients/{name}_test.cc has no test {row}"


def write(page, folder):
    """Writes the table. A client without results keeps its row. Yields the clients whose results are missing."""
    old = rows_in(page)
    table = line(HEAD) + "|" + "---|" * len(HEAD) + "\n"
    for name in names():
        cells, problem = row_of(folder, name)
        if problem:
            yield problem
            cells = old.get(name)
        if cells:
            table += line(cells)
    PAGE.write_text(page[:page.index(BEGIN) + len(BEGIN)] + table + page[page.index(END):])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check == (args.results is not None):
        parser.error("give either RESULTS or --check")
    page = PAGE.read_text()
    problems = list(check(page) if args.check else write(page, args.results))
    for p in problems:
        print(f"clients_page: {p}")
    print(f"clients_page: {len(names())} clients, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
