"""gdb commands for programs that use gumption, in live processes and in cores.

  info goroutines [-group state|where|maker] [-with TEXT] [-system]
  goroutine N [COMMAND]               state of goroutine N, or COMMAND in its stack: bt, frame 3, info locals, p x
  goroutine apply all|N[-M]... COMMAND
  gump gcore FILE                     a core with the stacks of all goroutines
  gump sched                          the scheduler: Ps, threads, queues, as GODEBUG=scheddetail prints it
  print x                             shows channels, locks, wait groups, contexts and statuses by what they mean

Nothing here runs code of the program or changes its memory or its registers. A goroutine that is parked has its
registers in a frame on its own stack. For the time of a command, an unwinder says that this frame called the innermost
frame of the selected thread. So the stack of the goroutine is an ordinary stack to gdb, from frame 1 on.

The script learns where things are from the table gump_rt_layout in the library (runtime/diag/debugger.h). It needs no
debug information of the library. The printers need that of the program.
"""
import contextlib
import re
import struct
from datetime import datetime, timedelta, timezone

import gdb
import gdb.printing
import gdb.unwinder

SHOWN_PER_GROUP = 5
MOST_FRAMES = 64  # that a search for the program's own function looks at
END = 0x10000  # entries of a table, at most


# ---- Memory

def memory(address, size):
    return gdb.selected_inferior().read_memory(address, size).tobytes()


def u32(address):
    return struct.unpack("<I", memory(address, 4))[0]


def i32(address):
    return struct.unpack("<i", memory(address, 4))[0]


def u64(address):
    return struct.unpack("<Q", memory(address, 8))[0]


def text(address, most=4096):
    """The C string at the address, or "" for a null pointer."""
    out = b""
    while address and len(out) < most:
        # Up to the end of a page, so that it never reads beyond the last mapped one.
        chunk = memory(address + len(out), 64 - (address + len(out)) % 64)
        end = chunk.find(b"\0")
        if end >= 0:
            return (out + chunk[:end]).decode(errors="replace")
        out += chunk
    return out.decode(errors="replace")


def address_of(symbol):
    """The address of a symbol that may have no debug information, or None."""
    try:
        return int(gdb.parse_and_eval(f"(unsigned long)&{symbol}"))
    except gdb.error:
        return None


class Table:
    """The names, numbers and addresses of one exported table."""

    def __init__(self, at):
        self.entries = {}
        for i in range(END):
            name, number, address = struct.unpack("<QQQ", memory(at + 24 * i, 24))
            if name == 0:
                return
            self.entries[text(name)] = (number, address)

    def _entry(self, name):
        if name not in self.entries:
            raise gdb.GdbError(f"gump: the library of this program does not tell {name}; use the script of its version")
        return self.entries[name]

    def __getitem__(self, name):
        return self._entry(name)[0]

    def at(self, name):
        return self._entry(name)[1]


_tables = {}


def table(symbol):
    at = address_of(symbol)
    if at is None:
        return None
    if at not in _tables:
        _tables[at] = Table(at)
    return _tables[at]


def layout():
    t = table("gump_rt_layout")
    if t is None:
        raise gdb.GdbError("gump: there is no gump_rt_layout: the program does not use the library, is stripped, or "
                           "has not loaded it yet")
    if t["version"] != 1:
        raise gdb.GdbError(f"gump: the library's layout has version {t['version']}; this script knows version 1")
    return t


def forget_tables(_event=None):
    """The next program, or the same at another address, has other tables."""
    _tables.clear()


# ---- Goroutines

