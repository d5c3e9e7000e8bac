"""The frame of the agent: the observed machine, and how sources run side by side.

The agent needs nothing but Python 3.6, is sent over standard input, writes nothing to disk and needs no rights. Every
source runs in a child process of its own with its own deadline, and sends each fact as soon as it has it: a source
that hangs (a driver call on a dead GPU, a stale network mount) costs only what it had not yet said, and a note tells
what it was doing. All sources run at the same time, so the whole probe takes as long as the slowest of them.

A source is a function `source(machine, emit)` in a module of sources/, listed in that module's SOURCES by the name that
its notes carry. It emits parts of the document in the form of onecat.facts, `doing=` before anything that may hang,
and `captures=[{"name": ..., "text": ...}]` for output of programs that onecat.probe.importers reads.
"""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import argparse
import errno
import importlib
import json
import os
import pwd
import selectors
import shutil
import signal
import sys
import time
import traceback

SCHEMA = "onecat.facts/1"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Unknown(Exception):
    """A fact that cannot be had, with the kind of note that says why."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Machine:
    """The files of the observed machine, seen below a root directory, and what the operator said about it."""

    def __init__(self, root, timeout, paths):
        self.root = os.path.abspath(root)
        self.timeout = timeout
        self.paths = paths

    @property
    def is_running(self):
        """Whether the root is the machine that runs this program, not a copy of some files of another one."""
        return self.root == "/"

    def path(self, name):
        return name if self.is_running else os.path.join(self.root, name.lstrip("/"))

    def read(self, name):
        with open(self.path(name), errors="replace") as file:
            return file.read()

    def read_or_none(self, name):
        try:
            return self.read(name).strip()
        except (OSError, ValueError):
            return None

    def exists(self, name):
        return os.path.exists(self.path(name))

    def list(self, name):
        try:
            return sorted(os.listdir(self.path(name)))
        except OSError:
            return []

    def find_program(self, name):
        if self.is_running:
            return shutil.which(name, path=os.environ.get("PATH", "") + ":" + SYSTEM_PATH)
        for directory in SYSTEM_PATH.split(":"):
            if os.access(self.path(directory + "/" + name), os.X_OK):
                return directory + "/" + name
        return None


def as_int(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def read_file_or_none(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


class Child:
    """A source in a process of its own; what it emits arrives as lines of JSON."""

    def __init__(self, name, source, machine):
        self.name = name
        self.doing = None
        self.buffer = b""
        self.parts = []
        self.note = None
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            os.setpgid(0, 0)
            run_source(name, source, machine, writer)
        os.close(writer)
        self.reader = reader

    def receive(self):
        """Read what has arrived; False at the end."""
        data = os.read(self.reader, 65536)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            part = json.loads(line.decode())
            self.doing = part.pop("doing", self.doing)
            self.note = part.pop("note", self.note)
            if part:
                self.parts.append(part)
        return bool(data)

    def finish(self):
        """Collect a child that closed its pipe; a death by signal becomes the note."""
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            self.fail("error", f"died of signal {os.WTERMSIG(status)}")

    def kill(self, timeout):
        """Give up on a child and what it started. It is not waited for: one stuck in the kernel cannot be killed."""
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, os.WNOHANG)
        self.fail("timeout", f"no answer within {timeout:g} s")

    def fail(self, kind, text):
        text += " while " + self.doing if self.doing else ""
        self.note = {"source": self.name, "kind": kind, "text": text}


def run_source(name, source, machine, writer):
    """The life of a child: never returns, never touches the standard streams of the probe."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)

    def emit(**part):
        os.write(writer, json.dumps(part).encode() + b"\n")

    try:
        try:
            source(machine, emit)
        except Unknown as unknown:
            emit(note={"source": name, "kind": unknown.kind, "text": str(unknown)})
        except OSError as error:
            kinds = {errno.ENOENT: "absent", errno.EACCES: "permission", errno.EPERM: "permission"}
            emit(note={"source": name, "kind": kinds.get(error.errno or 0, "error"), "text": str(error)})
        except Exception:
            emit(note={"source": name, "kind": "error", "text": traceback.format_exc(limit=-1).splitlines()[-1]})
    finally:
        os._exit(0)


def merge(document, part):
    """Put a part into the document: objects are merged, lists grow."""
    for key, value in part.items():
        if isinstance(value, dict):
            merge(document.setdefault(key, {}), value)
        elif isinstance(value, list):
            document[key] = document.get(key, []) + value
        else:
            document[key] = value


def observe(machine, sources):
    """Run sources side by side. Returns the parts of the document that they gave and their notes.

    sources: functions by name.
    """
    deadline = time.monotonic() + machine.timeout
    children = [Child(name, source, machine) for name, source in sources.items()]
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.reader, selectors.EVENT_READ, child)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            for key, _ in selector.select(remaining):
                if not key.data.receive():
                    selector.unregister(key.fd)
                    key.data.finish()
        for key in list(selector.get_map().values()):
            key.data.kill(machine.timeout)
    document = {}  # type: dict[str, object]
    for child in children:
        for part in child.parts:
            merge(document, part)
    document["notes"] = [child.note for child in children if child.note]
    return document


def parse_path(text):
    purpose, separator, path = text.partition("=")
    if not separator or not path.startswith("/"):
        raise argparse.ArgumentTypeError("expected PURPOSE=/ABSOLUTE/PATH, found " + text)
    return purpose, path


def user_name():
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def loaded_late(module, name):
    """A source whose module is loaded (and compiled) only in the process that runs it."""
    return lambda machine, emit: importlib.import_module(module).SOURCES[name](machine, emit)


def main(arguments, index):
    """Observe this machine and print the document. index: the module of each source."""
    parser = argparse.ArgumentParser(prog="onecat-probe", description="Print the facts of this machine as JSON.")
    parser.add_argument("--host", default="local", help="name of the host in the document")
    parser.add_argument("--root", default="/", help="read /proc, /sys and /etc below this directory")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds that each source may take")
    parser.add_argument("--path", type=parse_path, action="append", default=[], help="PURPOSE=PATH to measure space of")
    options = parser.parse_args(arguments)
    document = {
        "schema": SCHEMA,
        "host": options.host,
        "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "user": user_name(),
        "is_root": os.geteuid() == 0,
    }
    sources = {name: loaded_late(module, name) for name, module in index.items()}
    document.update(observe(Machine(options.root, options.timeout, options.path), sources))
    json.dump(document, sys.stdout)
    sys.stdout.write("\n")
    return 0
