#!/usr/bin/env python3
"""Makes the site: static HTML from the documents, the public headers and a recorded trace.

    build.py BUILD WORK OUT

BUILD is the folder of a build with the target gump_trace and the examples: one of them is run, and its trace is the demo.
WORK is a folder for the prepared pages. OUT gets the site. What was in it goes, so it must be new, empty, or an older site.

The pages stay Markdown that reads well in a repository. Here they are prepared for MkDocs:

* Links are between files of the repository. A link to a page leads to that page of the site, and a link to a public header
  leads to the reference. A link to another file leads to a page with its text.
* What MkDocs reads in another way than repositories do is written as MkDocs wants it: words after ```cpp, | in code in
  tables, nested lists.
"""

import argparse
import html
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

import pygments
import pygments.formatters
import pygments.lexers
import pygments.util
import yaml

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import reference  # noqa: E402

ROOT = HERE.parents[1]
API = "api/include/"
TRACED = ["worker_pool", "2000", "4"]  # the example whose trace is the demo, and its arguments
# Folders that a page stands for.
FOLDERS = {"docs/examples": "docs/examples/README.md", "docs/examples/bridges": "docs/examples/README.md",
           "docs/examples/projects": "docs/packages.md", "docs/decisions": "decisions", "api/include/gump": "docs/api.md"}
# Pages that are not files of the repository, or that have another place on the site than their path says.
PLACES = {"home": "index.md", "demo": "demo.md", "decisions": "decisions/index.md", "README.md": "overview.md",
          "docs/README.md": "all-pages.md", "docs/api.md": "reference/index.md",
          "docs/examples/README.md": "examples.md", "tools/bench/README.md": "bench.md"}
FENCE = re.compile(r"^(```)(.*)\n([\s\S]*?)^```$", re.M)
INLINE = re.compile(r"(`+)(?:(?!\1)[\s\S])+?\1")


def place(path):
    """Where a page of the repository is among the prepared pages, or None if it is no page."""
    if path in PLACES:
        return PLACES[path]
    if path.startswith("docs/decisions/") and path.endswith(".md"):
        return path.removeprefix("docs/")
    if path.startswith("docs/") and path.endswith(".md"):
        return path.removeprefix("docs/").lower()
    if path.startswith(API + "gump/") and path.endswith(".h") and "/internal/" not in path:
        return "reference/" + path.removeprefix(API + "gump/").removesuffix(".h").replace("/", "-") + ".md"
    return None


