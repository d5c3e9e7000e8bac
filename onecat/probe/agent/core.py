"""The frame of the agent: the observed machine, and how its sources run.

The agent needs nothing but Python 3.6, is sent over standard input, writes nothing to disk and needs no rights. Its
sources run in worker processes and send each fact as soon as they have it: a source that hangs (a driver call on a
dead GPU, a stale network mount) costs only what it had not yet said, and a note tells what it was doing. One worker
does source after source, which is cheap; when it waits for something, another one goes on with the rest.

A source is a function `source(machine, emit)` in a module of sources/, listed in that module's SOURCES by the name that
its notes carry. Sources named as in `Machine.asked` run only when they are asked for. A source emits

- parts of the document in the form of onecat.facts; objects of one key are merged, lists grow;
- `doing="..."` before anything that may hang;
- `limit=SECONDS`, when it needs another limit than the one that is given to every source;
- `note={"kind": ..., "text": ...}` for what it cannot tell while it can tell other things, see needs_root;
- `captures=[{"name": ..., "text": ...}]`, output of programs that onecat.probe.importers reads.

Every host pays for what is imported here, in time and processor: so no argparse, subprocess, shutil, pathlib, and of
re, json and signal only what does not make enums and patterns; sources import re and json by `late`.
"""

# ruff: noqa: PTH100, PTH110, PTH116, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import _signal  # type: ignore[import-not-found] # what is behind signal, which makes enums of its numbers
import errno
import gc
import marshal
import os
import select
import sys
import time

try:
    from _json import encode_basestring  # What is behind json, which loads re.
except ImportError:
    from json.encoder import encode_basestring

SCHEMA = "onecat.facts/1"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT_SECONDS = 10.0
PATIENCE_SECONDS = 0.01
"""How long a worker may wait for something before another one goes on with the other sources."""
BUSY_PATIENCE_SECONDS = 0.3
"""The same for a worker that computes: a second one would not make the first faster."""
STANDARD_OUTPUT = 1
HEAD_BYTES = 4
"""Before each packet of a worker: the length of the message in it."""
PROGRAM_SECONDS = 5.0
PROGRAM_BYTES = 4 << 20
KINDS_OF_ERROR = {errno.ENOENT: "absent", errno.EACCES: "permission", errno.EPERM: "permission"}


GATHER_SECONDS = 0.01
"""How long messages of workers may lie in their pipes, so that not each of them wakes the probe."""


class Late:
    """A module that is imported when something of it is first used."""

    def __init__(self, name):
        self.__name__ = name

    def __getattr__(self, attribute):
        return getattr(__import__(self.__name__), attribute)


