#!/usr/bin/env python3
"""Tests of report.py that need no coverage run."""

import pathlib
import tempfile
import unittest

import report

LCOV = """SF:/top/runtime/a.cc
FN:10,_Z1f
FN:20,_Z1g
DA:10,3
DA:11,0
DA:12,0
DA:14,1
DA:15,0
DA:20,0
end_of_record
SF:/top/api/b.cc
FN:1,_Z1h
DA:1,0
end_of_record
"""
NAMES = {"_Z1f": "void rt::(anonymous namespace)::f<int, std::pair<int, int>>(rt::P*)", "_Z1g": "A::g() const"}
REASONS = """# A comment.
runtime/a.cc | f | c | Cannot happen.
runtime/a.cc | f | e | A small window.
runtime/a.cc | gone | b | Another kernel.
"""


class ReportTest(unittest.TestCase):
    def test_table_has_the_lines_and_reasons_of_each_function(self):
        sources = report.parse("/top", LCOV)
        self.assertEqual(list(report.table(sources, NAMES, report.reasons(REASONS))), [
            "| file | function | lines | why they have not run |",
            "|---|---|---|---|",
            "| `runtime/a.cc` | `A::g` | 20 | No reason is known. |",
            "| `runtime/a.cc` | `f` | 11-12, 15 | (c) Cannot happen. (e) A small window. |",
            "Has run: `runtime/a.cc`, `gone`: (b) Another kernel.",
        ])

    def test_stale_reasons_are_found(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "a.cc").write_text("int f();")
            why = report.reasons("a.cc | C::f | a | x\na.cc | g | a | x\nb.cc | f | a | x\na.cc | f | z | x")
            self.assertEqual(list(report.stale(folder, why)), [
                "a.cc: there is no g",
                "b.cc: there is no such file",
                "a.cc, f: there is no class (z)",
            ])


if __name__ == "__main__":
    unittest.main()
