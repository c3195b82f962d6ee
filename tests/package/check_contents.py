#!/usr/bin/env python3
"""check_contents.py STATIC SHARED WORK: the packages for Debian have each installed file, and each file once. The links of
the documents in gump-doc lead to files that this package has.

STATIC and SHARED are prefixes with an installed library, as tests/install/run.sh makes them. This is the short form of
clean_root.sh: it writes the folder debian/ and compares its lists with the two prefixes, and builds nothing. Exit code 77:
a prefix is missing.
"""

import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


def stanzas(text):
    """The stanzas of a control file, as dictionaries."""
    for stanza in re.split(r"\n\n+", text.strip()):
        yield dict(re.findall(r"^([\w-]+): *((?:.*)(?:\n[ \t].*)*)", stanza, re.M))


def installed(prefix):
    """The installed files, at the places where a build for Debian has them."""
    for path in prefix.rglob("*"):
        if path.is_file() or path.is_symlink():
            name = str(path.relative_to(prefix))
            name = re.sub(r"^share/gdb/auto-load/.*/", "share/gdb/auto-load/", name)
            yield "usr/" + re.sub(r"^lib/", "lib/TRIPLET/", name)


def covers(pattern, name):
    """Whether dh_install takes the file if the pattern is in a list: as itself, or as a part of a folder."""
    return any(fnmatch.fnmatch("/".join(name.split("/")[:n]), pattern) and n >= pattern.count("/") + 1
               for n in range(1, name.count("/") + 2))


def documents(tree, lines, links, rules, root):
    """Puts the files of gump-doc below root, as the tools of Debian do it. Returns the folder of the documents."""
    for pattern, folder in lines:
        for path in tree.glob(pattern):
            to = root / folder / path.name
            to.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy)(path, to)
    for path, link in (line.split() for line in links.splitlines()):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
        (root / link).symlink_to(root / path)
    # dh_compress compresses documents of more than 4 KiB. So a link to one would be dead.
    kept = re.findall(r"--exclude=(\S+)", re.search(r"^\tdh_compress (.*)", rules, re.M)[1])
    folder = root / "usr/share/doc/gump-doc"
    for path in [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink() and p.stat().st_size > 4096]:
        if not any(part in str(path.relative_to(root)) for part in kept):
            path.rename(f"{path}.gz")
    return folder


def main():
    static, shared, work = (pathlib.Path(a).resolve() for a in sys.argv[1:])
    if not static.is_dir() or not shared.is_dir():
        print("skipped: the tests install/static and install/shared have not run")
        return SKIPPED
    tree = work / "tree"
    work.mkdir(parents=True, exist_ok=True)
    subprocess.run([ROOT / "tools/package/deb.sh", "--no-build", tree], check=True)
    debian = tree / "debian"
    problems = []

    text = {path: path.read_text() for path in debian.iterdir() if path.is_file()}
    problems += [f"{path.name}: a placeholder is left: {word}" for path, content in text.items()
                 for word in re.findall(r"@[A-Z]+@", content)]
    packages = [s["Package"] for s in stanzas(text[debian / "control"]) if "Package" in s]
    lists = {path.name.removesuffix(".install"): [line.split() for line in content.splitlines()]
             for path, content in text.items() if path.suffix == ".install"}
    problems += [f"{name}: not in both control and a list" for name in set(packages) ^ set(lists)]

    version = re.search(r"^VERSION=(.*)$|PACKAGE_VERSION \"(.*)\"",
                        next(static.rglob("gumpConfigVersion.cmake")).read_text(), re.M)[2]
    if not text[debian / "changelog"].startswith(f"gumption ({version}) "):
        problems.append(f"changelog: not version {version}")
    if (ROOT / "tools/package/vcpkg/gumption/vcpkg.json").read_text().count(f'"{version}"') != 1:
        problems.append(f"vcpkg.json: not version {version}")

    files = sorted({*installed(static), *installed(shared)})
    patterns = [(package, words[0]) for package, lines in lists.items() for words in lines]
    for package, pattern in patterns:
        if len(lists[package][0]) == 2:  # from the tree
            found = any(tree.glob(pattern))
        else:
            found = any(covers(pattern, name) for name in files)
        if not found:
            problems.append(f"{package}: no file for {pattern}")
    for name in files:
        owners = {package for package, pattern in patterns if covers(pattern, name)}
        if len(owners) != 1:
            problems.append(f"{name}: in {sorted(owners) or 'no package'}")

    root = work / "root"
    shutil.rmtree(root, ignore_errors=True)
    folder = documents(tree, lists["gump-doc"], text[debian / "gump-doc.links"], text[debian / "rules"], root)
    checked = subprocess.run([sys.executable, "-B", ROOT / "tools/docs/check_links.py", folder], capture_output=True, text=True,
                             check=False)
    problems += [f"gump-doc: {line}" for line in checked.stdout.splitlines()[:-1]]
    if checked.returncode != (1 if len(checked.stdout.splitlines()) > 1 else 0):
        problems.append(f"gump-doc: the links cannot be checked: {checked.stdout}{checked.stderr}")

    for problem in problems:
        print(problem)
    print(f"{len(files)} files, {len(packages)} packages, {len(problems)} problems")
    return 1 if problems else 0


sys.exit(main())