class Unknown(Exception):
    """A fact that cannot be had, with the kind of note that says why."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Machine:
    """The files and programs of the observed machine, seen below a root directory, and what the operator said about it.

    timeout: seconds that each source may take. paths: pairs of purpose and path.
    asked: for each source that runs only when asked for, what was said about it ("" for nothing).
    """

    def __init__(self, root, timeout, paths, asked=None):
        self.root = os.path.abspath(root)
        self.timeout = timeout
        self.paths = paths
        self.asked = asked or {}

    @property
    def is_running(self):
        """Whether the root is the machine that runs this program, not a copy of some files of another one."""
        return self.root == "/"

    @property
    def is_root(self):
        return os.geteuid() == 0

    def path(self, name):
        return name if self.is_running else os.path.join(self.root, name.lstrip("/"))

    def read(self, name):
        with open(self.path(name), encoding="utf-8", errors="replace") as file:
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
        """The path of a program as the machine sees it, or None."""
        own = os.environ.get("PATH", "") + ":" if self.is_running else ""
        for directory in dict.fromkeys((own + SYSTEM_PATH).split(":")):
            place = directory + "/" + name
            if directory.startswith("/") and os.access(self.path(place), os.X_OK):
                return place
        return None

    def run(self, argv, limit=PROGRAM_SECONDS):
        """Run a program of this machine in the C locale, with nothing to read.

        limit: seconds after which it is killed and left alone. Returns its exit code, output and messages as text.
        Raises Unknown when it does not end in time, OSError when it cannot be started.
        """
        return run_program(argv, limit)


def run_program(argv, limit):
    start = time.monotonic()
    parent = os.getppid()
    output, messages, failure = (os.pipe() for _ in range(3))
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output[1], 1)
            os.dup2(messages[1], 2)
            os.set_inheritable(failure[1], False)
            search = os.environ.get("PATH", "") + ":" + SYSTEM_PATH
            os.execvpe(argv[0], argv, dict(os.environ, LC_ALL="C", LANGUAGE="C", PATH=search))
        except OSError as error:
            os.write(failure[1], str(error.errno).encode())
        finally:
            os._exit(127)
    for pipe in (output, messages, failure):
        os.close(pipe[1])
    read = {output[0]: b"", messages[0]: b"", failure[0]: b""}
    waiting = set(read)
    status = None
    try:
        while waiting and time.monotonic() - start < limit and os.getppid() == parent:
            # Now and then a look whether anybody still waits for the answer.
            pause = min(1.0, max(0.0, start + limit - time.monotonic()))
            for reader in select.select(list(waiting), [], [], pause)[0]:
                data = os.read(reader, 65536)
                if not data:
                    waiting.discard(reader)
                elif len(read[reader]) < PROGRAM_BYTES:
                    read[reader] += data
        while not waiting and status is None:
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                status = code
            elif time.monotonic() - start > limit or os.getppid() != parent:
                break
            else:
                time.sleep(0.001)
    finally:
        for reader in read:
            os.close(reader)
        if status is None:
            os.kill(pid, _signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
    if status is None:
        raise Unknown("timeout", f"{' '.join(argv)} did not end within {limit:g} s")
    if read[failure[0]]:
        number = int(read[failure[0]])
        raise OSError(number, os.strerror(number), argv[0])
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    return code, read[output[0]].decode("utf-8", "replace"), read[messages[0]].decode("utf-8", "replace")


def needs_root(what):
    """The note of a source that tells less because it is not root. what: the facts that root would give."""
    return {"kind": "permission", "text": what + ": needs root (--sudo)"}


def as_int(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def read_file_or_none(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


class Worker:
    """A process that takes sources from a queue; what they emit arrives in packets.

    source: the number of the one it is at, None before and between them. since: when it began that.
    """

    def __init__(self, machine, sources, queue):
        self.buffer = b""
        self.source = self.doing = None
        self.since = time.monotonic()
        self.limit = machine.timeout
        self.reader, writer = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self.reader)
                os.setpgid(0, 0)
                work(machine, sources, queue, writer)
        except OSError:
            os.close(self.reader)
            raise
        finally:
            os.close(writer)
        # Both sides make the group, so that it is there whoever runs first.
        os.setpgid(self.pid, self.pid)

    def receive(self):
        """The messages that have arrived; None at the end."""
        data = os.read(self.reader, 1 << 20)
        self.buffer += data
        messages = []
        while len(self.buffer) >= HEAD_BYTES:
            end = HEAD_BYTES + int.from_bytes(self.buffer[:HEAD_BYTES], "big")
            if len(self.buffer) < end:
                break
            messages.append(marshal.loads(self.buffer[HEAD_BYTES:end]))  # noqa: S302 - from our own process
            self.buffer = self.buffer[end:]
        return messages if data else None

    def is_waiting(self, now):
        """Whether it has been at one thing for a while, not computing."""
        if now - self.since < PATIENCE_SECONDS:
            return False
        if now - self.since > BUSY_PATIENCE_SECONDS:
            return True
        state = read_file_or_none(f"/proc/{self.pid}/stat") or ""
        return not state.rpartition(") ")[2].startswith("R")

    def kill(self):
        """Give up on it and what it started. It is not waited for: one stuck in the kernel cannot be killed."""
        os.killpg(self.pid, _signal.SIGKILL)
        os.waitpid(self.pid, os.WNOHANG)
        os.close(self.reader)

    def end(self):
        """Collect a worker that closed its pipe. Returns the signal that it died of, or 0."""
        os.close(self.reader)
        return os.waitpid(self.pid, 0)[1] & 0x7F


def work(machine, sources, queue, writer):
    """The life of a worker: never returns, never touches the standard streams of the probe."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)

    def emit(**part):
        data = marshal.dumps(part)
        data = len(data).to_bytes(HEAD_BYTES, "big") + data
        while data:
            data = data[os.write(writer, data) :]

    try:
        while True:
            number = os.read(queue, 1)
            if not number:
                return
            emit(begin=number[0])
            run_source(sources[number[0]], machine, emit)
            emit(end=number[0])
    finally:
        os._exit(0)