class G:
    """A goroutine, as its cell describes it. The constructor copies the cell."""

    FIELDS = {
        "sp": ("G.sched.sp", "<Q"), "fresh": ("G.sched.fresh", "<Q"), "m": ("G.m", "<Q"), "stack": ("G.stack.lo", "<Q"),
        "raw_status": ("G.atomicstatus", "<I"), "id": ("G.goid", "<Q"), "reason": ("G.waitreason", "<B"),
        "foreign": ("G.foreign", "<?"), "system": ("G.systemG", "<?"), "in_place": ("G.inPlace", "<?"),
        "maker_pc": ("G.gopc", "<Q"), "parent": ("G.parentGoid", "<Q"), "lockedm": ("G.lockedm", "<Q"),
        "name_at": ("G.name", "<Q"), "labelled": ("G.labelled", "<?"), "gls": ("G.gls", "<Q"),
        "bubble": ("G.bubble", "<Q"), "other_stack": ("G.onOtherStack", "<?"),
        "group": ("G.group", "<I"), "group_flags": ("G.groupFlags", "<B"),
    }

    def __init__(self, lay, address, cell):
        self.lay, self.address = lay, address
        for name, (field, form) in self.FIELDS.items():
            setattr(self, name, struct.unpack_from(form, cell, lay[field])[0])
        self.status = self.raw_status & ~(lay["kGscan"] | lay["kGtracked"] | lay["kGhibernated"])

    @property
    def exists(self):
        return self.status not in (self.lay["kGdead"], self.lay["kGidle"])

    @property
    def begun(self):
        return self.stack != 0 and not self.fresh

    def state(self):
        """The words in the brackets of a dump."""
        lay = self.lay
        if self.status == lay["kGwaiting"]:
            if self.reason and self.reason < lay["kWaitReasonText"]:
                out = text(u64(lay.at("kWaitReasonText") + 8 * self.reason))
            else:
                out = "waiting"
        else:
            out = {lay["kGrunnable"]: "runnable", lay["kGrunning"]: "running",
                   lay["kGsyscall"]: "syscall"}.get(self.status, f"status {self.status}")
        home = u64(self.lockedm + lay["M.home"]) if self.lockedm else 0
        if home:
            out += f', on thread "{text(home + lay["Home.name"])}"'
        elif self.lockedm and not self.in_place and not self.other_stack:
            out += ", locked to thread"
        if self.bubble:
            out += f", synctest bubble {u32(self.bubble + lay['Bubble.id'])}"
        if self.group:
            chunk, cell = divmod(self.group, lay["kGroupChunk"])
            at = u64(lay.at("groupChunks") + 8 * chunk) + cell * lay["sizeof Group"]
            out += f', group "{text(at + lay["Group.shortName"])}"'
            if self.group_flags == lay["kGroupQueued"]:
                out += " full"
        return out

    def labels(self):
        """The labels and the name as a dump shows them behind the brackets, or nothing."""
        lay, pairs = self.lay, {}
        if self.name_at:
            pairs["name"] = text(self.name_at)
        node = self.gls if self.labelled else 0
        while node and u64(node + lay["LocalNode.key"]) not in (lay.at("kDoKey"), lay.at("kLabelsKey")):
            node = u64(node + lay["LocalNode.next"])
        labels = u64(node + lay["LocalNode.value"]) if node else 0
        for i in range(u32(labels + lay["LabelSet.n"]) if labels else 0):
            at = labels + lay["LabelSet.of"] + i * lay["sizeof Label"]
            pairs[text(u64(at + lay["Label.key"]))] = text(u64(at + lay["Label.value"]))
        return f" {{{', '.join(f'{key}: {value}' for key, value in sorted(pairs.items()))}}}" if pairs else ""

    def thread(self):
        """The gdb thread that has the goroutine's registers, or None if they are in its saved frame."""
        if self.status in (self.lay["kGrunning"], self.lay["kGsyscall"]) or self.foreign:
            m = self.m
        elif self.in_place or self.other_stack:
            m = self.lockedm
        else:
            m = 0
        return thread_of(i32(m + self.lay["M.procid"])) if m else None

    def saved_registers(self):
        """The registers with which the goroutine goes on, from the frame that the switch left on its stack."""
        size = self.lay["sizeof frame"]
        frame = memory(self.sp, size)
        regs = {name[len("frame."):]: struct.unpack_from("<Q", frame, offset)[0]
                for name, (offset, _) in self.lay.entries.items() if name.startswith("frame.")}
        regs["rsp" if "rip" in regs else "sp"] = self.sp + size
        return regs

    def maker(self):
        if not self.maker_pc:
            return ""
        return f"{function_at(self.maker_pc - 1)} in goroutine {self.parent}"


def thread_of(tid):
    for t in gdb.selected_inferior().threads():
        if t.is_valid() and tid in (t.ptid[1], t.ptid[2]):
            return t
    return None


