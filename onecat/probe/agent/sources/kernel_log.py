"""What the kernel log of this boot says about GPUs, PCI Express, memory, confinement and modules."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os

from onecat.probe.agent.core import Late, Unknown, needs_root

re = Late("re")

WORDS = (
    "nvrm",
    "nvidia",
    "nouveau",
    "nvlink",
    "nvswitch",
    "aer:",
    "pcieport",
    "pciehp",
    "pcie bus error",
    "error status/mask",
    "dmar",
    "amd-vi",
    "iommu",
    "io_page_fault",
    "avc:",
    "apparmor=",
    "oom",
    "out of memory",
    "no space for",
    "failed to assign",
    "can't assign",
    "pci i/o region",
    "invalid opcode",
    "blocked for more than",
    "soft lockup",
    "hard lockup",
    "module verification",
    "loading of unsigned",
    "required key not available",
    "secure boot",
    "secureboot",
    "lockdown",
    "machine check",
    "hardware error",
    "npu",
    "davinci",
    "hisi",
    "ascend",
)
"""In lower case: a line with one of them is worth telling."""
NOISE = ("adding to iommu group", "input: ", "npu not")
CONTINUATION = r"(?:\[[^\]]*\])? {2,}|(?:\[[^\]]*\])?\t"
READ_ALL = 3
READ_SIZE = 10
MOST_LINES = 4000
MOST_JOURNAL_LINES = "20000"
LIMIT_SECONDS = 10
WRAPPED_SECONDS = 120
"""A ring buffer whose first line is younger than this after boot still has everything."""
SAVED = "/var/log/dmesg"
WHAT = "the kernel log (Xid events, PCIe errors, SELinux denials, killed processes)"


def kernel_log(machine, emit):
    if machine.is_running:
        emit(doing="reading the ring buffer")
        name, lines = "dmesg", ring_buffer(machine)
    else:
        # Of a machine that does not run there is what it wrote down when it started: its last boot, as dmesg has it.
        name, lines = SAVED, machine.read(SAVED).splitlines()
    if machine.is_running and (lines is None or has_wrapped(lines)):
        emit(doing="running journalctl")
        older = run_journalctl(machine)
        if lines is not None and not older:
            emit(note=lost_beginning(machine))
        name, lines = ("journalctl -k", older) if older else (name, lines)
    if lines is None:
        if machine.is_root:
            raise Unknown("permission", WHAT + ": the kernel does not show its log here (inside a container?)")
        emit(note=needs_root(WHAT))
        return
    # That it was read and has nothing to tell is a fact, too.
    emit(kernel_events=[])
    text = "\n".join(relevant(lines))
    if text:
        emit(captures=[{"name": name, "text": text + "\n"}])


def lost_beginning(machine):
    """The note that the ring buffer has dropped its oldest lines and that no journal has them for this user."""
    what = "the older part of the kernel log, which its ring buffer no longer holds"
    return {"kind": "absent", "text": what} if machine.is_root else needs_root(what)


def ring_buffer(machine):
    """The lines that dmesg prints, by the call that it makes; None when this user may not read them.

    Source: https://man7.org/linux/man-pages/man2/syslog.2.html
    """
    try:
        import ctypes
    except ImportError:
        return run_dmesg(machine)
    klogctl = ctypes.CDLL(None).klogctl
    size = klogctl(READ_SIZE, None, 0)
    if size <= 0:
        return None
    buffer = ctypes.create_string_buffer(size)
    length = klogctl(READ_ALL, buffer, size)
    if length < 0:
        return None
    text = buffer.raw[:length].decode("utf-8", "replace")
    return [line.partition(">")[2] if line.startswith("<") else line for line in text.splitlines()]


def run_dmesg(machine):
    """The same where Python was built without ctypes."""
    code, output, _ = machine.run(["dmesg"], LIMIT_SECONDS / 2)
    return output.splitlines() if code == 0 and output else None


def has_wrapped(lines):
    """Whether the ring buffer has lost its beginning."""
    match = re.match(r"\[\s*(\d+)\.", lines[0]) if lines else None
    return match is not None and int(match.group(1)) > WRAPPED_SECONDS


def run_journalctl(machine):
    """The kernel's lines of this boot that the journal keeps; None when it shows none to this user."""
    program = machine.find_program("journalctl")
    if program is None or not any(os.access(path, os.R_OK) for path in journals(machine)):
        return None
    arguments = ["-k", "-b", "-o", "short-monotonic", "--no-pager", "-q", "-n", MOST_JOURNAL_LINES]
    try:
        code, output, _ = machine.run([program] + arguments, LIMIT_SECONDS / 2)
    except Unknown:
        return None
    lines = [line for line in output.splitlines() if line.startswith("[")]
    return lines if code == 0 and lines else None


def journals(machine):
    for folder in ("/var/log/journal", "/run/log/journal"):
        for name in machine.list(folder):
            yield folder + "/" + name + "/system.journal"


def relevant(lines):
    """The newest of the lines worth telling, with what continues them."""
    kept = []
    follows = False
    for line in lines:
        lower = line.lower()
        if any(word in lower for word in WORDS) and not any(word in lower for word in NOISE):
            kept.append(line)
            follows = True
        else:
            follows = follows and re.match(CONTINUATION, line) is not None
            if follows:
                kept.append(line)
    return kept[-MOST_LINES:]


SOURCES = {"kernel-log": kernel_log}
