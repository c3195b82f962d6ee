#!/usr/bin/env python3
"""Types the beginning of a command into a shell, presses the tabulator key, and compares what the shell makes of it.

    complete_test.py bash|zsh|fish            tools/gump, with the files of tools/completion
    complete_test.py bash|zsh|fish PREFIX     the command gump that is installed in PREFIX, with the files there

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
INSTALLED_LINES = [
    ("gump ver", "gump version "),
    ("gump run --h", "gump run --hooks "),
    ("gump run docs/examples/prime", "gump run docs/examples/prime_sieve.cc "),
    ("gump run docs/examples/prime_sieve.cc READ", "gump run docs/examples/prime_sieve.cc README.md "),
    ("gump trace README.md --p", "gump trace README.md --perfetto "),
    ("gump gdb READ", "gump gdb README.md "),
    ("tools/gump test --pre", "tools/gump test --preset "),  # the files serve a clone as well
]


class Completion:
    """The files of completion, and the command that they complete."""

    def __init__(self, prefix):
        share = prefix / "share" if prefix else None
        self.bash = share / "bash-completion/completions/gump" if prefix else ROOT / "tools/completion/gump.bash"
        self.zsh = share / "zsh/vendor-completions" if prefix else ROOT / "tools/completion"  # a folder
        self.fish = share / "fish/vendor_completions.d/gump.fish" if prefix else ROOT / "tools/completion/gump.fish"
        self.lines = INSTALLED_LINES if prefix else LINES
        self.environment = {"PATH": f"{prefix}/bin:{os.environ['PATH']}"} if prefix else {}


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


def bash(folder, completion):
    rc = folder / "rc"
    rc.write_text(f"source {completion.bash}\n"
                  "show() { printf '<line[%s]>' \"$READLINE_LINE\"; }\n"
                  "bind -x '\"\\C-x\": show'; bind 'set enable-bracketed-paste off'; PS1='ready> '\n")
    return Shell(["bash", "--noprofile", "--rcfile", str(rc), "-i"], {"TERM": "dumb", "HISTFILE": ""} | completion.environment)


def zsh(folder, completion):
    (folder / ".zshrc").write_text(
        f"fpath=({completion.zsh} $fpath); autoload -Uz compinit; compinit -u -D\n"
        "show() { print -rn -- \"<line[$BUFFER]>\" }; zle -N show; bindkey '^X' show; bindkey '^U' kill-whole-line\n"
        "unsetopt zle_bracketed_paste; KEYTIMEOUT=1; PS1='ready> '\n")
    return Shell(["zsh", "-d", "-i"], {"TERM": "dumb", "ZDOTDIR": str(folder), "HISTFILE": ""} | completion.environment)


def typed_lines(shell, completion):
    shell.until("ready> ")
    for typed, expected in completion.lines:
        yield typed, expected, shell.line_after(typed)


def fish_lines(folder, completion):
    """fish has a command that completes a line."""
    environment = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)} | completion.environment
    for typed, expected in completion.lines:
        script = f"source {completion.fish}; complete -C {typed!r}"
        end = subprocess.run(["fish", "--no-config", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        found = [line.split("\t")[0] for line in end.stdout.splitlines()]
        head = typed.rpartition(" ")[0] + " "
        line = head + found[0] if len(found) == 1 else f"{found} {end.stderr}"
        yield typed, expected, line if line.endswith("/") else line + " "


def main():
    name = sys.argv[1]
    completion = Completion(pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) == 3 else None)
    if not shutil.which(name):
        print(f"complete_test: skipped, because {name} is not installed")
        return 77
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shell = {"bash": bash, "zsh": zsh}[name](folder, completion) if name != "fish" else None
        for typed, expected, line in typed_lines(shell, completion) if shell else fish_lines(folder, completion):
            if line != expected:
                print(f"{name}: {typed!r} became {line!r} instead of {expected!r}")
                bad += 1
        if shell:
            shell.end()
    print(f"complete_test: {name}, {len(completion.lines)} lines, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