def goroutines(system=False):
    """Every goroutine that exists, in the order of the cells. Those of the runtime only with `system`."""
    lay = layout()
    slab, size = u64(lay.at("gSlabs")), lay["sizeof G"]
    while slab:
        used = u32(slab + lay["GSlab.used"])
        at = u64(slab + lay["GSlab.cells"])
        cells = memory(at, used * size) if used else b""
        for i in range(used):
            g = G(lay, at + i * size, cells[i * size:(i + 1) * size])
            if g.exists and (system or not (g.system or g.foreign)):
                yield g
        slab = u64(slab + lay["GSlab.next"])


def goroutine(number):
    for g in goroutines(system=True):
        if g.id == number:
            return g
    raise gdb.GdbError(f"gump: there is no goroutine {number}")


# ---- Stacks

class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class ParkedGoroutine(gdb.unwinder.Unwinder):
    """Says, while `registers` is set, that frame 0 was called with these registers."""

    def __init__(self):
        super().__init__("gump")
        self.registers = None

    def __call__(self, frame):
        # The selected thread's frame 0 is the only one that is still without an older frame when this is asked first.
        if self.registers is None or frame.level() != 0:
            return None
        regs = self.registers
        sp = regs.get("rsp", regs.get("sp"))
        # gdb refuses a caller whose frame is not above that of frame 0.
        info = frame.create_unwind_info(FrameId(gdb.Value(sp - 64).cast(pointer()), gdb.Value(0).cast(pointer())))
        for name, value in regs.items():
            info.add_saved_register(name, gdb.Value(value).cast(pointer()))
        return info


def pointer():
    return gdb.lookup_type("void").pointer()


_parked = ParkedGoroutine()


@contextlib.contextmanager
def selected(g):
    """Selects the innermost frame of g. Gives True if frame 0 of the stack is not g's, and restores the selection."""
    old_thread = gdb.selected_thread()
    if old_thread is None:
        raise gdb.GdbError("gump: the program does not run")
    old_frame = gdb.selected_frame()
    old_level = old_frame.level()
    thread = g.thread()
    try:
        if thread is not None:
            thread.switch()
            gdb.newest_frame().select()
            yield False
        elif not g.begun:
            raise gdb.GdbError(f"goroutine {g.id} has not begun")
        elif g.status in (g.lay["kGrunning"], g.lay["kGsyscall"]):
            raise gdb.GdbError(f"goroutine {g.id} runs on a thread that gdb does not see")
        else:
            _parked.registers = g.saved_registers()
            gdb.invalidate_cached_frames()
            gdb.newest_frame().older().select()
            yield True
    finally:
        if _parked.registers is not None:
            _parked.registers = None
            gdb.invalidate_cached_frames()
        old_thread.switch()
        frame = gdb.newest_frame()
        while frame.level() < old_level and frame.older() is not None:
            frame = frame.older()
        frame.select()


def function_at(pc):
    block = gdb.execute(f"info symbol {pc:#x}", to_string=True)
    return re.sub(r" \+ \d+ in section.*| in section.*|^No symbol.*", "", block.strip()) or f"{pc:#x}"


def is_ours(name):
    """True for functions of the library, which do not say where a program waits."""
    return name is None or name.startswith(("gump::", "gump", "std::", "__", "syscall", "epoll", "futex"))


def where():
    """The innermost function of the program in the selected stack, with its line if gdb knows it."""
    frame, last = gdb.selected_frame(), None
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        name = frame.name()
        if name is not None and frame.type() == gdb.NORMAL_FRAME:
            last = frame
            if not is_ours(re.sub(r"^.*? (?=gump::)", "", name)):
                break
        frame = frame.older()
    if last is None:
        return "?"
    sal = last.find_sal()
    line = f" at {sal.symtab.filename.rsplit('/', 1)[-1]}:{sal.line}" if sal.symtab else ""
    return function_name(last) + line


def function_name(frame):
    """The name of the frame's function, without its parameters."""
    name = frame.name()
    if name.endswith("operator()"):  # of a lambda; the symbol names the function around it
        return re.sub(r"\(\)( const)?$", "", function_at(frame.pc()))
    return re.sub(r"\([^()]*\)( const)?$", "", name)


def where_of(g):
    if g.thread() is None and not g.begun:
        return "not begun"
    try:
        with selected(g):
            return where()
    except (gdb.error, gdb.MemoryError) as e:
        return f"? ({e})"


# ---- Commands

def say(line):
    gdb.write(line + "\n")


