"""Cores, memory and the server's processes, from /proc."""

# ruff: noqa: PTH123, PTH208
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os
import time

from onecat.probe.agent.core import as_int, read_file_or_none

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
BUSY_PERCENT = 20.0
"""Threads are looked at one by one only in processes that use as much of a core: a server has hundreds."""
FAMILY_SECONDS = 5.0
"""How long the list of the processes that belong to the server counts."""
MOST_PROCESSES = 64


class Processor:
    """pids: the server's processes that the operator knows; what they have started belongs to them."""

    def __init__(self, pids):
        self.roots = list(pids)
        self.family = []  # type: list[int]
        self.family_time = 0.0
        self.cores = {}  # type: dict[str, tuple[int, int]]
        self.used = {}  # type: dict[object, tuple[float, int]]
        self.own = (time.monotonic(), 0.0)

    def sample(self, gpu_pids, agents):
        """gpu_pids: programs that use GPUs, which are the server's where no others are known. agents: our processes."""
        found = {"cores": None}  # type: dict[str, object]
        found.update(self.processor())
        found.update(memory())
        roots = self.roots or sorted(gpu_pids)
        found["processes"] = [each for each in map(self.process, self.members(roots)) if each] if roots else None
        found["agent_percent"] = self.agent(agents)
        self.used = {key: each for key, each in self.used.items() if time.monotonic() - each[0] < 60}
        return found

    def processor(self):
        """Use of all cores and of the busiest, since the last call."""
        before, now = self.cores, {}  # type: dict[str, tuple[int, int]], dict[str, tuple[int, int]]
        for line in (read_file_or_none("/proc/stat") or "").split("\n"):
            words = line.split()
            if words and words[0].startswith("cpu"):
                # user nice system idle iowait irq softirq steal: waiting for a disk is not work
                times = [int(word) for word in words[1:9]]
                now[words[0]] = (sum(times) - times[3] - (times[4] if len(times) > 4 else 0), sum(times))
        self.cores = now
        shares = {}
        for name, (busy, total) in now.items():
            earlier = before.get(name)
            if earlier and total > earlier[1]:
                shares[name] = round(100.0 * max(0, busy - earlier[0]) / (total - earlier[1]), 1)
        each = [share for name, share in shares.items() if name != "cpu"]
        pressure = read_file_or_none("/proc/pressure/cpu") or ""
        return {
            "cores": len(now) - 1 if now else None,
            "cpu_percent": shares.get("cpu"),
            "busiest_core_percent": max(each) if each else None,
            "pressure_percent": waiting_share(pressure),
        }

    def members(self, roots):
        """Processes and all that they have started."""
        now = time.monotonic()
        if now - self.family_time > FAMILY_SECONDS or not self.family:
            self.family_time = now
            parents = {}
            for name in os.listdir("/proc"):
                if name.isdigit():
                    fields = status(name)
                    if fields:
                        parents[int(name)] = int(fields[1])
            family = [pid for pid in roots if pid in parents]
            for pid in family:
                family.extend(child for child in sorted(parents) if parents[child] == pid and child not in family)
            self.family = family[:MOST_PROCESSES]
        return self.family

    def process(self, pid):
        """A process of the server; None when it has ended."""
        fields = status(pid)
        if fields is None:
            return None
        percent = self.percent(pid, fields)
        found = {
            "pid": pid,
            "name": name_of(pid),
            "resident": int(fields[21]) * PAGE,
            "threads": int(fields[17]),
            "cpu_percent": percent,
        }
        if percent is not None and percent >= BUSY_PERCENT:
            found["busiest_thread_percent"] = self.busiest_thread(pid)
        elif percent is not None:
            found["busiest_thread_percent"] = percent if int(fields[17]) == 1 else None
        return found

    def busiest_thread(self, pid):
        """The share of one core that the busiest thread used since it was last looked at."""
        shares = []
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            return None
        for thread in threads:
            fields = status(f"{pid}/task/{thread}")
            if fields:
                shares.append(self.percent((pid, thread), fields))
        known = [share for share in shares if share is not None]
        return max(known) if known else None

    def percent(self, key, fields):
        """Of one core, since the last call for the same process or thread; None the first time."""
        now, used = time.monotonic(), int(fields[11]) + int(fields[12])
        before = self.used.get(key)
        self.used[key] = (now, used)
        if before is None or now <= before[0] or used < before[1]:
            return None
        return round(100.0 * (used - before[1]) / TICKS / (now - before[0]), 1)

    def agent(self, pids):
        """What this program and its processes use of one core, since the last call."""
        used = time.process_time()
        for pid in pids:
            fields = status(pid)
            used += (int(fields[11]) + int(fields[12])) / TICKS if fields else 0
        before, self.own = self.own, (time.monotonic(), used)
        seconds = self.own[0] - before[0]
        return round(100.0 * max(0.0, used - before[1]) / seconds, 2) if before[1] and seconds > 0 else None


def status(pid):
    """The fields of /proc/PID/stat from the state on (proc(5) counts them from 3), None when it has ended."""
    text = read_file_or_none(f"/proc/{pid}/stat")
    return text.rpartition(") ")[2].split() if text else None


def name_of(pid):
    """A process's name: what it calls itself (VLLM::EngineCore), else its program."""
    line = (read_file_or_none(f"/proc/{pid}/cmdline") or "").split("\0")
    words = line[0].rsplit("/", 1)[-1] if line and line[0] else ""
    return words if words.startswith("VLLM") else read_file_or_none(f"/proc/{pid}/comm") or words or "?"


def memory():
    found = {}  # type: dict[str, object]
    values = {}
    for line in (read_file_or_none("/proc/meminfo") or "").split("\n"):
        name, _, rest = line.partition(":")
        values[name] = (as_int(rest.split()[0]) or 0) * 1024 if rest.split() else None
    found["memory_total"], found["memory_available"] = values.get("MemTotal"), values.get("MemAvailable")
    total, free = values.get("SwapTotal"), values.get("SwapFree")
    found["swap_total"] = total
    if total is not None and free is not None:
        found["swap_used"] = total - free
    try:
        shm = os.statvfs("/dev/shm")  # noqa: S108 - its size is what matters
    except OSError:
        return found
    found["shm_total"] = shm.f_blocks * shm.f_frsize
    found["shm_used"] = (shm.f_blocks - shm.f_bfree) * shm.f_frsize
    return found


def waiting_share(pressure):
    """The ten seconds' average of `some avg10=1.23 ...`, None where the kernel does not tell."""
    for word in pressure.split():
        if word.startswith("avg10="):
            return float(word[6:])
    return None
