"""GPUs through NVML, each asked in a process of its own that stays."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import json
import os
import select
import signal
import time

from onecat.probe.agent.core import Unknown
from onecat.probe.agent.sources.nvml import find_library
from onecat.probe.agent.sources.nvml_gpu import handle_of, pci_address, program_name, start_nvml
from onecat.probe.agent.sources.nvml_library import error_text, load

SM_CLOCK, MEMORY_CLOCK = 1, 2
TX, RX = 0, 1
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0
SLOWDOWN_THRESHOLD = 1
MEMORY_TEMPERATURE = 82
AGAIN_SECONDS = 10.0
"""After this time a GPU whose process hangs or has ended, or a driver that was not there, is tried again; never before
the process that hung has ended, for one that is stuck in the kernel cannot be killed and must not get company."""
STAYS = ("name", "uuid", "pci_address")
"""What is asked once."""


class Gpus:
    """All GPUs of this host. wanted: whether to ask at all."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.askers = []  # type: list[Asked]
        self.counting = None  # type: Counting | None
        self.why = None  # type: str | None
        self.tried = None  # type: float | None

    def ask(self):
        """Let every GPU's process begin."""
        is_idle = self.wanted and not self.askers and self.counting is None
        if is_idle and (self.tried is None or time.monotonic() - self.tried > AGAIN_SECONDS):
            self.tried = time.monotonic()
            self.counting = Counting()
        for each in self.askers:
            each.ask()

    def answers(self, deadline):
        """What they answered, and why there are none; None instead of a list where that is not known."""
        if self.counting is not None:
            self.count(self.counting, deadline)
        if not self.askers:
            return None, self.why
        waiting = {each.reader: each for each in self.askers if each.is_asked}
        while waiting:
            ready = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                break
            for reader in ready:
                if waiting[reader].receive():
                    del waiting[reader]
        return [each.told() for each in self.askers], None

    def count(self, counting, deadline):
        """Begin to ask the GPUs, when it is known how many there are."""
        count, self.why = counting.answer(deadline)
        if count is not None:
            self.counting = None
            self.askers = [Asked(index) for index in range(count)]
            for each in self.askers:
                each.ask()

    def pids(self):
        return {each.pid for each in self.askers if each.pid}

    def close(self):
        for each in self.askers:
            each.kill()
        if self.counting is not None:
            self.counting.kill()