class InfoGoroutines(gdb.Command):
    """List goroutines: number, state, where in the program they are, name.
Usage: info goroutines [-group state|where|maker] [-with TEXT] [-system]
-group: count those that have the same state, place, or creator, and show 5 of each. -with: only those with TEXT in
their line. -system: those of the runtime and of plain threads, too. A * marks the goroutine of the selected thread."""

    def __init__(self):
        super().__init__("info goroutines", gdb.COMMAND_STACK)

    def invoke(self, arg, _tty):
        group, wanted, system = None, None, False
        args = gdb.string_to_argv(arg)
        while args:
            option = args.pop(0)
            if option == "-system":
                system = True
            elif option == "-group" and args and args[0] in ("state", "where", "maker"):
                group = args.pop(0)
            elif option == "-with" and args:
                wanted = args.pop(0)
            else:
                raise gdb.GdbError("usage: info goroutines [-group state|where|maker] [-with TEXT] [-system]")
        here = gdb.selected_thread()
        groups, count = {}, 0
        for g in goroutines(system):
            # A stack costs a millisecond, so it is walked only if its place is asked for.
            place = where_of(g) if group in (None, "where") or wanted is not None else ""
            labels = g.labels()
            thread = g.thread()
            on = f" (thread {thread.num})" if thread is not None else ""
            mark = "*" if thread is not None and here is not None and thread.num == here.num else " "
            line = f"{mark} {g.id:<6} {g.state() + on:<32} {place}{labels}"
            if wanted is not None and wanted not in line and wanted not in g.maker():
                continue
            count += 1
            if group is None:
                say(line.rstrip())
                continue
            key = {"state": g.state, "where": lambda p=place: p, "maker": lambda g=g: g.maker() or "Run"}[group]()
            members = groups.setdefault(key, [0, []])
            members[0] += 1
            if len(members[1]) < SHOWN_PER_GROUP:
                members[1].append(line.rstrip())
        for key, (n, lines) in sorted(groups.items(), key=lambda item: -item[1][0]):
            say(f"{n} goroutine{'s' if n > 1 else ''}: {key}")
            for line in lines:
                say("  " + line)
            if n > len(lines):
                say(f"    ... and {n - len(lines)} more")
        say(f"{count} goroutine{'s' if count != 1 else ''}")


def run_in(g, command):
    """Executes a command of gdb in the stack of g."""
    with selected(g) as first_is_foreign:
        word, _, rest = command.partition(" ")
        if not first_is_foreign or word not in ("bt", "backtrace", "where"):
            gdb.execute(command)
            return
        # Frame 0 is that of the thread.
        if re.fullmatch(r"\d+", rest.strip()):
            rest = str(int(rest) + 1)
        out = gdb.execute(f"{word} {rest}", to_string=True)
        gdb.write(re.sub(r"\A#0 .*\n(?:(?!#).*\n)*", "", out))


class Goroutine(gdb.Command):
    """Execute a command of gdb in the stack of a goroutine, or show the goroutine's state.
Usage: goroutine N [COMMAND]
       goroutine apply all|N[-M]... COMMAND
The stack of a goroutine that is on no thread begins with frame 1. Frame 0 is that of the selected thread."""

    def __init__(self):
        super().__init__("goroutine", gdb.COMMAND_STACK)

    def invoke(self, arg, _tty):
        word, _, rest = arg.strip().partition(" ")
        if word == "apply":
            self.apply(rest.strip())
        elif word == "all":  # as in Go's script
            self.apply(arg.strip())
        elif re.fullmatch(r"\d+", word):
            g = goroutine(int(word))
            if rest.strip():
                run_in(g, rest.strip())
            else:
                self.show(g)
        else:
            raise gdb.GdbError("usage: goroutine N [COMMAND], or goroutine apply all|N[-M]... COMMAND")

    def show(self, g):
        say(f"goroutine {g.id} [{g.state()}]{g.labels()}")
        thread = g.thread()
        say(f"  at {where_of(g)}" + (f", on thread {thread.num}" if thread is not None else ""))
        if g.maker():
            say(f"  created by {g.maker()}")
        say(f"  G {g.address:#x}, M {g.m:#x}, stack from {g.stack:#x}")

    def apply(self, arg):
        wanted = []
        while True:
            word, _, rest = arg.partition(" ")
            if word == "all":
                wanted = None
            elif re.fullmatch(r"\d+(-\d+)?", word):
                first, _, last = word.partition("-")
                wanted.append((int(first), int(last or first)))
            else:
                break
            arg = rest.strip()
        if not arg or wanted == []:
            raise gdb.GdbError("usage: goroutine apply all|N[-M]... COMMAND")
        for g in goroutines():
            if wanted is not None and not any(a <= g.id <= b for a, b in wanted):
                continue
            say(f"\ngoroutine {g.id} [{g.state()}]{g.labels()}:")
            try:
                run_in(g, arg)
            except (gdb.error, gdb.GdbError) as e:
                say(str(e))