class Site:
    def __init__(self, work):
        self.folder = work / "pages"
        self.sources = {}  # path of a source that a page links to: its place
        self.tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\0")
        if not any(self.tracked):  # an archive of the tree, without git
            self.tracked = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and "build" not in p.parts]

    # ---- Links

    def link(self, origin, target, at):
        """The target of a link on the page `origin` (a path of the repository), for the prepared page at `at`."""
        if re.match(r"[a-z]+:|#", target):
            return target
        name, _, anchor = target.partition("#")
        path = name if name in PLACES or name.startswith("demo/") else posixpath.normpath(posixpath.join(posixpath.dirname(origin), name))
        path = FOLDERS.get(path, path)
        to = place(path)
        if path.startswith("demo/"):
            to = path
        elif path.startswith("docs/pictures/") and path.endswith(".svg"):
            to = path.removeprefix("docs/")
        elif to is None:
            to = self.source(path)
        return posixpath.relpath(to, posixpath.dirname(at) or ".") + ("#" + anchor if anchor else "")

    def source(self, path):
        """The place of the page that shows a file or a folder. The page is written at the end."""
        if not (ROOT / path).exists():
            sys.exit(f"site: a link to {path}, which does not exist")
        folder = (ROOT / path).is_dir()
        self.sources[path] = f"source/{path}{'/index' if folder else ''}.html"
        if folder:
            for file in self.inside(path):
                self.source(file)
        return self.sources[path]

    def inside(self, folder):
        return [f for f in self.tracked if f.startswith(folder + "/") and (ROOT / f).is_file()]

    # ---- Pages

    def prepared(self, text, origin, at):
        """The Markdown of the repository as MkDocs wants it."""
        out, position = [], 0
        for fence in FENCE.finditer(text):
            out.append(self.prose(text[position:fence.start()], origin, at))
            out.append(f"```{words_of_fence(fence[2])}\n{fence[3]}```")
            position = fence.end()
        out.append(self.prose(text[position:], origin, at))
        return "".join(out)

    def prose(self, text, origin, at):
        text = re.sub(r"<!--[\s\S]*?-->\n?", "", text)
        kept = []

        def keep(match):
            kept.append(match[0])
            return f"\0{len(kept) - 1}\0"

        text = INLINE.sub(keep, text)
        text = re.sub(r"\]\(([^)\s]+)\)", lambda m: f"]({self.link(origin, m[1], at)})", text)
        text = re.sub(r"^( {0,3}\[[^]\n]+\]:\s*)(\S+)", lambda m: m[1] + self.link(origin, m[2], at), text, flags=re.M)
        lines = nested([*text.split("\n")])
        for i, line in enumerate(lines):
            row = line.startswith("|")
            lines[i] = re.sub("\0(\\d+)\0", lambda m, row=row: plain_code(kept[int(m[1])], row), line)
        return "\n".join(lines)

    def write(self, at, text):
        path = self.folder / at
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def page(self, origin, text=None):
        at = place(origin)
        self.write(at, self.prepared((ROOT / origin).read_text() if text is None else text, origin, at))
        return at

    def write_reference(self):
        headers = reference.api_index.read_headers()
        for header in headers:
            at = place(API + header.path)

            def page_of(name, at=at):
                to = place(API + name)
                known = to and (ROOT / API / name).exists()
                return posixpath.relpath(to, posixpath.dirname(at)) if known else None

            def source_of(path, at=at):
                return posixpath.relpath(self.source(str(path.relative_to(ROOT))), posixpath.dirname(at))

            self.write(at, reference.page(header, ROOT / API / header.path, source_of, page_of))
        return [place(API + h.path) for h in headers], [h.path.removeprefix("gump/") for h in headers]

    def write_decisions(self):
        rows, places = [], []
        for path in sorted((ROOT / "docs/decisions").glob("*.md")):
            origin = str(path.relative_to(ROOT))
            places.append(self.page(origin))
            if not path.name.startswith("000"):
                number, title = re.match(r"# (\d+): (.*)", path.read_text()).groups()
                rows.append(f"| {number} | [{title[:1].upper() + title[1:]}]({path.name}) |")
        self.write("decisions/index.md", "# Decisions\n\nWhy the library does not do a thing the usual way.\n\n"
                   "| | |\n|---|---|\n" + "\n".join(rows) + "\n\nA new one begins as [the template](000-template.md).\n")
        return places

    def write_sources(self):
        done = set()
        while todo := [p for p in self.sources if p not in done]:
            for path in todo:
                done.add(path)
                self.write(self.sources[path], self.listing(path) if (ROOT / path).is_dir() else self.highlighted(path))

    def listing(self, path):
        rows = "".join(f'<li><a href="{html.escape(posixpath.relpath(self.sources[f], "source/" + path))}">{html.escape(f)}</a></li>\n'
                       for f in self.inside(path))
        return self.frame(path, f"<ul>\n{rows}</ul>\n", f"source/{path}")

    def highlighted(self, path):
        text = (ROOT / path).read_text()
        try:
            lexer = pygments.lexers.get_lexer_for_filename("x.cc" if path.endswith(".h") else path, text)
        except pygments.util.ClassNotFound:
            lexer = pygments.lexers.TextLexer()
        body = pygments.highlight(text, lexer, pygments.formatters.HtmlFormatter(lineanchors="L"))
        return self.frame(path, body, posixpath.dirname(self.sources[path]))

    def frame(self, path, body, folder):
        up = posixpath.relpath(".", folder)
        return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\n'
                f'<title>{html.escape(path)} · gumption</title><link rel="icon" href="{up}/logo.svg">\n'
                f'<link rel="stylesheet" href="{up}/source.css"></head>\n<body><header><a href="{up}/index.html">gumption</a>'
                f'<h1>{html.escape(path)}</h1></header>\n<main>\n{body}</main></body></html>\n')


def words_of_fence(info):
    """The words after ``` as MkDocs reads them. A program of a file, or one that is wrong, says so in a title."""
    language, *rest = info.split() or [""]
    if not rest:
        return language
    title = {"wrong": "Wrong", "numbers": "The numbers vary"}.get(rest[0], rest[0])
    if match := re.fullmatch(r"exit=(\d+)", rest[0]):
        title = f"It ends with exit code {match[1]}"
    return f'{language} title="{title}"'


def plain_code(code, in_table):
    return code.replace("\\|", "|") if in_table else code


def nested(lines):
    """Python-Markdown wants nested lists indented by four, and an empty line above a list."""
    in_list = False
    for i, line in enumerate(lines):
        item = re.match(r"([*-]|\d+\.) ", line)
        if item:
            in_list = True
        elif line.strip() and not line.startswith(" "):
            in_list = False
        elif in_list and re.match(r" {2,}[^\s\[]", line):
            lines[i] = " " * (len(line) - len(line.lstrip())) + line
    return lines