def run_source(source, machine, emit):
    try:
        source(machine, emit)
    except Unknown as unknown:
        emit(note={"kind": unknown.kind, "text": str(unknown)})
    except OSError as error:
        emit(note={"kind": KINDS_OF_ERROR.get(error.errno or 0, "error"), "text": str(error)})
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f" (line {trace.tb_lineno} of {trace.tb_frame.f_globals.get('__name__')})" if trace else ""
        emit(note={"kind": "error", "text": f"{type(error).__name__}: {error}{where}"})


def merge(document, part):
    """Put a part into the document: objects are merged, lists grow."""
    for key, value in part.items():
        if isinstance(value, dict):
            merge(document.setdefault(key, {}), value)
        elif isinstance(value, (list, tuple)):
            document[key] = document.get(key, []) + list(value)
        else:
            document[key] = value


class Record:
    """What sources have told so far: parts of the document and notes, by their numbers.

    untaken: the sources that no worker has begun.
    """

    def __init__(self, names):
        self.names = names
        self.untaken = set(range(len(names)))
        self.parts = [[] for _ in names]  # type: list[list[dict[str, object]]]
        self.notes = [[] for _ in names]  # type: list[list[dict[str, str]]]

    def take(self, worker, message, limit):
        """Take one message of a worker. limit: seconds that a source has, unless it says how many it needs."""
        worker.limit = message.pop("limit", worker.limit)
        worker.doing = message.pop("doing", worker.doing)
        if "begin" in message:
            worker.source, worker.doing = message["begin"], None
            worker.since, worker.limit = time.monotonic(), limit
            self.untaken.discard(worker.source)
        elif "end" in message:
            worker.source, worker.since, worker.limit = None, time.monotonic(), limit
        elif worker.source is not None:
            if "note" in message:
                self.notes[worker.source].append(message.pop("note"))
            if message:
                self.parts[worker.source].append(message)

    def note(self, worker, kind, text):
        """Note why the source that a worker was at gave no more."""
        if worker.source is not None:
            text += " while " + worker.doing if worker.doing else ""
            self.notes[worker.source].append({"kind": kind, "text": text})

    def document(self):
        document = {}  # type: dict[str, object]
        for part in (each for parts in self.parts for each in parts):
            merge(document, part)
        document["sources"] = [name for name, parts in zip(self.names, self.parts) if parts]  # noqa: B905
        document["notes"] = [
            dict(note, source=name)
            for name, notes in zip(self.names, self.notes)  # noqa: B905 - of Python 3.10
            for note in notes
        ]
        return document


def as_json(value):
    """A value as JSON; a number that JSON does not have becomes null."""
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, dict):
        return "{" + ", ".join([as_json(str(key)) + ": " + as_json(value[key]) for key in value]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([as_json(each) for each in value]) + "]"
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return "null"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)