class Gump(gdb.Command):
    """Commands for the runtime of gumption."""

    def __init__(self):
        super().__init__("gump", gdb.COMMAND_DATA, prefix=True)


class GumpGcore(gdb.Command):
    """Write a core of the live process, with the stacks of all goroutines.
Usage: gump gcore FILE
gdb's own gcore gives up on a mapping at the first page that it cannot read. The guard page of a stack is such a page, if
the kernel has MADV_GUARD_INSTALL (Linux 6.13), and many stacks share a mapping. This command lets gcore write, and then
fills in what it left out."""

    def __init__(self):
        super().__init__("gump gcore", gdb.COMMAND_DATA, gdb.COMPLETE_FILENAME)

    def invoke(self, arg, _tty):
        names = gdb.string_to_argv(arg)
        if len(names) != 1:
            raise gdb.GdbError("usage: gump gcore FILE")
        out = gdb.execute(f"gcore {names[0]}", to_string=True)
        gdb.write(out)
        with open(names[0], "r+b") as core:
            for offset, start, size in self.segments(core):
                self.fill(core, offset, start, size)

    @staticmethod
    def segments(core):
        """The loadable segments of an ELF core of 64 bits: offset in the file, address, size."""
        header = core.read(64)
        first, = struct.unpack_from("<Q", header, 32)
        entry, count = struct.unpack_from("<HH", header, 54)
        for i in range(count):
            core.seek(first + i * entry)
            kind, _, offset, start, _, size = struct.unpack("<IIQQQQ", core.read(40))
            if kind == 1:  # PT_LOAD
                yield offset, start, size

    def fill(self, core, offset, start, size):
        """Copies the pages that can be read and that are all zero in the core."""
        at = 0
        while at < size:
            n = min(1 << 20, size - at)
            core.seek(offset + at)
            if not any(core.read(n)):
                self.copy(core, offset + at, start + at, n)
            at += n

    def copy(self, core, offset, start, size):
        try:
            data = memory(start, size)
        except gdb.MemoryError:
            if size > 4096:  # halves, until the page that cannot be read is alone
                half = size // 2 // 4096 * 4096 or 4096
                self.copy(core, offset, start, half)
                self.copy(core, offset + half, start + half, size - half)
            return
        if any(data):
            core.seek(offset)
            core.write(data)


