#!/usr/bin/env python3
"""Writes docs/api.md, the index of the public headers, from the headers themselves.

    api_index.py              writes the page
    api_index.py --check      compares the page with the headers; the exit code is 1 if it is out of date

A header is a file below api/include/gump, but not one in a folder `internal`. Its line is the first sentence of the
comment at its head. Its types, functions and values are those at the scope of a namespace, with the first sentence of
their comments; namespaces called `internal` are left out. A type also gets the names of its public members. Members
that it inherits from a class of the headers count too.

This is no parser of C++. It needs braces and parentheses that match, comments of `//`, and the names of things in plain
sight: it does not expand macros.
"""

import argparse
import dataclasses
import difflib
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ROOT / "api" / "include"
PAGE = ROOT / "docs" / "api.md"
HIDDEN = {"internal", "rt", "std"}  # namespaces that are not for users

TOKEN = re.compile(r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[\w.]|'\w)*)
  | (?P<sign>::|->|\[\[|\]\]|\S)
""", re.X | re.S)

OPEN = {"(": ")", "[": "]", "[[": "]]", "{": "}"}
TYPES = {"class", "struct", "union", "enum"}
# Words that stand before a parenthesis and are no names of functions.
NO_NAME = {"__attribute__", "alignas", "decltype", "explicit", "noexcept", "requires", "sizeof", "static_assert", "void"}
# Members that are not listed: what any type may have, and what is for the library itself.
UNLISTED = {"operator=", "operator==", "iterator", "raw"}


@dataclasses.dataclass
class Token:
    text: str
    line: int
    kind: str
    at: int = 0  # where it stands in the text of the header


@dataclasses.dataclass
class Declaration:
    kind: str  # namespace, type, function, alias or value
    name: str
    comment: list  # lines of the comment above it, without the //
    joined: bool = False  # it follows the declaration above without an empty line and without a comment
    body: list = dataclasses.field(default_factory=list)  # the tokens between its braces
    bases: list = dataclasses.field(default_factory=list)  # words of the base clause
    access: str = "public"
    defined: bool = True
    head: list = dataclasses.field(default_factory=list)  # the tokens before the braces, or all of them
    end: int = 0  # where the declaration ends in the text of the header


def tokenize(text):
    text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.M)
    return [Token(m[0], text.count("\n", 0, m.start()) + 1, m.lastgroup if m.lastgroup != "raw" else "string", m.start())
            for m in TOKEN.finditer(text)]


def closing(tokens, at):
    """The index of the token that closes the bracket at `at`."""
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i].text in OPEN:
            depth += 1
        elif tokens[i].text in OPEN.values():
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"line {tokens[at].line}: {tokens[at].text} is never closed")


def angle_end(tokens, at):
    """The index of the > that closes the < at `at`, or `at` if there is none: then it is an operator."""
    depth = 0
    i = at
    while i < len(tokens):
        text = tokens[i].text
        if text in OPEN:
            i = closing(tokens, i)
        elif text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return i
        elif text in (";", ")", "]", "}"):
            break
        i += 1
    return at


def is_requires_expression(tokens, brace, start):
    """Whether the brace at `brace` is the body of a requires-expression: requires {, or requires (...) {."""
    before = brace - 1
    if tokens[before].text == "requires":
        return True
    if tokens[before].text != ")":
        return False
    depth = 0
    while before >= start:
        depth += {")": 1, "(": -1}.get(tokens[before].text, 0)
        if depth == 0:
            break
        before -= 1
    # After a parameter list, requires (...) is a clause, and the brace begins the body of the function.
    return (before - 2 >= start and tokens[before - 1].text == "requires"
            and tokens[before - 2].text not in (")", "const", "noexcept"))


def chunk(tokens, start):
    """(head, body, next index) of the declaration that begins at start. body is None if it has none."""
    i = start
    initialiser = members = False  # behind an =; in the list of initialisers of a constructor
    while i < len(tokens):
        text = tokens[i].text
        if text == "template" and i + 1 < len(tokens) and tokens[i + 1].text == "<":
            i = angle_end(tokens, i + 1) + 1  # an = in there is a default
            continue
        if text == ";":
            return tokens[start:i], None, i + 1
        if text == "=" and not (i > start and tokens[i - 1].text in ("operator", "=", "!", "<", ">")):
            initialiser = True
        if text == ":" and i > start and tokens[i - 1].text in (")", "noexcept"):
            members = True
        if text == "{":
            end = closing(tokens, i)
            member = members and (tokens[i - 1].kind == "word" or tokens[i - 1].text == ">")
            if not initialiser and not member and not is_requires_expression(tokens, i, start):
                return tokens[start:i], tokens[i + 1:end], end + 1
            i = end
        elif text in ("(", "[", "[["):
            i = closing(tokens, i)
        i += 1
    return tokens[start:], None, len(tokens)


def without_decoration(head):
    """The tokens of a declaration without attributes, template parameters, and clauses of the form requires (...)."""
    kept = []
    i = 0
    while i < len(head):
        text = head[i].text
        following = head[i + 1].text if i + 1 < len(head) else ""
        if text in ("[[", "{"):  # a brace here is the body of a requires-expression, or an initialiser
            i = closing(head, i)
        elif text in ("__attribute__", "alignas", "requires", "explicit", "noexcept") and following == "(":
            i = closing(head, i + 1)
        elif text == "template" and following == "<":
            i = angle_end(head, i + 1)
        else:
            kept.append(head[i])
        i += 1
    return kept


def function_name(head):
    """The name of the function that the tokens declare, or None."""
    i = 0
    while i < len(head):
        text = head[i].text
        if text == "operator":
            if i > 0 and head[i - 1].text == "::":
                return None
            end = next((j for j in range(i + 2, len(head)) if head[j].text == "("), len(head))
            words = [t.text for t in head[i + 1:end]]
            return "operator" + (" " if words[0][0].isalpha() else "") + "".join(words)
        if text == "=":
            return None
        if text == "<" and i > 0 and head[i - 1].kind == "word":
            i = angle_end(head, i)
        elif text == "(":
            before = head[i - 1] if i > 0 else None
            if before is not None and before.kind == "word" and before.text not in NO_NAME:
                destructor = i > 1 and head[i - 2].text == "~"
                qualified = i > 1 and head[i - 2].text == "::"
                return None if qualified else ("~" if destructor else "") + before.text
            i = closing(head, i)
        i += 1
    return None


def classify(head, body):
    """The declaration that the tokens are, without its comment, or None if there is nothing to show."""
    words = [t.text for t in head]
    if not words or words[0] in ("static_assert", "friend", "extern") or words[:2] == ["using", "namespace"]:
        return None
    if "namespace" in words[:2] and body is not None:
        name = "".join(words[words.index("namespace") + 1:])
        return Declaration("namespace", name, [], body=body)
    plain = without_decoration(head)
    words = [t.text for t in plain]
    if not words:
        return None
    if words[0] == "using":
        return Declaration("alias", words[1], []) if len(words) > 2 and words[2] == "=" else None
    if words[0] in ("typedef", "friend"):
        return None
    if words[0] == "concept":
        return Declaration("value", words[1], [])
    if words[0] in TYPES:
        start = 2 if words[0] == "enum" and words[1] in ("class", "struct") else 1
        if start < len(words) and plain[start].kind == "word" and words[start + 1:start + 2] not in (["::"], ["<"]):
            bases = words[words.index(":") + 1:] if ":" in words else []
            if body is not None or len(words) == start + 1:
                return Declaration("type", words[start], [], body=body or [], bases=bases, defined=body is not None)
            return None  # a variable of an elaborated type
        return None  # a specialisation, or a member of another type
    name = function_name(plain)
    if name is not None:
        return Declaration("function", name, [])
    if body is None and len(words) > 1:
        end = words.index("=") if "=" in words else len(words)
        if plain[end - 1].kind == "word":
            return Declaration("value", words[end - 1], [])
    return None


def declarations(tokens, access="public"):
    """The declarations of one scope, in their order."""
    i = 0
    comment, comment_line = [], 0
    last_line = -1
    while i < len(tokens):
        token = tokens[i]
        if token.kind == "comment":
            if token.line == last_line:  # behind a declaration
                i += 1
                continue
            if token.line != comment_line + 1:
                comment = []
            comment.append(re.sub(r"^// ?", "", token.text))
            comment_line = token.line
            i += 1
            continue
        if token.text in ("public", "protected", "private") and i + 1 < len(tokens) and tokens[i + 1].text == ":":
            access = token.text
            i += 2
            continue
        if token.text in (";", "}"):
            i += 1
            continue
        code = [t for t in tokens[i:] if t.kind != "comment"]
        head, body, length = chunk(code, 0)
        found = classify(head, body)
        if found is not None:
            found.access = access
            found.head = head
            found.end = code[length - 1].at + 1
            above = comment if comment_line == token.line - 1 else []
            found.comment = above
            found.joined = not above and token.line == last_line + 1
            if found.kind in ("namespace", "type") and body is not None:
                found.body = inner(tokens[i:], head, body)
            yield found
        last_line = code[length - 1].line
        # Step over as many tokens that are not comments.
        while length > 0:
            length -= tokens[i].kind != "comment"
            i += 1
        if body is not None and found is not None and found.kind == "type":  # up to the ;
            while i < len(tokens) and tokens[i].text != ";":
                i += 1
        comment = []


def inner(tokens, head, body):
    """The tokens of a body, with its comments. chunk has found the body without them."""
    skip = len(head) + 1  # the head and the brace
    i = 0
    while skip > 0:
        skip -= tokens[i].kind != "comment"
        i += 1
    want = len(body)
    start = i
    while want > 0:
        want -= tokens[i].kind != "comment"
        i += 1
    return tokens[start:i]


def first_sentence(lines):
    """The first sentence of a comment, or its first paragraph if that is no sentence, such as an example of a call."""
    paragraph = []
    for line in lines:
        if not line.strip() or (paragraph and re.match(r" {2,}|[*-] ", line)):
            break
        paragraph.append(line.strip())
    text = " ".join(paragraph)
    match = re.match(r"(.*?(?<!e\.g)(?<!i\.e)(?<!etc)[.!?])(?=\s|$)", text)
    if match:
        return match[1]
    return re.sub(r":$", ".", text)


def is_sentence(text):
    return text.endswith((".", "!", "?"))


def head_comment(text):
    lines = []
    for line in text.split("\n"):
        if not line.startswith("//"):
            break
        lines.append(re.sub(r"^// ?", "", line))
    return lines


@dataclasses.dataclass
class Row:
    names: list
    kind: str
    text: str
    members: list


@dataclasses.dataclass
class Header:
    path: str  # gump/sync/mutex.h
    summary: str
    rows: list
    includes: list  # the public headers that it re-exports


def all_types(tokens, found):
    """Collects the types of all namespaces, internal ones too, by their names."""
    for d in declarations(tokens):
        if d.kind == "namespace":
            all_types(d.body, found)
        elif d.kind == "type" and d.defined:
            found.setdefault(d.name, d)


def member_names(declaration, types, seen=()):
    """The names of the public members of a type, without those that C++ expects of any type."""
    if declaration.name in seen:
        return []
    names = []
    unlisted = {declaration.name, "~" + declaration.name, *UNLISTED}
    for d in declarations(declaration.body):
        shown = d.access == "public" and d.kind in ("function", "value", "type")
        if shown and d.name not in unlisted and d.name not in names:
            names.append(d.name)
    for word in declaration.bases:
        if word in types:
            inherited = member_names(types[word], types, (*seen, declaration.name))
            names += [n for n in inherited if n not in names]
    return names


def rows_of(tokens, scope, types, summary):
    rows = []
    by_name = {}
    for d in declarations(tokens):
        if d.kind == "namespace":
            parts = d.name.split("::")
            if d.name and not HIDDEN & set(parts):
                inside = scope + [p for p in parts if p != "inline"]
                for row in rows_of(d.body, inside, types, summary):
                    merge(rows, by_name, row)
            continue
        if scope[:1] != ["gump"] or (d.kind == "type" and not d.defined) or d.name.startswith("operator"):
            continue
        name = "::".join(scope[1:] + [d.name])
        text = first_sentence(d.comment)
        if "described above" in text:
            text = re.sub(r"^[\w:, <>]+?: ", "", summary)
            text = text[:1].upper() + text[1:]
        elif not text and d.kind == "type":  # a type may share the comment of the one before
            text = next((r.text for r in reversed(rows) if re.search(rf"\b{d.name}\b", r.text)), "")
        members = member_names(d, types) if d.kind == "type" else []
        if d.joined and rows and not members and d.kind == rows[-1].kind:
            if name not in by_name:
                rows[-1].names.append(name)
                by_name[name] = rows[-1]
            continue
        merge(rows, by_name, Row([name], d.kind, text, members))
    return rows


def merge(rows, by_name, row):
    """Adds a row. If there is one of the same name, adds only the text to it, so that all overloads have one row."""
    known = by_name.get(row.names[0])
    if known is None:
        rows.append(row)
        by_name.update({name: row for name in row.names})
    elif not known.text:
        known.text = row.text
    elif not is_sentence(known.text) and row.text:
        known.text += "; " + row.text


def is_public(path):
    return "internal" not in path.relative_to(HEADERS).parts


def struct_access(tokens):
    """Marks the bodies of classes as private by default, which declarations() cannot see from the inside."""
    out = []
    for i, token in enumerate(tokens):
        out.append(token)
        if token.text != "{":
            continue
        for j in range(i - 1, -1, -1):
            if tokens[j].text in (";", "{", "}", ")"):
                break
            if tokens[j].text == "class" and tokens[j - 1].text not in ("<", ",", "enum"):
                out += [Token("private", token.line, "word"), Token(":", token.line, "sign")]
                break
    return out


def read_headers():
    paths = sorted(HEADERS.rglob("*.h"), key=lambda p: str(p.relative_to(HEADERS).with_suffix("")))
    texts = {p: p.read_text() for p in paths}
    tokens = {p: struct_access(tokenize(text)) for p, text in texts.items()}
    types = {}
    for p in paths:
        all_types(tokens[p], types)
    headers = []
    for p in filter(is_public, paths):
        try:
            summary = first_sentence(head_comment(texts[p]))
            rows = rows_of(tokens[p], [], types, summary)
        except (IndexError, ValueError) as e:
            sys.exit(f"api_index: {p.relative_to(ROOT)}: not understood: {e}")
        exported = re.findall(r'#include "(gump/[^"]+)" *// IWYU pragma: export', texts[p])
        public = [i for i in exported if is_public(HEADERS / i)]
        headers.append(Header(str(p.relative_to(HEADERS)), summary, rows, public))
    return headers


def cell(text):
    """Text for a table: signs that Markdown or HTML would take are escaped."""
    return re.sub(r"([|*<])", r"\\\1", text)


def code(names):
    return ", ".join(f"`{n}`".replace("|", "\\|") for n in names)


def row_line(row):
    names = [n + "()" if row.kind == "function" and "operator" not in n else n for n in row.names]
    text = cell(row.text)
    if row.members:
        text += f" Members: {code(row.members)}."
    return f"| {code(names)} | {text.strip()} |"


def anchor(path):
    return re.sub(r"[^\w\- ]", "", path.lower())


def links(paths):
    return ", ".join(f"[`{i}`](#{anchor(i)})" for i in paths)


def page(headers):
    lines = [
        "# Index of the public headers",
        "",
        "<!-- Written by tools/docs/api_index.py. Do not edit: change the comment in the header, and run it again. -->",
        "",
        *wrapped("Each public header with its types and functions, and the first sentence that it says about each. The "
                 "headers say the rest: preconditions, errors, what parks, memory ordering, and an example. All names are "
                 "in namespace `gump`. `tools/docs/api_index.py` writes this page from the headers."),
        "",
        "| header | what it has |",
        "|---|---|",
    ]
    lines += [f"| [{h.path}](#{anchor(h.path)}) | {cell(h.summary)} |" for h in headers]
    for h in headers:
        lines += ["", f"## [{h.path}](../api/include/{h.path})"]
        if h.rows:
            lines += ["", "| name | what it is |", "|---|---|", *map(row_line, h.rows)]
        if h.includes:
            lines += ["", *wrapped(f"It {'also ' if h.rows else ''}includes {links(h.includes)}.")]
    return "\n".join(lines) + "\n"


def wrapped(text):
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    arguments = parser.parse_args()
    headers = read_headers()
    text = page(headers)
    count = sum(len(h.rows) for h in headers)
    for h in headers:
        for row in h.rows:
            if not row.text:
                print(f"api_index: {h.path}: no comment: {', '.join(row.names)}", file=sys.stderr)
    if not arguments.check:
        PAGE.write_text(text)
        print(f"api_index: {len(headers)} headers, {count} rows")
        return 0
    old = PAGE.read_text() if PAGE.exists() else ""
    if old == text:
        print(f"api_index: {len(headers)} headers, {count} rows, up to date")
        return 0
    difference = difflib.unified_diff(old.splitlines(True), text.splitlines(True), "docs/api.md", "the headers", n=0)
    sys.stdout.writelines(difference)
    print("api_index: docs/api.md is out of date; run tools/docs/api_index.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
