"""Calls of NVML that may hang, and the processes in which they are made."""

# ruff: noqa: PTH123, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import ctypes
import json
import os
import re
import select
import signal
import time

from onecat.probe.agent.core import Unknown, read_file_or_none

IDLE_SECONDS = 0.25
"""Silence after which what the processes are doing is told."""


def load(path, emit):
    """Load the NVML library from a path, or by the loader's choice when it is only a name.

    Returns pynvml and the version in the library's file name (libnvidia-ml.so.580.95.05), None when it has none.
    Raises Unknown when it cannot be loaded.
    """
    try:
        ctypes.CDLL(path)
    except OSError as error:
        missing = "cannot open shared object file" in str(error)
        emit(nvidia={"library_found": not missing})
        raise Unknown("absent" if missing else "error", str(error)) from None
    match = re.search(r"libnvidia-ml\.so\.(\d+\.\d+[\d.]*)", read_file_or_none("/proc/self/maps") or "")
    # pynvml asks the loader by name, which gives it the library that is loaded already.
    import pynvml

    return pynvml, match.group(1) if match else None


def error_text(bindings, error):
    """An NVML error in the library's words, which nvidia-smi uses too; pynvml has words of its own for some."""
    try:
        text = bindings.nvmlErrorString(error.value)
    except Exception:
        return str(error)
    return text.decode(errors="replace") if isinstance(text, bytes) else text


class Asker:
    """Calls NVML functions by name; what a driver does not know or a GPU does not have is None.

    report: is told `doing=` before each call. subject: what the calls are about, for that text.
    lost: the error of a GPU that was there and does not answer any more.
    """

    def __init__(self, bindings, report, subject=""):
        self.bindings = bindings
        self.report = report
        self.subject = subject
        self.lost = None

    def __call__(self, name, *arguments):
        self.report(doing="in " + name + self.subject)
        try:
            answer = getattr(self.bindings, name)(*arguments)
        except self.bindings.NVMLError as error:
            if error.value in (self.bindings.NVML_ERROR_GPU_IS_LOST, self.bindings.NVML_ERROR_RESET_REQUIRED):
                self.lost = error_text(self.bindings, error)
            return None
        except (self.bindings.NVMLLibraryMismatchError, AttributeError):
            return None
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


class Process:
    """A task in a process of its own; its reports arrive as messages. It ends when the task does.

    The task is called with a function `report(**message)` and the arguments.
    """

    def __init__(self, task, *arguments):
        self.buffer = b""
        self.doing = None
        self.failure = None
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            run_task(task, arguments, writer)
        os.close(writer)

    def receive(self):
        """The messages that have arrived; None at the end."""
        data = os.read(self.reader, 65536)
        if not data:
            os.close(self.reader)
            _, status = os.waitpid(self.pid, 0)
            if os.WIFSIGNALED(status):
                self.failure = f"died of signal {os.WTERMSIG(status)}"
            return None
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        messages = [json.loads(line.decode()) for line in lines]
        for message in messages:
            self.doing = message.pop("doing", self.doing)
            self.failure = message.pop("failure", self.failure)
        return messages

    def kill(self):
        """Give up on it. It is not waited for: one stuck in the kernel cannot be killed."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, os.WNOHANG)
        os.close(self.reader)

    @property
    def at(self):
        """What it does now, as the end of a sentence."""
        return " while " + self.doing if self.doing else ""


def run_task(task, arguments, writer):
    """The life of a process: never returns. It keeps no other pipe open: only its owner may wait for its end."""
    os.closerange(3, writer)
    os.closerange(writer + 1, 1024)

    def report(**message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(writer, data) :]

    try:
        task(report, *arguments)
    except Exception as error:
        report(failure=f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def follow(processes, deadline, on_message, on_idle):
    """Give each message of processes to on_message(process, message) until all have ended or the deadline has passed.

    processes: a list; those that end leave it, and on_message may add to it. on_idle is called when nothing arrives for
    a while. Returns the processes that have ended with a failure.
    """
    failed = []
    while processes:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        readers = {process.reader: process for process in processes}
        ready = select.select(list(readers), [], [], min(remaining, IDLE_SECONDS))[0]
        if not ready:
            on_idle()
        for reader in ready:
            process = readers[reader]
            messages = process.receive()
            if messages is None:
                processes.remove(process)
                if process.failure:
                    failed.append(process)
            for message in messages or []:
                if message:
                    on_message(process, message)
    return failed