class GumpSched(gdb.Command):
    """Print the state of the scheduler: Ps, threads and queues, in the words of GODEBUG=scheddetail."""

    def __init__(self):
        super().__init__("gump sched", gdb.COMMAND_DATA)

    def invoke(self, _arg, _tty):
        lay = layout()
        sched = lay.at("sched")

        def field(name):
            return i32(sched + lay["Schedt." + name])

        def flag(name):
            return memory(sched + lay["Schedt." + name], 1) != b"\0"

        procs = i32(lay.at("gomaxprocs"))
        made = u64(sched + lay["Schedt.mnext"]) - u64(sched + lay["Schedt.nmfreed"])
        say(f"SCHED gomaxprocs={procs} idleprocs={field('npidle')} threads={made} spinningthreads={field('nmspinning')} "
            f"needspinning={field('needspinning')} idlethreads={field('nmidle')} lockedidle={field('nmidlelocked')} "
            f"runqueue={field('runqsize') + field('nposted')} gcwaiting={flag('gcwaiting')} stopwait={field('stopwait')} "
            f"sysmonwait={flag('sysmonwait')}")
        names = {lay[k]: k[2:] for k in ("kPidle", "kPrunning", "kPsyscall", "kPgcstop", "kPdead")}
        for i in range(procs):
            p = u64(lay.at("allp") + 8 * i)
            m = u64(p + lay["P.m"])
            ring = (u32(p + lay["P.runqtail"]) - u32(p + lay["P.runqhead"])) & 0xffffffff
            say(f"  P{i32(p + lay['P.id'])}: status={names.get(u32(p + lay['P.status']), '?')} "
                f"schedtick={u32(p + lay['P.schedtick'])} syscalltick={u32(p + lay['P.syscalltick'])} "
                f"m={self.m_id(lay, m)} runqsize={ring} runnext={self.g_id(lay, u64(p + lay['P.runnext']))} "
                f"gfreecnt={u32(p + lay['P.gFreeN'])} timerslen={u32(p + lay['P.timers.len'])}")
        m = u64(lay.at("allm"))
        while m:
            if i32(m + lay["M.procid"]):
                p = u64(m + lay["M.p"])
                pid = i32(p + lay["P.id"]) if p else "nil"
                say(f"  M{self.m_id(lay, m)}: tid={i32(m + lay['M.procid'])} p={pid} "
                    f"curg={self.g_id(lay, u64(m + lay['M.curg']))} locks={i32(m + lay['M.locks'])} "
                    f"spinning={memory(m + lay['M.spinning'], 1) != bytes(1)} "
                    f"blocked={memory(m + lay['M.blocked'], 1) != bytes(1)} "
                    f"lockedg={self.g_id(lay, u64(m + lay['M.lockedg']))}")
            m = u64(m + lay["M.alllink"])

    def m_id(self, lay, m):
        return struct.unpack("<q", memory(m + lay["M.id"], 8))[0] if m else "nil"

    def g_id(self, lay, g):
        return u64(g + lay["G.goid"]) if g else "nil"


# ---- Printers

def waiters(lay, first):
    """The goroutines of a wait queue of a channel."""
    out, sudog = [], u64(first)
    while sudog and len(out) < 1000:
        out.append(u64(u64(sudog + lay["Sudog.g"]) + lay["G.goid"]))
        sudog = u64(sudog + lay["Sudog.next"])
    return out


def waiting_text(numbers, verb):
    if not numbers:
        return ""
    shown = ", ".join(map(str, numbers[:SHOWN_PER_GROUP])) + (", ..." if len(numbers) > SHOWN_PER_GROUP else "")
    return f", {len(numbers)} wait to {verb} (goroutine{'s' if len(numbers) > 1 else ''} {shown})"


def number(value, form):
    """An integer of the program, such as an Atomic. gdb 13 crashes if it is asked for the inner parts of an object that
    the compiler keeps in pieces, so such an object is not printed."""
    if value.address is None:
        raise gdb.error("optimized into pieces")
    return struct.unpack(form, memory(int(value.address), struct.calcsize(form)))[0]


