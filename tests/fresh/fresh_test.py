#!/usr/bin/env python3
"""tests/fresh/fresh.py: documents that drift from the steps are refused, and the limits hold where the machine is quiet."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import fresh  # noqa: E402

README = (fresh.ROOT / "README.md").read_text()
GUIDE = (fresh.ROOT / "docs/guide.md").read_text()
PACKAGES = (fresh.ROOT / "docs/packages.md").read_text()


class DocumentsTest(unittest.TestCase):
    def refused(self, readme, words, packages=PACKAGES):
        with self.assertRaises(fresh.DocumentError) as raised:
            fresh.Documents(readme, GUIDE, packages)
        self.assertIn(words, str(raised.exception))

    def test_documents_of_this_tree_have_every_step(self):
        documents = fresh.Documents(README, GUIDE, PACKAGES)
        self.assertEqual(documents.unused, [])
        self.assertIn("find_package(gump", documents.by_find_package)
        self.assertNotIn("find_package(gump", documents.by_add_subdirectory)
        self.assertIn(f"add_subdirectory({documents.tree})", documents.by_add_subdirectory)

    def test_lost_command_is_refused(self):
        self.refused(README.replace("    tools/gump install", "    tools/gump put"), "tools/gump install")

    def test_command_that_no_step_runs_is_refused(self):
        build = "    cmake --build build\n"
        self.refused(README.replace(build, f"{build}    ctest\n"), "no step runs: ctest")

    def test_lost_command_for_packages_is_refused(self):
        for command in ("tools/gump package", "apt-get install"):
            self.refused(README, "should build packages", PACKAGES.replace(f"    {command}", f"    other {command}"))

    def test_project_with_packages_names_no_prefix(self):
        documents = fresh.Documents(README, GUIDE, PACKAGES)
        self.assertEqual(len(documents.project_without_prefix), len(documents.project))
        self.assertNotIn("PREFIX", " ".join(documents.project_without_prefix))

    def test_packages_are_installed_in_the_clean_root_only(self):
        for short in (True, False):
            place = types.SimpleNamespace(short=short)
            steps = fresh.Steps(fresh.Documents(README, GUIDE, PACKAGES), place)
            self.assertEqual(steps.debian in [step for _, step in steps.all()], not short)

    def test_program_without_the_call_to_leave_out_is_refused(self):
        documents = fresh.Documents(README.replace("Without the `Close`", "Without the `Closes`"), GUIDE, PACKAGES)
        with self.assertRaises(fresh.DocumentError):
            documents.without_mistake()

    def test_another_output_fails_the_step(self):
        documents = fresh.Documents(README, GUIDE, PACKAGES)

        class Place:
            home = tree = fresh.pathlib.Path(fresh.tempfile.mkdtemp())
            short = True

            def path(self, file):
                return file

            def run(self, line, folder):
                return fresh.Result(0, "1 4 9\n", "", 1.0, 1.0)

        steps = fresh.Steps(documents, Place())
        try:
            with self.assertRaises(fresh.StepError):
                steps.squares()
        finally:
            fresh.shutil.rmtree(Place.home)


class LimitTest(unittest.TestCase):
    def test_wall_time_has_a_limit_on_two_quiet_processors_only(self):
        long = fresh.WALL_LIMIT_S + 1
        self.assertIn("wall", fresh.over_limit(long, 10, others=0.05, processors=2)[0])
        self.assertEqual(fresh.over_limit(long, 10, others=0.5, processors=2), ("", False))
        self.assertEqual(fresh.over_limit(long, 10, others=0.05, processors=1), ("", False))

    def test_cpu_time_has_a_limit_on_any_machine(self):
        self.assertIn("CPU", fresh.over_limit(10, fresh.CPU_LIMIT_S + 1, others=0.9, processors=1)[0])


if __name__ == "__main__":
    unittest.main()