def observe(machine, sources):
    """Run sources. Returns the parts of the document that they gave and their notes, in the order of the sources.

    sources: functions by name, at most 255.
    """
    record = Record(list(sources))
    queue, numbers = os.pipe()
    os.write(numbers, bytes(range(len(sources))))
    os.close(numbers)
    functions = list(sources.values())
    workers = []  # type: list[Worker]
    while workers or record.untaken:
        now = time.monotonic()
        for worker in list(workers):
            if now > worker.since + worker.limit:
                record.note(worker, "timeout", f"no answer within {worker.limit:g} s")
                worker.kill()
                workers.remove(worker)
        if record.untaken and all(worker.is_waiting(now) for worker in workers):
            try:
                workers.append(Worker(machine, functions, queue))
            except OSError:
                # No more processes for this user: those that are there do it all.
                if not workers:
                    raise
        wait = min([worker.since + worker.limit - now for worker in workers] or [0])
        for worker in telling(workers, max(0, min(wait, PATIENCE_SECONDS) if record.untaken else wait)):
            messages = worker.receive()
            if messages is None:
                workers.remove(worker)
                number = worker.end()
                record.note(worker, "error", f"died of signal {number}" if number else "ended early")
            for message in messages or []:
                record.take(worker, message, machine.timeout)
    os.close(queue)
    return record.document()


def look(workers, events, seconds):
    """What is ready: standard output when the operator has gone, readers of workers that have ended or have events.

    events: bits of select.poll.
    """
    poll = select.poll()
    poll.register(STANDARD_OUTPUT, 0)
    for worker in workers:
        poll.register(worker.reader, events)
    return [number for number, _ in poll.poll(seconds * 1000)]


def telling(workers, seconds):
    """The workers that have something to tell within this time. Ends them and the probe when the operator has gone."""
    gathering = 0 if any(worker.buffer for worker in workers) else min(seconds, GATHER_SECONDS)
    ready = look(workers, 0, gathering) or look(workers, select.POLLIN, seconds - gathering)
    if STANDARD_OUTPUT in ready:
        # Only then does a stream that is watched for nothing have something to tell.
        for worker in workers:
            worker.kill()
        sys.exit(1)
    return [each for each in workers if each.reader in ready]


def loaded_late(module, name):
    """A source whose module is loaded (and compiled) only in the process that runs it."""

    def source(machine, emit):
        __import__(module)
        sys.modules[module].SOURCES[name](machine, emit)

    return source


def parse(arguments):
    """The options that onecat.probe.program writes, as (name, value) pairs; raises ValueError for any other."""
    known = ("--host", "--root", "--timeout", "--path", "--smoke")
    pairs = []
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        if name in ("--load", "--sudo-refused"):
            pairs.append((name, ""))
        elif name in known and rest:
            pairs.append((name, rest.pop(0)))
        else:
            raise ValueError("unknown option or missing value: " + name)
    return pairs


def main(arguments, index):
    """Observe this machine and print the document. index: the module of each source."""
    try:
        pairs = parse(arguments)
        options = dict(pairs)
        timeout = float(options.get("--timeout", LIMIT_SECONDS))
        paths = [tuple(value.split("=", 1)) for name, value in pairs if name == "--path"]
        if any(len(each) != 2 or not each[1].startswith("/") for each in paths):
            raise ValueError("--path wants PURPOSE=/ABSOLUTE/PATH")
    except ValueError as error:
        sys.stderr.write("onecat-probe: " + str(error) + "\n")
        return 2
    asked = {name: options.get("--" + name) for name in ("load", "smoke")}
    # It ends before its garbage matters, and looking for that would write to all memory that workers share.
    gc.disable()
    machine = Machine(options.get("--root", "/"), timeout, paths, asked)
    sources = {name: loaded_late(module, name) for name, module in index.items()}
    document = {
        "schema": SCHEMA,
        "host": os.fsencode(options.get("--host", "local")).decode("utf-8", "replace"),
        "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "is_root": machine.is_root,
    }
    document.update(observe(machine, {name: sources[name] for name in sources if name not in asked}))
    # What puts load on the machine runs last and alone: no other source sees it, and nothing lowers its figures.
    for name in asked:
        if asked[name] is not None and name in sources:
            merge(document, observe(machine, {name: sources[name]}))
    if "--sudo-refused" in options:
        text = "sudo asks for a password or forbids it: observed without root"
        document["notes"].append({"source": "sudo", "kind": "permission", "text": text})
    # Names of files and variables may be no UTF-8: what Python cannot write becomes a question mark.
    sys.stdout.buffer.write(as_json(document).encode("utf-8", "replace") + b"\n")
    return 0