class Printer:
    """Turns what goes wrong in `describe` into text, as gdb does for its own."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        try:
            return self.describe()
        except (gdb.error, gdb.MemoryError, gdb.GdbError) as e:
            return f"<{e}>"


class ChanPrinter(Printer):
    def __init__(self, value):
        super().__init__(value)
        self.c = int(value["handle_"]["c_"])

    def _type(self):
        return self.value.type.strip_typedefs()

    def describe(self):
        name = str(self._type()).removeprefix("gump::")
        if not self.c:
            return f"{name} nil"
        lay = layout()
        closed = ", closed" if u32(self.c + lay["Hchan.closed"]) else ""
        return (f"{name} len {u64(self.c + lay['Hchan.qcount'])} cap {u64(self.c + lay['Hchan.dataqsiz'])}{closed}"
                + waiting_text(waiters(lay, self.c + lay["Hchan.recvq.first"]), "receive")
                + waiting_text(waiters(lay, self.c + lay["Hchan.sendq.first"]), "send"))

    def children(self):
        if not self.c:
            return
        lay = layout()
        count, size = u64(self.c + lay["Hchan.qcount"]), u64(self.c + lay["Hchan.elemsize"])
        cap, first = u64(self.c + lay["Hchan.dataqsiz"]), u32(self.c + lay["Hchan.recvx"])
        buffer = u64(self.c + lay["Hchan.buf"])
        element = self._type().template_argument(0)
        if element.code == gdb.TYPE_CODE_VOID or not size or not buffer:
            return
        for i in range(count):
            at = buffer + (first + i) % cap * size
            yield f"[{i}]", gdb.Value(at).cast(element.pointer()).dereference()

    def display_hint(self):
        return "array"


class MutexPrinter(Printer):
    """The bits of state_: kLocked, kWoken, kStarving, and the number of waiters above them (mutex.h)."""

    def describe(self):
        state = number(self.value["state_"], "<i")
        n = state >> 3
        return ("Mutex " + ("locked" if state & 1 else "unlocked") + (", starving" if state & 4 else "")
                + (f", {n} wait" if n else ""))


class RWMutexPrinter(Printer):
    """The counts and bits of state_ (rwmutex.h)."""

    def describe(self):
        state = number(self.value["state_"], "<Q")
        readers, closed, counted = state & ((1 << 30) - 1), state >> 31 & 1, state >> 30 & 1
        if not closed:
            return "RWMutex " + (f"locked by {readers} reader{'s' if readers > 1 else ''}" if readers else "unlocked")
        leaving = -(state >> 32) & 0xffffffff if counted else readers
        if leaving:
            return f"RWMutex a writer waits for {leaving} readers, {readers - leaving} readers wait"
        return f"RWMutex locked by a writer, {readers} readers wait"


class WaitGroupPrinter(Printer):
    def describe(self):
        state = number(self.value["state_"], "<Q")
        n = state & 0x7fffffff
        return f"WaitGroup {struct.unpack('<i', struct.pack('<I', state >> 32))[0]}" + (f", {n} wait" if n else "")


class ContextPrinter(Printer):
    def describe(self):
        node = int(self.value["ref_"]["n_"])
        if not node:
            return "context.Background"
        lay = table("gump_context_layout")
        if lay is None:
            return f"context {node:#x}"
        values, up = 0, node
        while up:
            values += "ValueNode" in function_at(u64(up))
            up = u64(up + lay["ContextNode.parent"])
        tail = f", {values} value{'s' if values > 1 else ''}" if values else ""
        cancel = u64(node + lay["ContextNode.cancel"])
        if not cancel:
            return "context without cancellation" + tail
        state = u32(cancel + lay["CancelNode.state_"]) & 3
        seconds, quarters = struct.unpack("<qI", memory(cancel + lay["CancelNode.deadline_"], 12))
        deadline = ""
        if quarters != 0xffffffff:
            when = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds, microseconds=quarters // 4000)
            deadline = f", deadline {when:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
        return "context " + ("live", "canceled", "deadline exceeded", "canceled")[state] + deadline + tail


STATUS_CODES = ("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
                "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
                "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED")


class StatusPrinter(Printer):
    """absl::Status. A small word has the code in it, a large one is a pointer. One bit of the word tells which, but its
    meaning is not the same in all versions of Abseil."""

    def describe(self):
        word = int(self.value["rep_"])
        if word < 1024:
            return self.code(word >> 2)
        rep = word & ~1
        return f"{self.code(i32(rep + 4))}: {self.message(rep + 8)}"

    def code(self, n):
        return STATUS_CODES[n] if n < len(STATUS_CODES) else f"code {n}"

    def message(self, at):  # std::string of libstdc++: a pointer and a length
        data, size = struct.unpack("<QQ", memory(at, 16))
        return memory(data, min(size, 4096)).decode(errors="replace")


def printers():
    all_of_them = gdb.printing.RegexpCollectionPrettyPrinter("gump")
    for name, pattern, printer in (
            ("chan", r"^gump::(send_|recv_)?chan<.*>$", ChanPrinter),
            ("Mutex", r"^gump::sync::Mutex$", MutexPrinter),
            ("RWMutex", r"^gump::sync::RWMutex$", RWMutexPrinter),
            ("WaitGroup", r"^gump::sync::WaitGroup$", WaitGroupPrinter),
            ("Context", r"^gump::context::Context$", ContextPrinter),
            ("Status", r"^absl::([a-z0-9_]+::)?Status$", StatusPrinter)):
        all_of_them.add_printer(name, pattern, printer)
    return all_of_them


# gdb may load the script twice: from the program and from a directory.
if not hasattr(gdb, "gump_is_loaded"):
    gdb.gump_is_loaded = True
    gdb.unwinder.register_unwinder(None, _parked, replace=True)
    gdb.printing.register_pretty_printer(None, printers(), replace=True)
    for event in ("clear_objfiles", "new_objfile", "exited"):
        getattr(gdb.events, event).connect(forget_tables)
    for command in (InfoGoroutines, Goroutine, Gump, GumpSched, GumpGcore):
        command()
