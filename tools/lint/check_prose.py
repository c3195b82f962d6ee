#!/usr/bin/env python3
"""Holds the prose of the tree to docs/prose.md: comments, documents and names of tests.

Counts, for every folder and for 1,000 sentences, the habits that make a reader stop:

    who        a who, whom, whoever or whose without a noun before it ("who waits" for "a goroutine that waits")
    somebody   nobody, somebody, someone, anybody, anyone, everybody for a thread or a goroutine
    he         he, him, his for a thread
    False:     a result told as "False: no memory." where "Returns false if there is no memory." is meant
    long       sentences of more than 30 words

and fails above the limits, which are the figures of Go's runtime, Abseil and LevelDB. Names of tests are claims: none may
have one of the words. Quotations and questions are not counted, nor what prose_allowed.txt lists, with its reasons.

    check_prose.py [--list] [FOLDER...]      --list: print every sentence that counts
"""

import argparse
import ast
import collections
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALLOWED = pathlib.Path(__file__).with_name("prose_allowed.txt")
LIMITS = {"who": 1.0, "somebody": 4.0, "he": 0.5, "False:": 1.0, "long": 10.0}
MAX_WORDS = 30
C_LIKE = {".cc", ".h", ".S", ".go", ".c"}
HASH = {".py", ".sh", ".cmake", ".yml"}

# Words after which a "whose" has no noun of its own.
FUNCTION_WORDS = set("""a about after all and any are as at be because before but by every except finds for from had has have
if in into is it knows like no not of off on once one only or over says sees so tells than that the then they this those to
unless until was what when where which while with without""".split())
PERSON = re.compile(r"\b(?:nobody|somebody|someone|anybody|anyone|everybody)\b", re.I)
HE = re.compile(r"\b(?:he|him|his|himself)\b", re.I)
WHO = re.compile(r"\b(?:who|whom|whoever|whomever|whosever)\b", re.I)
WHOSE = re.compile(r"(?:(?<![\w-])([\w-]+)(\W{1,3}))?\bwhose\b", re.I)
RESULT = re.compile(r"(?:^|[.;:,)]\s+)(?:False|True|Nullptr|false|true|nullptr):\s")
CONTEXT = re.compile(r"(?:On|P|Locks|Parks): |namespace \w")  # a context line, the end of a block
ITEM = r"\s*(?:[*•-]|\d+[.)]|\(?\w{1,3}\)|[A-Z]\d:?)\s"
QUOTED = re.compile(r'"[^"]{1,200}"|`[^`]*`|“[^”]*”')
TEST = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\((\w+),\s*(\w+)\)", re.M)
NAME_WORDS = {"who", "whom", "whose", "whoever", "what", "whatever", "nobody", "somebody", "someone", "anybody", "he", "his",
              "him"}


class Sentence(collections.namedtuple("Sentence", "path line text")):
    """A sentence, or a fragment that stands for one."""

    def faults(self):
        if self.text.rstrip().endswith("?"):
            return
        plain = QUOTED.sub('""', self.text)
        if WHO.search(plain) or any(m[1] is None or m[2] not in (" ", ", ") or m[1].lower() in FUNCTION_WORDS
                                    for m in WHOSE.finditer(plain)):
            yield "who"
        if PERSON.search(plain):
            yield "somebody"
        if HE.search(plain):
            yield "he"
        if RESULT.search(self.text):
            yield "False:"
        if len(re.findall(r"[A-Za-z][\w'’-]*", plain)) > MAX_WORDS:
            yield "long"


def split(path, line, text):
    """The sentences of a paragraph, each with the line at which it begins."""
    start = 0
    for end in [m.end() for m in re.finditer(r"(?<!e\.g)(?<!i\.e)(?<!\betc)(?<!\bcf)[.!?][)\"”]?(?=\s|$)|;(?=\s)", text)] + [len(text)]:
        body = text[start:end]
        if len(re.findall(r"[A-Za-z]{2,}", body)) > 2 and not CONTEXT.match(body.strip()):
            lead = len(body) - len(body.lstrip())
            yield Sentence(path, line + text.count("\n", 0, start + lead), " ".join(body.split()))
        start = end


def paragraphs(lines):
    """(first line, text) of each paragraph in numbered lines of prose; indented code, rulers and diagrams are left out."""
    block = []
    for number, body in lines + [(0, "")]:
        item = re.match(ITEM, body)
        code = re.match(r"\s{2,}\S", body) and not (block and re.match(ITEM, block[0][1]))
        drawn = re.search(r"[─│┌└├▶◀▲▼]|-{4,}|={4,}|<-+|-+>", body)
        if not body.strip() or item or code or drawn:
            if block:
                yield block[0][0], "\n".join(b for _, b in block)
            block = []
        if body.strip() and not drawn and (item or not code):
            block.append((number, body))


