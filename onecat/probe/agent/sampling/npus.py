"""Ascend NPUs: what npu-smi prints, run now and then, since it takes a second or more."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import threading
import time

from onecat.probe.agent.core import Machine, Unknown

SECONDS = 5.0
LIMIT = 8.0


class Npus:
    """npu-smi in the background, every five seconds at most, where the host has it."""

    def __init__(self, interval):
        self.program = Machine("/", LIMIT, []).find_program("npu-smi")
        self.pause = max(interval, SECONDS)
        self.begun = 0.0
        self.thread = None  # type: threading.Thread | None
        self.text = None  # type: str | None
        self.why = None  # type: str | None

    def latest(self):
        """What it has printed last, None when nothing new came; and why nothing comes."""
        if self.program is None:
            return None, None
        if (self.thread is None or not self.thread.is_alive()) and time.monotonic() - self.begun >= self.pause:
            self.begun = time.monotonic()
            self.thread = threading.Thread(target=self.run, daemon=True)
            self.thread.start()
        text, self.text = self.text, None
        return text, self.why

    def run(self):
        try:
            _, output, messages = Machine("/", LIMIT, []).run([self.program, "info"], LIMIT)
            self.text, self.why = output + messages, None
        except (Unknown, OSError) as error:
            self.why = f"npu-smi info: {error}"

    def pids(self):
        return set()
