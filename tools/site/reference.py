"""Writes the reference of the public headers, as Markdown: one page for each header.

A page has the comment at the head of the header, and then each declaration with its comment, in the order of the header.
Declarations that share a comment stay together. tools/docs/api_index.py reads the headers; docs/decisions/020 says why it
is not Doxygen.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))
import api_index  # noqa: E402

BULLET = re.compile(r" *[*-] ")
# Members that are for the library itself, or that any handle has.
NOT_SHOWN = re.compile(r"For the library itself|For the library's own")


def signs(text):
    """Prose in which * and the like are signs, and nothing else. An _ within a word is one anyway."""
    return re.sub(r"([\\*\[\]]|\b_|_\b)", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def escaped(text, page_of):
    """A line of prose as Markdown: signs lose their meaning outside of `code`, and names of headers become links."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        part = signs(parts[i])
        parts[i] = re.sub(r"gump/[\w/]+\.h\b", lambda m: linked(m[0], page_of), part)
    return "".join(parts)


def linked(name, page_of):
    target = page_of(name)
    return f"[{name}]({target})" if target else name


def prose(lines, page_of):
    """The lines of a comment as Markdown. Text that is indented by two spaces or more, and is no list, is code."""
    out, paragraph = [], None  # None, or what the last line was: text, list, table or code
    code = []

    def end_code():
        if code:
            while not code[-1].strip():
                code.pop()
            block = textwrap.dedent("\n".join(code)).split("\n")
            language = "cpp" if re.search(r"[;{(]", "\n".join(block)) else "text"
            out.extend(["", f"```{language}", *block, "```", ""])
            code.clear()

    for line in lines:
        indented = line.startswith("  ") and not BULLET.match(line)
        if code and (indented or not line.strip()):
            code.append(line)
            continue
        end_code()
        if not line.strip():
            out.append("")
            paragraph = None
        elif indented and paragraph not in ("list",):
            code.append(line)
            paragraph = None
        elif BULLET.match(line):
            if paragraph != "list":
                out.append("")
            out.append(re.sub(r"^ *[*-] ", "* ", "* " + escaped(BULLET.sub("", line, 1), page_of)))
            paragraph = "list"
        elif paragraph == "list" and indented:
            out.append("    " + escaped(line.strip(), page_of))
        elif line.startswith("|"):
            if paragraph != "table":
                out.append("")
            out.append(re.sub(r"(`[^`]*`)", lambda m: m[0].replace("\\|", "|"), line))
            paragraph = "table"
        else:
            if paragraph == "list":
                out.append("")
            out.append(escaped(line, page_of))
            paragraph = "text"
    end_code()
    return out


def signature(text, d):
    """The declaration without the body of a function, or with the whole body of an enum and of a plain struct."""
    first = d.head[0].at
    column = first - text.rfind("\n", 0, first) - 1
    last = d.head[-1]
    if is_plain(d):
        end = d.end
    elif d.kind == "type":
        return dedent(text[first:last.at + len(last.text)], column)
    else:
        end = initialisers(d.head) or last.at + len(last.text)
    code = re.sub(r"\s*(= default|noexcept = default)$", "", text[first:end].rstrip().rstrip(";"))
    code = re.sub(r"__attribute__\(\([^)]*\)\)\s+|\binline ", "", code)
    return dedent(code, column) + ";"


def dedent(code, column):
    return re.sub(rf"\n {{0,{column}}}", "\n", code).strip()


def initialisers(head):
    """Where the initialisers of a constructor begin, or None."""
    depth = 0
    for before, token in zip(head, head[1:]):
        depth += (before.text in "([{") - (before.text in ")]}")
        if depth == 0 and token.text == ":" and before.text in (")", "noexcept"):
            return token.at
    return None


def is_plain(d):
    """Returns whether all that is in the type fits into one look: an enum, or values without functions."""
    if d.kind != "type" or not d.body:
        return False
    if d.head[0].text == "enum":
        return True
    members = list(api_index.declarations(d.body))
    return bool(members) and all(m.kind == "value" and m.access == "public" for m in members)


def groups(found):
    """Declarations that share a comment, together."""
    together = []
    for d in found:
        before = together[-1][-1] if together else None
        if before and d.joined and (d.kind, d.access) == (before.kind, before.access) and d.kind != "type":
            together[-1].append(d)
        else:
            together.append([d])
    return together


class Page:
    """The page of one header."""

    def __init__(self, path, text, page_of):
        self.path, self.text, self.page_of = path, text, page_of
        self.lines, self.anchors = [], set()

    def anchor(self, name):
        name = re.sub(r"[^\w.-]", "-", name.replace("::", "."))
        unique, count = name, 1
        while unique in self.anchors:
            count += 1
            unique = f"{name}-{count}"
        self.anchors.add(unique)
        return unique

    def code(self, group):
        return ["```cpp", *("\n".join(signature(self.text, d) for d in group)).split("\n"), "```", ""]

    def scope(self, tokens, scope):
        for group in groups(list(api_index.declarations(tokens))):
            first = group[0]
            if first.kind == "namespace":
                parts = first.name.split("::")
                if first.name and not api_index.HIDDEN & set(parts):
                    self.scope(first.body, scope + [p for p in parts if p != "inline"])
                continue
            if scope[:1] != ["gump"] or (first.kind == "type" and not first.defined):
                continue
            if self.hidden(first):
                continue
            names = list(dict.fromkeys("::".join(scope[1:] + [d.name]) for d in group))
            title = ", ".join(names)
            self.lines += ["", f"## {signs(title)} {{#{self.anchor(names[0])}}}", ""]
            self.lines += self.code(group)
            self.lines += prose(first.comment, self.page_of)
            if first.kind == "type" and not is_plain(first):
                self.members(first, names[0])

    def hidden(self, d):
        return d.access != "public" or NOT_SHOWN.search(" ".join(d.comment)) or d.name in ("raw", "AbslHashValue")

    def members(self, type_, name):
        for group in groups(list(api_index.declarations(type_.body))):
            first = group[0]
            if self.hidden(first) or first.kind == "namespace" or (first.kind == "type" and not first.defined):
                continue
            self.lines += ["", f'<div class="member" id="{self.anchor(name + "." + first.name)}" markdown="1">', ""]
            self.lines += self.code(group)
            self.lines += prose(first.comment, self.page_of)
            self.lines += ["", "</div>", ""]
            if first.kind == "type" and not is_plain(first):
                self.members(first, f"{name}.{first.name}")


def page(header, path, source_of, page_of):
    """The Markdown of one header: an entry of api_index.read_headers(), and its file."""
    text = path.read_text()
    p = Page(path, text, page_of)
    p.lines += [f"# {header.path}", "",
                f'`#include "{header.path}"` · [the header itself]({source_of(path)})' + "{ .source }", ""]
    p.lines += prose(api_index.head_comment(text), page_of)
    p.scope(api_index.struct_access(api_index.tokenize(text)), [])
    if header.includes:
        p.lines += ["", "It includes " + ", ".join(f"[{i}]({page_of(i)})" for i in header.includes) + ".", ""]
    return "\n".join(p.lines) + "\n"