def c_comments(source):
    """Runs of comment lines; a comment behind code is a run of its own, with the comment lines that go on below it."""
    runs, run = [], []
    previous = None
    for number, line in enumerate(source.splitlines(), 1):
        bare = re.sub(r'"(?:\\.|[^"\\])*"', lambda m: '"' + " " * (len(m[0]) - 2) + '"', line)
        at = bare.find("//")
        alone = at >= 0 and not line[:at].strip()
        if at < 0:
            previous = None
            if run:
                runs.append(run)
            run = []
            continue
        body = re.sub(r"^/+ ?", "", line[at:])
        if not alone or previous not in (None, at):
            if run:
                runs.append(run)
            run = []
        run.append((number, body))
        previous = at
    if run:
        runs.append(run)
    for match in re.finditer(r"/\*(.*?)\*/", source, re.S):
        first = source.count("\n", 0, match.start()) + 1
        runs.append([(first + i, re.sub(r"^\s*\*? ?", "", b)) for i, b in enumerate(match[1].split("\n"))])
    return runs


def hash_comments(path, source):
    runs, run = [], []
    lines = source.splitlines()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node, clean=False):
                text = node.body[0]
                lead = " " * text.col_offset
                runs.append([(text.lineno + i, l.removeprefix(lead)) for i, l in enumerate(text.value.value.split("\n"))])
        comments = {t.start[0]: t.string for t in tokenize.generate_tokens(io.StringIO(source).readline)
                    if t.type == tokenize.COMMENT}
    else:
        comments = {n: m[0] for n, line in enumerate(source.splitlines(), 1)
                    if (m := re.search(r"(?:^|(?<=\s))#.*", re.sub(r'"[^"]*"', '""', line)))}
    last = None
    for number, text in sorted(comments.items()):
        if number == 1 and text.startswith("#!"):
            continue
        alone = lines[number - 1].lstrip().startswith("#")
        if last is not None and (number != last + 1 or not alone):
            runs.append(run)
            run = []
        run.append((number, re.sub(r"^#+ ?", "", text)))
        last = number
    return runs + ([run] if run else [])


def markdown(source):
    """Paragraphs, list entries and cells of tables, without code."""
    source = re.sub(r"^(```|~~~).*?^\1", lambda m: "\n" * m[0].count("\n"), source, flags=re.S | re.M)
    run, runs = [], []
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("|"):
            runs += [[(number, cell.strip())] for cell in line.strip().strip("|").split("|") if re.search(r"\w", cell)]
            line = ""
        if line.startswith("#"):
            line = ""
        run.append((number, re.sub(r"\]\([^)]*\)", "]", line)))
    return runs + [run]


def sentences(path):
    source = path.read_text()
    if path.suffix == ".md":
        runs = markdown(source)
    elif path.suffix in C_LIKE:
        runs = c_comments(source)
    else:
        runs = hash_comments(path, source)
    for run in runs:
        for line, text in paragraphs(run):
            yield from split(path, line, text)


def folder_of(path):
    parts = path.relative_to(ROOT).parts[:-1]
    name = "/".join(parts[:2])
    return name or "."


def is_prose(path):
    return path.suffix in C_LIKE | HASH | {".md"} or path.name in ("CMakeLists.txt", "gump", "mutants.txt", "run")


def allowed():
    """(file, words of the sentence) pairs that are not counted."""
    rows = [line.split("|") for line in ALLOWED.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [(row[0].strip(), row[1].strip()) for row in rows]


def test_names(path):
    for suite, name in TEST.findall(path.read_text()):
        words = re.findall(r"[A-Z]?[a-z]+", name)
        if NAME_WORDS & {word.lower() for word in words}:
            yield f"{path.relative_to(ROOT)}: the name of {suite}.{name} is not a claim with a subject"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("folders", nargs="*")
    arguments = parser.parse_args()

    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
                           check=True, capture_output=True, text=True).stdout.split("\n")
    files = [ROOT / n for n in sorted(set(names)) if n and (ROOT / n).is_file() and is_prose(ROOT / n)]
    exempt = allowed()
    counts = collections.defaultdict(collections.Counter)
    shown = []
    problems = []
    for path in files:
        folder = folder_of(path)
        if arguments.folders and not any(path.is_relative_to(ROOT / f) for f in arguments.folders):
            continue
        name = str(path.relative_to(ROOT))
        if name.startswith("tests/") and path.suffix == ".cc":
            problems += test_names(path)
        for sentence in sentences(path):
            counts[folder]["sentences"] += 1
            if any(name == file and words in sentence.text for file, words in exempt):
                continue
            for fault in sentence.faults():
                counts[folder][fault] += 1
                shown.append((fault, f"{name}:{sentence.line}: [{fault}] {sentence.text}"))
    over = set()
    for folder, count in sorted(counts.items()):
        for fault, limit in LIMITS.items():
            rate = 1000 * count[fault] / count["sentences"]
            if rate > limit:
                over.add((folder, fault))
                problems.append(f"{folder}: {fault} {rate:.1f} per 1,000 sentences, the limit is {limit:g}")
    for fault, text in shown:
        if arguments.list or (folder_of(ROOT / text.split(":")[0]), fault) in over:
            print(text)
    for problem in problems:
        print(problem)
    total = sum(counts.values(), collections.Counter())
    rates = ", ".join(f"{f} {1000 * total[f] / max(1, total['sentences']):.1f}" for f in LIMITS)
    print(f"check_prose: {total['sentences']} sentences in {len(counts)} folders; per 1,000: {rates}; {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