def quoted(spec):
    """A part of a page for the front page: FILE: HEADING: KIND, where KIND is a language, or indented."""
    path, heading, kind = (part.strip() for part in spec.split(":"))
    text = (ROOT / path).read_text()
    section = re.search(rf"^## {re.escape(heading)}\n([\s\S]*?)(?=^## |\Z)", text, re.M)
    if not section:
        sys.exit(f"site: {path} has no heading {heading}")
    if kind != "indented":
        found = re.search(rf"^```{kind}\n[\s\S]*?^```$", section[1], re.M)
        if not found:
            sys.exit(f"site: {path}, {heading}: no block of {kind}")
        return found[0]
    blocks = re.findall(r"(?:^ {4}.*\n)+", section[1], re.M)
    if not blocks:
        sys.exit(f"site: {path}, {heading}: no indented block")
    # The comments behind the commands would make the block too wide.
    return "\n".join(f"```{'sh' if 'tools/gump' in b else 'cmake'}\n" + re.sub(r" +#.*", "", re.sub(r"(?m)^ {4}", "", b)) + "```\n"
                     for b in blocks)


def navigation(entries, pages):
    """nav.yml with places instead of paths. `pages` has those that are many."""
    out = []
    for entry in entries:
        if isinstance(entry, str):
            out.append(place(entry))
            continue
        (title, value), = entry.items()
        if isinstance(value, list):
            out.append({title: navigation(value, pages)})
        else:
            out.append({title: pages[value] if value in pages else place(value)})
    return out


def flat(nav):
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values():
                yield from flat(value) if isinstance(value, list) else [value]


def record(build, work):
    """Runs an example with a trace, and returns the viewer's page of it."""
    trace = work / f"{TRACED[0]}.trace"
    trace.unlink(missing_ok=True)
    subprocess.run([build / "docs/examples" / TRACED[0], *TRACED[1:]], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env=os.environ | {"GUMP_TRACE": str(trace), "GOMAXPROCS": "2"})
    page = work / f"{TRACED[0]}.html"
    subprocess.run([build / "tools/trace/gump_trace", "-o", page, trace], check=True, stdout=subprocess.DEVNULL)
    return page.read_text()


def prepare(work, trace):
    site = Site(work)
    shutil.rmtree(site.folder, ignore_errors=True)
    for path in ["README.md", "tools/bench/README.md", *(p for p in site.tracked if p.startswith("docs/") and p.endswith(".md"))]:
        if not path.startswith("docs/decisions/") and (ROOT / path).exists():
            site.page(path)
    decisions = site.write_decisions()
    places, names = site.write_reference()
    home = re.sub(r"\{\{(.*?)\}\}", lambda m: quoted(m[1]), (HERE / "home.md").read_text())
    site.page("home", home)
    demo = (HERE / "demo.md").read_text().replace("{{example}}", " ".join(TRACED))
    site.page("demo", demo)
    site.write("demo/trace.html", trace)
    for picture in (ROOT / "docs/pictures").glob("*.svg"):
        site.write(f"pictures/{picture.name}", picture.read_text())
    for name in ("logo.svg", "site.css"):
        site.write(name, (HERE / name).read_text())
    site.write_sources()
    light, dark = (pygments.formatters.HtmlFormatter(style=s).get_style_defs(".highlight") for s in ("default", "monokai"))
    site.write("source.css", (HERE / "source.css").read_text() + light
               + "\n@media (prefers-color-scheme: dark) {\n" + dark + "\n}\n")

    many = {"reference": [{"Index": "reference/index.md"}, *({n: p} for n, p in zip(names, places))],
            "decisions": ["decisions/index.md", *(d for d in decisions if "000-" not in d)]}
    nav = navigation(yaml.safe_load((HERE / "nav.yml").read_text()), many)
    known = set(flat(nav)) | {"decisions/000-template.md"}
    if missing := [str(p.relative_to(site.folder)) for p in site.folder.rglob("*.md") if str(p.relative_to(site.folder)) not in known]:
        sys.exit(f"site: not in tools/site/nav.yml: {' '.join(sorted(missing))}")
    return nav


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    work, out = arguments.work.resolve(), arguments.out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / "reference/index.html").exists():
        sys.exit(f"site: {out} has files that are no site; give a new directory")
    work.mkdir(parents=True, exist_ok=True)
    nav = prepare(work, record(arguments.build.resolve(), work))
    config = {"INHERIT": str(HERE / "mkdocs.yml"), "docs_dir": str(work / "pages"), "site_dir": str(out), "nav": nav}
    (work / "mkdocs.yml").write_text(yaml.dump(config, sort_keys=False))
    end = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--clean", "-f", work / "mkdocs.yml"], check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if end.returncode:
        print(end.stdout)
        return end.returncode
    print(f"site: {len(list(out.rglob('*.html')))} pages in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
