#!/usr/bin/env python3
"""tools/bench/run.py: files of --json can be compared, and a file that is none is refused in words."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/bench"))
sys.dont_write_bytecode = True
import host  # noqa: E402
import run  # noqa: E402


def write(folder, name, ours, go):
    contenders = []
    for title, values in (("gump", ours), ("go1.27", go)):
        contender = run.Contender(title)
        contender.values[("W3", 1, "ns/roundtrip")] = values
        contenders.append(contender)
    path = pathlib.Path(folder) / name
    run.write_json(path, host.describe(folder), contenders)
    return path


def compare(*paths):
    command = [sys.executable, "-B", ROOT / "tools/bench/run.py", "W3", "--compare", *paths]
    return subprocess.run(command, capture_output=True, text=True)


class CompareTest(unittest.TestCase):
    def test_comparison_shows_hosts_ranges_and_ratios(self):
        with tempfile.TemporaryDirectory() as folder:
            before = write(folder, "before.json", [100, 90, 120], [200, 210, 190])
            after = write(folder, "after.json", [50, 45, 60], [200, 210, 190])
            done = compare(after, before)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("host: "), 2)
        row = next(line for line in done.stdout.splitlines() if line.startswith("W3 "))
        self.assertIn("50 (45–60)", row)
        self.assertIn("100 (90–120)  0.50", row)  # against the first column
        self.assertIn("≤ 0.32 × Go  pass", row)  # by the twin of the first file

    def test_file_that_is_none_is_refused_in_words(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "other.json"
            path.write_text('{"format": 1}')
            done = compare(path)
            path.write_text(json.dumps({"format": 2}))
            newer = compare(path)
        self.assertEqual((done.returncode, newer.returncode), (1, 1))
        self.assertIn("is no file of --json", done.stderr)
        self.assertIn("has format 2", newer.stderr)

    def test_host_names_its_processor_and_kernel(self):
        text = "\n".join(host.lines(host.describe(ROOT)))
        self.assertRegex(text, r"host: .+, \d+ processors?, ")
        self.assertIn("Linux ", text)

    def test_every_floor_belongs_to_a_gomaxprocs_that_is_measured(self):
        for w in run.WORKLOADS:
            if isinstance(w.ratio, dict):
                self.assertLessEqual(set(w.ratio), set(w.procs), w.name)


if __name__ == "__main__":
    unittest.main()
