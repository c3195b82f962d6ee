#!/usr/bin/env python3
"""Shows that a range of commits changes comments and names alone.

    tools/lint/same_code.py REV              REV against the working tree
    tools/lint/same_code.py REV NEW          REV against the commit NEW
    tools/lint/same_code.py --texts REV      lists the string literals that differ, and accepts them
    tools/lint/same_code.py --names FILE REV FILE has lines "old new [path]": identifiers that were renamed, below path
    tools/lint/same_code.py REV --path PATH  compares only files below PATH

Every changed file is compared with its comments stripped, token by token. Three kinds of name may differ:

* a file that moved, as `git diff -M` pairs them: its old path in strings and includes counts as the new one;
* a test: the n-th TEST of a file is the same test under its old and its new name, also where other files cite it;
* what --names lists.

Documents (.md) are prose and are not compared. Exits with 1 if code differs. Exits with 1 also if a string literal
differs, unless --texts is given.
"""

import argparse
import ast
import difflib
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
C_LIKE = {".cc", ".h", ".S", ".go", ".c", ".js"}
PROSE = {".md", ".svg"}
C_TOKEN = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      |(?P<text>(?:\b(?:u8|[uUL])?R"(?P<mark>[^()\s\\"]{0,16})\(.*?\)(?P=mark)")|"(?:\\.|[^"\\\n])*"|`[^`]*`)
      |(?P<code>'(?:\\.|[^'\\\n])+'|[A-Za-z_$][\w$]*|\d(?:'?[\w.]|(?<=[eEpP])[+-])*|\#|[^\s\w])""",
    re.S | re.X)
HASH_TOKEN = re.compile(r"""(?P<comment>(?:^|(?<=\s))\#[^\n]*)|(?P<text>"(?:\\.|[^"\\])*"|'[^'\n]*')|(?P<code>[^\s"'\#]+|["'\#])""", re.S)
HEREDOC = re.compile(r"<<-?\s*(['\"])(\w+)\1[^\n]*\n(.*?)^\s*\2$", re.S | re.M)
TEST = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\((\w+),\s*(\w+)\)", re.M)
TEXT = "text"
CODE = "code"


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True).stdout


def at(rev, path):
    return git("show", f"{rev}:{path}") if rev else (ROOT / path).read_text()


def changed(old, new):
    """(status, old path, new path) of every file that differs."""
    lines = git("diff", "--name-status", "-M40%", "-l0", old, *([new] if new else [])).splitlines()
    for status, *paths in (line.split("\t") for line in lines):
        yield status[0], paths[0], paths[-1]


def c_tokens(source):
    out = []
    for match in C_TOKEN.finditer(source):
        if match["text"] is not None:
            if out and out[-1][0] == TEXT:  # adjacent literals are one
                out[-1] = (TEXT, out[-1][1] + match["text"])
            else:
                out.append((TEXT, match["text"]))
        elif match["code"] is not None:
            out.append((CODE, match["code"]))
    # It does not matter where a literal is split into two, so drop the quotes that meet there.
    return [(kind, value.replace('""', "")) if kind == TEXT else (kind, value) for kind, value in out]


def python_tokens(path_text):
    """The syntax tree without its docstrings; literals are texts."""
    tree = ast.parse(path_text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) \
                and isinstance(body[0].value.value, str):
            body[0].value.value = ""
    plain = ast.unparse(tree)
    out = []
    for token in tokenize.generate_tokens(iter(plain.splitlines(keepends=True)).__next__):
        if token.type == tokenize.STRING:
            out.append((TEXT, token.string))
        elif token.type not in (tokenize.COMMENT, tokenize.NL):
            out.append((CODE, token.string))
    return out


def hash_tokens(source):
    out = []

    def body(match):
        out.append((TEXT, match[3]))
        return "<<HEREDOC\n"

    source = HEREDOC.sub(body, source)
    for match in HASH_TOKEN.finditer(source):
        if match["comment"] is None:
            out.append((TEXT if match["text"] else CODE, match[0]))
    return out


def tokens(path, source):
    suffix = pathlib.PurePath(path).suffix
    if suffix in C_LIKE:
        return c_tokens(source)
    if suffix == ".py":
        return python_tokens(source)
    if suffix == ".json":
        return [(TEXT if '"displayName"' in line else CODE, line) for line in source.split("\n")]
    return hash_tokens(source)


def test_names(old_source, new_source):
    """Old and new name of each test of a file; empty if tests were added or removed."""
    before, after = TEST.findall(old_source), TEST.findall(new_source)
    if len(before) != len(after):
        return {}
    names = {}
    for (old_suite, old_name), (new_suite, new_name) in zip(before, after):
        names[f"{old_suite}.{old_name}"] = f"{new_suite}.{new_name}"
        if old_suite != new_suite:
            names.setdefault(old_suite, new_suite)
        if old_name != new_name:
            names[old_name] = new_name
    return {old: new for old, new in names.items() if old != new}


def rename(token, names, paths):
    kind, value = token
    if kind == CODE:
        return kind, re.sub(r"[\w$]+", lambda m: names.get(m[0], m[0]), value)
    for old, new in paths.items():
        value = value.replace(old, new)
    return kind, re.sub(r"[\w$]+(?:\.[\w$]+)?", lambda m: names.get(m[0]) or ".".join(
        names.get(part, part) for part in m[0].split(".")), value)


def compare(path, before, after):
    """(differences of code, differences of texts)"""
    code, texts = [], []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            continue
        old, new = before[a:b], after[c:d]
        shown = f"{path}: {' '.join(v for _, v in old)[:300]!r} -> {' '.join(v for _, v in new)[:300]!r}"
        same_shape = len(old) == len(new) and all(x == y or x[0] == y[0] == TEXT for x, y in zip(old, new))
        (texts if same_shape else code).append(shown)
    return code, texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--names", type=pathlib.Path)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--path", action="append", default=[], help="only these files or folders")
    arguments = parser.parse_args()

    files = list(changed(arguments.old, arguments.new))
    paths = {old: new for status, old, new in files if status == "R"}
    sources, names, scoped = [], {}, []
    if arguments.names:
        rows = [line.split() for line in arguments.names.read_text().splitlines() if line.strip()]
        names.update(row for row in rows if len(row) == 2)
        scoped = [row for row in rows if len(row) == 3]
    code, texts = [], []
    for status, old, new in files:
        if pathlib.PurePath(new).suffix in PROSE:
            continue
        if status in "AD":
            if not arguments.path:
                code.append(f"{new}: {'added' if status == 'A' else 'removed'}")
            continue
        before, after = at(arguments.old, old), at(arguments.new, new)
        if new.startswith("tests/") and new.endswith((".cc", ".h")):
            own = test_names(before, after)
            names.update(own)
        else:
            own = {}
        if not arguments.path or any(new == p or new.startswith(p.rstrip("/") + "/") for p in arguments.path):
            sources.append((new, before, after, own))
    for path, before, after, own in sources:
        local = names | own | {old: new for old, new, place in scoped if path.startswith(place)}
        a = [rename(t, local, paths) for t in tokens(path, before)]
        b = [rename(t, local, paths) for t in tokens(path, after)]
        c, t = compare(path, a, b)
        code += c
        texts += t
    for line in code:
        print(f"code differs: {line}")
    for line in texts:
        print(f"text differs: {line}")
    print(f"same_code: {len(sources)} files compared, {len(code)} differences of code, {len(texts)} of texts, "
          f"{len(names)} names mapped")
    return 1 if code or (texts and not arguments.texts) else 0


if __name__ == "__main__":
    sys.exit(main())
