"""What the machine is, as far as figures depend on it."""

import os
import pathlib
import platform
import subprocess
import time


def read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def cpu_model():
    fields = {}
    for line in read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:  # AArch64
        return f"implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return platform.machine()


def is_virtual():
    return "hypervisor" in read("/proc/cpuinfo").split() or read("/sys/hypervisor/type") != ""


def mitigations():
    """The vulnerabilities against which the kernel does something: the name, and what it does in a word or two."""
    found = {}
    for file in sorted(pathlib.Path("/sys/devices/system/cpu/vulnerabilities").glob("*")):
        text = read(file)
        if text.startswith("Mitigation: "):
            found[file.name] = text.removeprefix("Mitigation: ").split(";")[0].split(",")[0]
    return found


def compiler(build):
    """The compiler of a build directory, or nothing if there is none."""
    for line in read(pathlib.Path(build) / "CMakeCache.txt").splitlines():
        if line.startswith("CMAKE_CXX_COMPILER:"):
            done = subprocess.run([line.partition("=")[2], "--version"], capture_output=True, text=True)
            return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else ""
    return ""


def busy_seconds():
    """The seconds that all processors together have worked since the machine started."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, read("/proc/stat").split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class Load:
    """What other programs do on this machine from now on."""

    def __init__(self):
        self.began, self.busy, self.own = time.monotonic(), busy_seconds(), self.own_seconds()

    @staticmethod
    def own_seconds():
        """The CPU time of this process, and of the children that have ended."""
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    def others(self):
        """The share of the processors that other programs have used since."""
        theirs = (busy_seconds() - self.busy) - (self.own_seconds() - self.own)
        return max(0.0, theirs) / ((time.monotonic() - self.began) * os.cpu_count())


def describe(build):
    """The facts of this machine, and of the compiler of a build directory, for `lines` and --json."""
    return {
        "cpu": cpu_model(),
        "processors": len(os.sched_getaffinity(0)),
        "virtual": is_virtual(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "clock": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "smt": read("/sys/devices/system/cpu/smt/control"),
        "mitigations": mitigations(),
        "compiler": compiler(build),
    }


def lines(host):
    """The description as text, a line for each kind of fact."""
    machine = "a virtual machine" if host["virtual"] else "no virtual machine"
    yield f"host: {host['cpu']}, {host['processors']} processors, {machine}"
    more = [f"{name} {host[name]}" for name in ("clock", "governor", "smt") if host.get(name)]
    yield f"      Linux {host['kernel']}, {host['libc']}, {', '.join(more)}"
    if host.get("compiler"):
        yield f"      {host['compiler']}"
    held = ", ".join(f"{name} ({what})" for name, what in host["mitigations"].items()) or "none"
    yield f"      mitigations: {held}"
