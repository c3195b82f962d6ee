# Run by gdb (switch.sh): stops where goroutines and schedulers change places, goes on by single instructions, and walks
# the stack after each of them. Every walk has to end in the first frame of a goroutine, of g0, or of the thread.
import gdb

STEPS = 150
STOPS = ["gumpMstart", "gumpMcall", "gumpSwitch", "gumpSwitch"]
FIRST_FRAMES = {"gumpGostart", "gumpMcall", "gumpSwitch", "gumpMstart", "main", "clone", "clone3"}
GOOD_ENDS = (gdb.FRAME_UNWIND_NO_REASON, gdb.FRAME_UNWIND_OUTERMOST)
MOST_FRAMES = 64


def walk():
    """Returns the names of the frames, innermost first, and the reason why there are no more."""
    frame, names = gdb.newest_frame(), []
    while True:
        names.append(frame.name())
        older = frame.older() if len(names) < MOST_FRAMES else None
        if older is None:
            return names, frame.unwind_stop_reason()
        frame = older


def main():
    for command in ("pagination off", "confirm off", "debuginfod enabled off", "startup-with-shell off"):
        gdb.execute("set " + command)
    gdb.execute("handle SIGURG nostop noprint pass", to_string=True)
    walks, bad, inside = 0, 0, set()
    for stop in STOPS:
        gdb.execute("tbreak " + stop, to_string=True)
        gdb.execute("continue" if walks else "run", to_string=True)
        for _ in range(STEPS):
            names, reason = walk()
            walks += 1
            if names[0].startswith("gump") and "::" not in names[0]:
                inside.add(names[0])
            if names[-1] not in FIRST_FRAMES or reason not in GOOD_ENDS or len(names) == MOST_FRAMES:
                bad += 1
                print(f"at {gdb.newest_frame().pc():#x}: {names}: {gdb.frame_stop_reason_string(reason)}")
            gdb.execute("stepi", to_string=True)
    print(f"walks: {walks}, in {' '.join(sorted(inside))}; bad: {bad}")
    gdb.execute("kill", to_string=True)


main()
