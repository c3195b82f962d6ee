#!/usr/bin/env python3
"""Takes the programs out of the pages for users, so that the tests compile and run them.

    extract.py FOLDER PAGE...

A program is a ```cpp block with `int main()`. It is named after the heading above it: the second program below "Worker
pool" in docs/cookbook.md is worker_pool_2. For each PAGE this writes, into FOLDER/<page>,

* <program>.cc: the block, in a namespace of its own below its includes, so that one executable holds the whole page;
* main.cc, which calls the program that its argument names;
* expected.json: the exit code and the output of each program.

The output is the ```text block that directly follows, or is not compared if there is none. After "```text exit=2" the program
has to end with that code, and the block is how its output and standard error begin; a line "..." stands for any lines.

Files that are as they should be are left alone, so a change of the text compiles nothing anew.
"""

import collections
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAIN = re.compile(r"^int main\(", re.M)

Block = collections.namedtuple("Block", "line heading info text")  # info: what follows the ```
Program = collections.namedtuple("Program", "name block output exit")


class PageError(Exception):
    pass


def blocks(text):
    """The fenced blocks of a page, with a None for the text or heading between two of them."""
    found, heading, at = [], "", 0
    fence = re.compile(r"^```(.*)\n(?:([\s\S]*?)\n)?```$|^#+ (?:\d+\. )?(.*)$", re.M)
    for match in fence.finditer(text):
        if text[at:match.start()].strip():
            found.append(None)  # prose
        at = match.end()
        if match[3] is not None:
            heading = match[3]
            found.append(None)
        else:
            code = match[2] + "\n" if match[2] else ""
            found.append(Block(text.count("\n", 0, match.start()) + 1, heading, match[1].strip(), code))
    return found


def is_program(block):
    return block is not None and block.info == "cpp" and MAIN.search(block.text)


def slug(heading):
    return re.sub(r"[^a-z0-9]+", "_", heading.lower()).strip("_")


def programs(page):
    """The programs of a page, in their order."""
    found, counts = [], collections.Counter()
    all_blocks = blocks(page.read_text())
    for block, following in zip(all_blocks, all_blocks[1:] + [None]):
        if not is_program(block):
            continue
        if not re.search(r"^int main\(\) \{$", block.text, re.M):
            raise PageError(f"{page}:{block.line}: a program of a page takes no arguments: int main() {{")
        name = slug(block.heading)
        counts[name] += 1
        if counts[name] > 1:
            name += f"_{counts[name]}"
        output, code = None, 0
        if following is not None and following.info.split()[:1] == ["text"]:
            output = following.text
            match = re.fullmatch(r"text(?: exit=(\d+))?", following.info)
            if not match:
                raise PageError(f"{page}:{following.line}: not understood: ```{following.info}")
            code = int(match[1] or 0)
        found.append(Program(name, block, output, code))
    if not found:
        raise PageError(f"{page}: there is no program on this page")
    return found


def source(page, namespace, block):
    """The block as a source file: its includes, and the rest in a namespace."""
    head, body = [], block.text.split("\n")
    while body and (not body[0] or body[0].startswith(("#include", "//"))):
        head.append(body.pop(0))
    if any(line.startswith("#include") for line in body):
        raise PageError(f"{page}:{block.line}: an #include comes after other code")
    origin = f'// From {page.relative_to(ROOT)}, "{block.heading}".\n'
    return origin + "\n".join(head) + f"\nnamespace {namespace} {{\n\n" + "\n".join(body) + f"\n}}  // namespace {namespace}\n"


def dispatcher(namespaces):
    """main.cc, for names and their namespaces."""
    declared = "".join(f"namespace {n} {{\nint main();\n}}\n" for n in namespaces.values())
    rows = "".join(f'    {{"{name}", {n}::main}},\n' for name, n in namespaces.items())
    return f"""#include <cstdio>
#include <cstring>

{declared}
struct DocsProgram {{
  const char* name;
  int (*run)();
}};

int main(int argc, char** argv) {{
  const DocsProgram programs[] = {{
{rows}  }};
  for (const DocsProgram& p : programs) {{
    if (argc == 2 && std::strcmp(argv[1], p.name) == 0) return p.run();
  }}
  std::fprintf(stderr, "usage: %s PROGRAM, which is one of\\n", argv[0]);
  for (const DocsProgram& p : programs) std::fprintf(stderr, "  %s\\n", p.name);
  return 3;
}}
"""


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def extract(folder, page):
    folder = folder / page.stem.lower()
    folder.mkdir(parents=True, exist_ok=True)
    found = programs(page)
    namespaces = {p.name: f"docs_{page.stem.lower()}_{p.name}" for p in found}
    for p in found:
        write(folder / f"{p.name}.cc", source(page, namespaces[p.name], p.block))
    write(folder / "main.cc", dispatcher(namespaces))
    write(folder / "expected.json", json.dumps({p.name: {"output": p.output, "exit": p.exit} for p in found}, indent=1) + "\n")
    for path in folder.glob("*.cc"):
        if path.stem not in namespaces and path.stem != "main":
            path.unlink()


def main():
    folder, *pages = sys.argv[1:]
    try:
        for page in pages:
            extract(pathlib.Path(folder), ROOT / page)
    except PageError as e:
        sys.exit(f"extract.py: {e}")


if __name__ == "__main__":
    main()
