#!/usr/bin/env python3
"""No function of gump keeps a thread-local address across a switch: check_tls.py PROGRAM [KNOWN...].

A goroutine may come back from a switch on another thread. Compilers, for which a thread never changes under a function,
keep such addresses in registers. So this reads the disassembly of a linked x86-64 program and holds the functions of
gump, and the templates over its types, to three rules.

 (T1) The segment of the thread is only accessed at a constant offset: the stack protector's, or gumpTlsG's, which is
      what getg(), setg() and asm_amd64.S use. The offset is the same on all threads, so a compiler may keep it. Code
      that reads the thread pointer itself, as in `mov %fs:0x0,%rax`, is about to compute an address and keep it.
 (T2) No code asks for the address of a thread_local: no __tls_get_addr, TLS descriptor or wrapper of a thread_local.
 (T3) A call that returns such an address, like errno's, is made only by a function from which direct calls reach no
      switch, or by one of ALLOWED.

Calls through pointers are not followed. KNOWN is the beginning of the report of a bug that the program has on purpose. It
must be reported, and does not count.
"""

import re
import subprocess
import sys

OURS = re.compile(r"gump[A-Z]\w*$|_Z\w*4gump")
SWITCHES = {"gumpMcall", "gumpSwitch"}
STACK_PROTECTOR = 0x28

# These return addresses, or the number, of the calling thread.
ADDRESSES = re.compile(
    r"(__errno_location|__h_errno_location|__res_state|__ctype_\w+_loc|pthread_self|__cxa_get_globals(_fast)?)$"
)
TLS_CALLS = re.compile(r"__tls_get_addr$|_ZTW|_ZTH")

# Functions that may break (T3), and why that does no harm.
ALLOWED = {
    # minit, and those that contain it. They run on the thread's own stack, which no switch takes to another thread,
    # and minit leaves the addresses in the M of that thread.
    "gump::rt::minit",
    "gump::rt::mstart",
    "gump::rt::threadMain",
    "gump::rt::runMain",
    # The goroutine that it preempts in place is bound to the thread, and sleeps inside the handler.
    "gump::rt::onUrg",
    # It is called with m.locks raised, so the goroutine keeps its thread.
    "gump::rt::reportHeldLocks",
}

FUNCTION = re.compile(r"[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r" *[0-9a-f]+:\t(.+)")
TARGET = re.compile(r"(?:call|jmp|j[a-z]+)\s.*<([^+>]+)")
SEGMENT = re.compile(r"%fs:(-?0x[0-9a-f]+)?(\(\S*\))?")
CONSTANT = re.compile(r"mov\s+\$(0x[0-9a-f]+),(%\w+)$")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def readable(name):
    return run("c++filt", name).strip().replace("(anonymous namespace)::", "")


def whole(name):
    """The function to which a symbol belongs: a call by way of the PLT, a cold part or a clone is the function's."""
    return re.sub(r"(@|\.(cold|part|constprop|isra|lto_priv|llvm|localalias)\b).*", "", name)


def functions_of(program):
    """Name to instructions, with the parts of a function that were split off."""
    functions = {}
    body = None
    for line in run("objdump", "-d", "--no-show-raw-insn", program).splitlines():
        if match := FUNCTION.match(line):
            body = functions.setdefault(whole(match[1]), [])
        elif body is not None and (match := INSTRUCTION.match(line)):
            body.append(match[1].split("#")[0].strip())
    return functions


def as_signed(text):
    value = int(text or "0", 16)
    return value - (1 << 64) if value >> 63 else value


def offset_of_current_g(program):
    """gumpTlsG's distance from the thread pointer: the thread-local segment ends there, rounded up."""
    segment = re.search(r"^ +TLS +(.*)$", run("readelf", "-lW", program), re.M)[1].split()
    size, alignment = int(segment[4], 16), int(segment[-1], 16)
    symbol = re.search(r"^ *\d+: ([0-9a-f]+) .* TLS .* gumpTlsG$", run("readelf", "-sW", program), re.M)
    return int(symbol[1], 16) - (size + alignment - 1) // alignment * alignment


def register(name):
    """One name for a register and its lower half."""
    return re.sub(r"%[er]?([a-z]{2})$|%(r\d+)[dwb]?$", r"\1\2", name)


def accesses(body):
    """The instructions that access the thread's segment, with the offset, or None for one that is not a constant."""
    constants = {}
    for instruction in body:
        if match := SEGMENT.search(instruction):
            base = constants.get(register(match[2].strip("()"))) if match[2] else 0
            yield instruction, None if base is None else base + as_signed(match[1])
        elif re.match(r"(rd|wr)fsbase", instruction):
            yield instruction, None
        if match := CONSTANT.match(instruction):
            constants[register(match[2])] = as_signed(match[1])
        elif match := re.search(r"(%\w+)$", instruction):
            constants.pop(register(match[1]), None)


def reaching(targets, callees):
    """The functions from which direct calls lead to one of targets."""
    callers = {}
    for function, called in callees.items():
        for callee in called:
            callers.setdefault(callee, set()).add(function)
    found, todo = set(), list(targets)
    while todo:
        for caller in callers.get(todo.pop(), ()):
            if caller not in found:
                found.add(caller)
                todo.append(caller)
    return found


def main():
    program, *known = sys.argv[1:]
    functions = functions_of(program)
    current_g = offset_of_current_g(program)
    callees = {
        name: {whole(match[1]) for instruction in body if (match := TARGET.match(instruction))} - {name}
        for name, body in functions.items()
    }
    switching = reaching(SWITCHES, callees)
    ours = sorted(name for name in functions if OURS.match(name))
    problems, reads, addresses = [], 0, 0
    for name in ours:
        for instruction, offset in accesses(functions[name]):
            reads += offset == current_g
            if offset not in (STACK_PROTECTOR, current_g):
                problems.append(f"{readable(name)}: T1: {instruction}")
        for callee in callees[name]:
            if TLS_CALLS.match(callee):
                problems.append(f"{readable(name)}: T2: calls {callee}")
            elif ADDRESSES.match(callee):
                addresses += 1
                if name in switching and readable(name).partition("(")[0] not in ALLOWED:
                    problems.append(f"{readable(name)}: T3: calls {callee}, and may switch")
    for problem in problems:
        print(problem)
    unseen = [text for text in known if not any(p.startswith(text) for p in problems)]
    for text in unseen:
        print(f"check_tls: not reported: {text}")
    problems = [p for p in problems if not p.startswith(tuple(known))]
    print(
        f"check_tls: {len(ours)} functions of gump, {len(switching)} that may switch, {reads} accesses to gumpTlsG, "
        f"{addresses} functions with addresses of the thread, {len(problems)} problems"
    )
    # A checker that does not see the code that must be there is broken.
    if not SWITCHES <= set(ours) or "gumpOnG0" not in ours or reads < 30:
        print("check_tls: this does not look like a program of gump")
        return 2
    return 1 if problems or unseen else 0


if __name__ == "__main__":
    sys.exit(main())
