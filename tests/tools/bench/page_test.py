#!/usr/bin/env python3
"""tools/bench/peers/page.py: the page and the pictures have the figures of the stored results, and nothing else."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/bench/peers"))
sys.dont_write_bytecode = True
import page  # noqa: E402

HOST = {"cpu": "A", "processors": 2, "virtual": False, "kernel": "6.1", "libc": "glibc 2.36", "mitigations": {}}


def results(ours, theirs):
    def peer(name, values):
        entries = [{"workload": "W1", "procs": 1, "metric": "ns/task", "values": values}] if values else []
        return {"name": name, "version": "1.0", "results": entries}

    return {"format": 1, "date": "2026-11-29T00:00:00+00:00", "seconds": 480, "divide": 1, "others": 0.02, "host": HOST,
            "peers": [peer("gump", ours), peer("marl", theirs)]}


def folder_with(directory, result):
    folder = pathlib.Path(directory)
    (folder / "comparison.json").write_text(json.dumps(result))
    (folder / "comparison.md").write_text(
        f"before\n{'old'.join(page.FIGURES)}between\n{'old'.join(page.AHEAD)}after\n")
    return folder


def check(folder):
    command = [sys.executable, "-B", ROOT / "tools/bench/peers/page.py", "--check", folder]
    return subprocess.run(command, capture_output=True, text=True)


class PageTest(unittest.TestCase):
    def test_table_has_medians_ranges_and_versions(self):
        text = page.table(results([30, 10, 20], [200]))
        self.assertIn("| start a task and wait for it, ns | 1 | 20 (10–30) | 200 (200–200) |", text)
        self.assertIn("| marl | 1.0 |", text)
        self.assertIn("host: A, 2 processors", text)
        self.assertIn("Other programs used 2% of the processors", text)

    def test_quick_look_says_so(self):
        self.assertNotIn("divided", page.table(results([10], [40])))
        self.assertIn("Counts are divided by 20.", page.table({**results([10], [40]), "divide": 20}))

    def test_workload_that_a_peer_lacks_is_a_dash_and_no_bar(self):
        result = results([20], [])
        self.assertIn("| 20 (20–20) | – |", page.table(result))
        self.assertEqual(page.picture(result, 1).count("<rect") - 1, 1)  # one is the background

    def test_program_with_a_lower_median_is_named_with_its_part_of_ours(self):
        self.assertIn("| start a task and wait for it | 1 | marl 0.75 |\n", page.ahead(results([30, 40, 50], [30])))
        for theirs in ([40], [50], []):
            self.assertNotIn("marl", page.ahead(results([30, 40, 50], theirs)))

    def test_longest_bar_is_the_highest_median(self):
        bars = page.picture(results([10], [40]), 1).split("<rect")[2:]
        widths = [float(b.split('width="')[1].split('"')[0]) for b in bars]
        self.assertAlmostEqual(widths[1] / widths[0], 4, delta=0.01)

    def test_bar_of_more_than_ten_times_the_next_is_cut_and_the_title_says_so(self):
        picture = page.picture(results([10], [101]), 1)
        widths = [float(b.split('width="')[1].split('"')[0]) for b in picture.split("<rect")[2:]]
        self.assertAlmostEqual(widths[1] / widths[0], 1.25, delta=0.01)
        self.assertEqual(picture.count('class="gap"'), 1)
        self.assertIn("a bar with a gap is cut", picture)
        self.assertNotIn("is cut", page.picture(results([10], [100]), 1))

    def test_written_page_passes_and_a_changed_one_fails(self):
        with tempfile.TemporaryDirectory() as directory:
            folder = folder_with(directory, results([10], [40]))
            self.assertEqual(check(folder).returncode, 1)
            page.write(folder)
            self.assertEqual(check(folder).returncode, 0)
            text = (folder / "comparison.md").read_text()
            self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
            (folder / "comparison.md").write_text(text.replace("10 (10–10)", "9 (9–9)"))
            self.assertIn("comparison.md: differs", check(folder).stdout)


if __name__ == "__main__":
    unittest.main()
