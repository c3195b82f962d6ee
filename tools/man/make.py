#!/usr/bin/env python3
"""Writes the manual page tools-gump(1), from tools-gump.1.in and from what `tools/gump help` prints.

    make.py [OUT]      OUT is a file; standard output if it is missing

So the page cannot say something else than the help. gump(1), the page of the installed command, is in tools/package. A text that make.py does not understand is an error.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class Command:
    synopsis: str
    text: list  # lines
    options: list = dataclasses.field(default_factory=list)  # (option, lines)


def parse(text):
    """The sections of the help, as (title, commands)."""
    sections = []
    for number, line in enumerate(text.split("\n"), 1):
        if number == 1 or not line.strip() or line.startswith("Missing Debian packages"):
            continue
        if not line.startswith(" "):
            sections.append((line, []))
            continue
        commands = sections[-1][1]
        if entry := re.fullmatch(r"  (\S.*?)(?: {2,}(\S.*))?", line):
            commands.append(Command(entry[1], [entry[2]] if entry[2] else []))
        elif option := re.fullmatch(r" {33,35}(-[\w-]+): (.*)", line):
            commands[-1].options.append((option[1], [option[2]]))
        elif more := re.fullmatch(r" {33,}(\S.*)", line):
            # Text behind an option belongs to it.
            (commands[-1].options[-1][1] if commands[-1].options else commands[-1].text).append(more[1])
        else:
            sys.exit(f"make.py: line {number} of the help is not understood: {line}")
    if empty := [c.synopsis for _, found in sections for c in found if not c.text]:
        sys.exit(f"make.py: the help does not say what this does: {', '.join(empty)}")
    return sections


def roff(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def sentence(lines):
    """The lines as text that begins with a capital letter and ends with a full stop."""
    text = " ".join(lines).rstrip(";.")
    wrapped = textwrap.wrap(text[:1].upper() + text[1:] + ".", 72, break_long_words=False, break_on_hyphens=False)
    # A line that begins with one of these would be a command of roff.
    return "\n".join(re.sub(r"^([.'])", r"\\&\1", roff(line)) for line in wrapped)


def synopsis(text):
    """Words in lower case and options are typed, words in capitals are replaced."""
    parts = re.split(r"((?<![\w-])(?:--?[a-zA-Z][\w-]*|[a-z]+)(?![\w.]))", text)
    out = ""
    for i, part in enumerate(parts):
        typed = i % 2 == 1 and part != "argument"
        out += (r"\fB" + roff(part) + r"\fR") if typed else re.sub(r"([A-Z][A-Z-]+|argument)", r"\\fI\1\\fR", roff(part))
    return out


def commands(sections):
    lines = []
    for title, found in sections:
        lines.append(f'.SS "{title}"')
        for command in found:
            lines += [".TP", synopsis(command.synopsis), sentence(command.text)]
            if command.options:
                lines.append(".RS")
                for option, text in command.options:
                    value = re.search(rf"{option}( \[?[A-Z]+\]?)(?=\])", command.synopsis)
                    lines += [".TP", synopsis(option + (value[1] if value else "")), sentence(text)]
                lines.append(".RE")
    return "\n".join(lines)


def page():
    text = subprocess.run([ROOT / "tools/gump", "help"], check=True, capture_output=True, text=True).stdout
    header = (ROOT / "api/include/gump/version.h").read_text()
    version = ".".join(re.findall(r"^#define GUMP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.M))
    template = (ROOT / "tools/man/tools-gump.1.in").read_text()
    return template.replace("\n@COMMANDS@\n", f"\n.SH COMMANDS\n{commands(parse(text))}\n").replace("@VERSION@", version)


def main():
    if len(sys.argv) == 2:
        pathlib.Path(sys.argv[1]).write_text(page())
    else:
        sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
