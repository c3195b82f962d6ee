#!/usr/bin/env python3
"""Types the beginning of a command into a shell, presses the tabulator key, and compares what the shell makes of it.

    complete_test.py bash|zsh|fish

Exit code 77: the shell is not installed.
"""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
COMPLETION = ROOT / "tools/completion"
TIMEOUT = 60
# What is typed, and the line after the tabulator key.
LINES = [
    ("tools/gump dem", "tools/gump demo "),
    ("tools/gump test --pre", "tools/gump test --preset "),
    ("tools/gump test --preset dev-c", "tools/gump test --preset dev-clang "),
    ("tools/gump demo prime", "tools/gump demo prime_sieve "),
    ("tools/gump model --list sema_han", "tools/gump model --list sema_handoff "),
    ("tools/gump mutants mutex_no_b", "tools/gump mutants mutex_no_barrier "),
    ("tools/gump run docs/examples/prime", "tools/gump run docs/examples/prime_sieve.cc "),
    ("tools/gump trace --li", "tools/gump trace --live "),
    ("tools/gump install docs/deci", "tools/gump install docs/decisions/"),
]


class Shell:
    """A shell on a terminal, in which Ctrl-X prints the line of the editor between two marks."""

    def __init__(self, command, environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvpe(command[0], command, os.environ | environment)
        self.output = ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def until(self, pattern):
        end = time.monotonic() + TIMEOUT
        while not (found := re.search(pattern, self.output)):
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"never seen: {pattern}\n{self.output[-2000:]}")
            self.output += os.read(self.fd, 4096).decode(errors="replace")
        self.output = self.output[found.end():]
        return found

    def line_after(self, typed):
        # Ctrl-U empties the line. Ctrl-X prints the line of the editor.
        self.type("\x15" + typed + "\t\x18")
        return self.until(r"<line\[(.*?)\]>")[1]

    def end(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def bash(folder):
    rc = folder / "rc"
    rc.write_text(f"source {COMPLETION}/gump.bash\n"
                  "show() { printf '<line[%s]>' \"$READLINE_LINE\"; }\n"
                  "bind -x '\"\\C-x\": show'; bind 'set enable-bracketed-paste off'; PS1='ready> '\n")
    return Shell(["bash", "--noprofile", "--rcfile", str(rc), "-i"], {"TERM": "dumb", "HISTFILE": ""})


def zsh(folder):
    (folder / ".zshrc").write_text(
        f"fpath=({COMPLETION} $fpath); autoload -Uz compinit; compinit -u -D\n"
        "show() { print -rn -- \"<line[$BUFFER]>\" }; zle -N show; bindkey '^X' show; bindkey '^U' kill-whole-line\n"
        "unsetopt zle_bracketed_paste; KEYTIMEOUT=1; PS1='ready> '\n")
    return Shell(["zsh", "-d", "-i"], {"TERM": "dumb", "ZDOTDIR": str(folder), "HISTFILE": ""})


def typed_lines(shell):
    shell.until("ready> ")
    for typed, expected in LINES:
        yield typed, expected, shell.line_after(typed)


def fish_lines(folder):
    """fish has a command that completes a line."""
    environment = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    for typed, expected in LINES:
        script = f"source {COMPLETION}/gump.fish; complete -C {typed!r}"
        end = subprocess.run(["fish", "--no-config", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        found = [line.split("\t")[0] for line in end.stdout.splitlines()]
        head = typed.rpartition(" ")[0] + " "
        line = head + found[0] if len(found) == 1 else f"{found} {end.stderr}"
        yield typed, expected, line if line.endswith("/") else line + " "


def main():
    name = sys.argv[1]
    if not shutil.which(name):
        print(f"complete_test: skipped, because {name} is not installed")
        return 77
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shell = {"bash": bash, "zsh": zsh}[name](folder) if name != "fish" else None
        for typed, expected, line in typed_lines(shell) if shell else fish_lines(folder):
            if line != expected:
                print(f"{name}: {typed!r} became {line!r} instead of {expected!r}")
                bad += 1
        if shell:
            shell.end()
    print(f"complete_test: {name}, {len(LINES)} lines, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