class Counting:
    """How many GPUs there are, in a process of its own: loading a broken driver may hang as well."""

    def __init__(self):
        self.since = time.monotonic()
        self.is_killed = False
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            answer = {"why": "counting GPUs failed"}  # type: dict[str, object]
            try:
                close_streams()
                answer = counted()
            finally:
                os.write(writer, json.dumps(answer).encode())
                os._exit(0)
        os.close(writer)

    def answer(self, deadline):
        """The number, and why there are none; None as long as its process has not ended."""
        if not select.select([self.reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            waited = time.monotonic() - self.since
            if waited > AGAIN_SECONDS and not self.is_killed:
                self.is_killed = True
                os.kill(self.pid, signal.SIGKILL)
            return None, f"NVML has not answered for {waited:.0f} s"
        told = os.read(self.reader, 65536).decode()
        os.close(self.reader)
        os.waitpid(self.pid, 0)
        if not told:
            return 0, f"NVML did not answer within {AGAIN_SECONDS:g} s" if self.is_killed else "NVML ended the program"
        answer = json.loads(told)
        return answer.get("count", 0), answer.get("why")

    def kill(self):
        """Give up on it. It is not waited for: one stuck in the kernel cannot be killed."""
        os.close(self.reader)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, os.WNOHANG)


def counted():
    path = find_library()
    if path is None:
        return {"why": "no NVIDIA driver: libnvidia-ml.so.1 was not found"}
    try:
        bindings, _ = load(path, ignore)
    except Unknown as unknown:
        return {"why": str(unknown)}
    error = start_nvml(bindings, ignore)
    if error:
        return {"why": "NVML: " + error}
    count = bindings.nvmlDeviceGetCount()
    return {"count": count} if count else {"why": "the driver lists no GPU"}


def ignore(**message):
    """Takes what the probe would report."""


class Asked:
    """One GPU and the process that asks about it."""

    def __init__(self, index):
        self.index = index
        self.pid = 0
        self.killed = 0
        self.is_asked = False
        self.since = 0.0
        self.buffer = b""
        self.answer = None  # type: dict[str, object] | None
        self.failure = None  # type: str | None
        self.start()

    def start(self):
        self.since, self.is_asked, self.buffer, self.failure = time.monotonic(), False, b"", None
        own, theirs = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            serve(self.index, own[0], theirs[1])
        os.close(own[0])
        os.close(theirs[1])
        self.writer, self.reader = own[1], theirs[0]

    def ask(self):
        self.answer = None
        if not self.pid and time.monotonic() - self.since > AGAIN_SECONDS and self.has_ended():
            self.start()
        if self.pid and self.is_asked and time.monotonic() - self.since > AGAIN_SECONDS:
            self.failure = f"no answer within {AGAIN_SECONDS:g} s"
            self.kill()
        if self.pid and not self.is_asked:
            self.is_asked, self.since = True, time.monotonic()
            try:
                os.write(self.writer, b"?")
            except OSError:
                self.failure = "its process has ended"
                self.kill()

    def receive(self):
        """Read what came; returns whether the answer is whole or will not come."""
        data = os.read(self.reader, 1 << 16)
        self.buffer += data
        if not data:
            self.failure = "its process has ended"
            self.kill()
            return True
        if b"\n" not in self.buffer:
            return False
        line, _, self.buffer = self.buffer.partition(b"\n")
        self.answer, self.is_asked, self.failure = json.loads(line.decode()), False, None
        return True

    def told(self):
        if self.answer is not None:
            return self.answer
        waited = time.monotonic() - self.since
        return {"index": self.index, "error": self.failure or f"no answer for {waited:.1f} s"}

    def kill(self):
        """Give up on its process. It is not waited for: one stuck in the kernel cannot be killed."""
        if self.pid:
            os.close(self.writer)
            os.close(self.reader)
            os.kill(self.pid, signal.SIGKILL)
            self.killed, self.pid, self.is_asked, self.since = self.pid, 0, False, time.monotonic()
            self.has_ended()

    def has_ended(self):
        """Whether the process that was killed is gone."""
        if self.killed and os.waitpid(self.killed, os.WNOHANG)[0]:
            self.killed = 0
        return not self.killed


def close_streams():
    """Let nobody wait for this process, whose connection may end before it does."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def serve(index, questions, answers):
    """The life of a GPU's process: answers each question with a line of JSON; never returns."""
    close_streams()
    # Only its owner may wait for its end, and it for its owner's.
    for low, high in zip((3, *sorted((questions + 1, answers + 1))), (*sorted((questions, answers)), 1024)):  # noqa: B905
        os.closerange(low, high)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        gpu = Gpu(index)
        while os.read(questions, 1):
            data = json.dumps(gpu.sample()).encode() + b"\n"
            while data:
                data = data[os.write(answers, data) :]
    finally:
        os._exit(0)


class Gpu:
    """Asks NVML about one GPU. What it does not tell is left out, with its reason in `unknown`."""

    def __init__(self, index):
        self.index = index
        self.bindings = load(find_library(), ignore)[0]
        self.handle = self.error = None
        self.constant = {}  # type: dict[str, object]
        self.unknown = {}  # type: dict[str, str]
        self.lost = None  # type: str | None
        self.begin()

    def begin(self):
        self.error = start_nvml(self.bindings, ignore)
        if not self.error:
            self.handle, self.error = handle_of(self.bindings, ignore, self.index)

    def sample(self):
        if self.error:
            self.begin()
        if self.error:
            return {"index": self.index, "error": self.error}
        self.unknown, self.lost = {}, None
        found = {"index": self.index}
        if not self.constant:
            self.constant = {
                "name": self.get("name", "nvmlDeviceGetName"),
                "uuid": self.get("uuid", "nvmlDeviceGetUUID"),
                "pci_address": pci_address(self.get("pci_address", "nvmlDeviceGetPciInfo")),
            }
        found.update(self.constant)
        found.update(self.load())
        found.update(self.link())
        found.update(self.clocks())
        found.update(self.health())
        if self.lost:
            self.error, self.constant = self.lost, {}
            return {"index": self.index, "error": self.lost}
        found = {key: value for key, value in found.items() if value is not None}
        found["unknown"] = sorted(self.unknown.items())
        return found

    def get(self, field, *names_and_arguments):
        """What a function answers, or the first of several that this driver knows; None: `unknown` says why.

        names_and_arguments: a name, then its arguments beyond the GPU; more names follow as tuples of the same form.
        """
        first = tuple(each for each in names_and_arguments if not isinstance(each, tuple))
        others = [each for each in names_and_arguments if isinstance(each, tuple)]
        for name, *arguments in [first, *others]:
            try:
                answer = getattr(self.bindings, name)(self.handle, *arguments)
            except self.bindings.NVMLError as error:
                self.unknown[field] = error_text(self.bindings, error)
                if error.value in (self.bindings.NVML_ERROR_GPU_IS_LOST, self.bindings.NVML_ERROR_RESET_REQUIRED):
                    self.lost = self.unknown[field]
                    return None
            except (self.bindings.NVMLLibraryMismatchError, AttributeError):
                self.unknown[field] = "not known to this driver"
            else:
                self.unknown.pop(field, None)
                return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
        return None

    def load(self):
        use = self.get("utilization_percent", "nvmlDeviceGetUtilizationRates")
        if use is None:
            self.unknown["memory_utilization_percent"] = self.unknown.get("utilization_percent", "")
        memory = self.get(
            "memory_used",
            "nvmlDeviceGetMemoryInfo",
            self.bindings.nvmlMemory_v2,
            ("nvmlDeviceGetMemoryInfo",),
        )
        return {
            "utilization_percent": use.gpu if use else None,
            "memory_utilization_percent": use.memory if use else None,
            "memory_used": memory.used if memory else None,
            "memory_total": memory.total if memory else None,
            "processes": self.processes(),
        }

    def processes(self):
        found = self.get(
            "processes",
            "nvmlDeviceGetComputeRunningProcesses",
            ("nvmlDeviceGetComputeRunningProcesses_v2",),
        )
        if found is None:
            return None
        return [
            {"pid": each.pid, "name": program_name(Files, each.pid), "memory": each.usedGpuMemory} for each in found
        ]

    def link(self):
        sent = self.get("pcie_tx", "nvmlDeviceGetPcieThroughput", TX)
        received = self.get("pcie_rx", "nvmlDeviceGetPcieThroughput", RX)
        return {
            # NVML tells KB/s, of 1000 bytes where it says so at all.
            "pcie_tx": None if sent is None else sent * 1000,
            "pcie_rx": None if received is None else received * 1000,
            "pcie_generation": self.get("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_generation_max": self.get("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
            "pcie_width": self.get("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
            "pcie_width_max": self.get("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
        }

    def clocks(self):
        return {
            "sm_clock_mhz": self.get("sm_clock_mhz", "nvmlDeviceGetClockInfo", SM_CLOCK),
            "sm_clock_max_mhz": self.get("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", SM_CLOCK),
            "memory_clock_mhz": self.get("memory_clock_mhz", "nvmlDeviceGetClockInfo", MEMORY_CLOCK),
            "memory_clock_max_mhz": self.get("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", MEMORY_CLOCK),
            "event_reasons": self.get(
                "event_reasons",
                "nvmlDeviceGetCurrentClocksEventReasons",
                ("nvmlDeviceGetCurrentClocksThrottleReasons",),
            ),
        }

    def health(self):
        power = self.get("power_watts", "nvmlDeviceGetPowerUsage")
        limit = self.get("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", ("nvmlDeviceGetPowerManagementLimit",))
        usual = self.get("power_limit_default_watts", "nvmlDeviceGetPowerManagementDefaultLimit")
        return {
            "power_limit_default_watts": None if usual is None else usual / 1000.0,
            "power_watts": None if power is None else power / 1000.0,
            "power_limit_watts": None if limit is None else limit / 1000.0,
            "temperature_celsius": self.get("temperature_celsius", "nvmlDeviceGetTemperature", 0),
            "temperature_memory_celsius": self.memory_temperature(),
            "temperature_slowdown_celsius": self.get(
                "temperature_slowdown_celsius", "nvmlDeviceGetTemperatureThreshold", SLOWDOWN_THRESHOLD
            ),
            "ecc_corrected": self.get("ecc_corrected", "nvmlDeviceGetTotalEccErrors", CORRECTED, VOLATILE),
            "ecc_uncorrected": self.get("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE),
        }

    def memory_temperature(self):
        answer = self.get("temperature_memory_celsius", "nvmlDeviceGetFieldValues", [MEMORY_TEMPERATURE])
        if answer is None:
            return None
        if answer[0].nvmlReturn:
            self.unknown["temperature_memory_celsius"] = error_text(
                self.bindings, self.bindings.NVMLError(answer[0].nvmlReturn)
            )
            return None
        return answer[0].value.uiVal


class Files:
    """What program_name needs of a machine."""

    @staticmethod
    def read_or_none(path):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                return file.read().strip()
        except OSError:
            return None
