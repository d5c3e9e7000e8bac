"""Looks at a server while it is under load: its processes' memory, restarts, its own metrics, its GPUs' memory."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

from onecat.errors import OnecatError
from onecat.experiments.results import now
from onecat.experiments.server_processes import look_at

if TYPE_CHECKING:
    from types import TracebackType

    from onecat.experiments.targets import Target

_METRICS_SECONDS = 10.0
_GPU_SECONDS = 30.0
MIB = 2**20


def reading(target: Target) -> dict[str, Any]:
    """How a server is now, as a sample of a result file.

    time: UTC. state, pid, restarts: of its process, where it is a deployment. processes: how many; rss_bytes: their
    resident memory; private_bytes: what of that is their own. kv_cache_usage: 0 to 1; running, waiting: requests.
    gpu_memory_bytes: used, by GPU. What is not known is left out; `metrics_error` tells why the metrics are.

    Raises OnecatError when its host or its Docker daemon cannot be asked.
    """
    sample: dict[str, Any] = {"time": now()}
    if target.store is not None and target.release is not None:
        from onecat.deploy.servers import server_of

        state = server_of(target.machine, target.release).state()
        sample.update(state=state.condition, pid=state.pid, restarts=state.restarts)
        if state.last_exit is not None:
            sample["last_exit"] = state.last_exit
        if state.pid is not None:
            found = look_at(target.machine, state.pid)
            sample["processes"] = len(found)
            sample["rss_bytes"] = sum(each.rss_bytes for each in found)
            sample["private_bytes"] = sum(each.private_bytes for each in found)
        if target.release.gpus:
            sample.update(_gpus(target))
    sample.update(_metrics(target))
    return sample


def _metrics(target: Target) -> dict[str, Any]:
    import httpx

    from onecat.observe.metrics import NotMetricsError, parse_metrics

    url = target.endpoint.base_url if target.release is None else target.release.server_url
    try:
        answer = httpx.get(f"{target.machine.reach(url)}/metrics", timeout=_METRICS_SECONDS, trust_env=False)
        answer.raise_for_status()
        found = parse_metrics(answer.text)
    except (httpx.HTTPError, NotMetricsError) as error:
        return {"metrics_error": f"{type(error).__name__}: {error}"[:200]}
    values = {
        "kv_cache_usage": found.kv_cache_usage,
        "running": found.running,
        "waiting": found.waiting,
        "process_started": found.process_started,
    }
    return {name: value for name, value in values.items() if value is not None}


def _gpus(target: Target) -> dict[str, Any]:
    """Used memory of the GPUs that a release has, by the sampling agent on its host."""
    from onecat.probe.sampling import SamplingOptions, sampling_argv, sampling_program

    with target.machine.start(sampling_argv(SamplingOptions(interval=2.0, count=1))) as agent:
        agent.send(sampling_program())
        try:
            line = agent.line(_GPU_SECONDS)
        except TimeoutError:
            return {"gpu_error": f"no answer within {_GPU_SECONDS:g} s"}
        if line is None:
            said = agent.errors.decode(errors="replace").strip().splitlines()[-1:]
            return {"gpu_error": (said or ["the sampling agent gave no answer"])[0][:200]}
    ours = set(target.release.gpus) if target.release is not None else set()
    told = [each for each in json.loads(line).get("gpus") or () if {each.get("uuid"), str(each.get("index"))} & ours]
    return {"gpu_memory_bytes": [each["memory_used"] for each in told if each.get("memory_used") is not None]}


class ServerWatch:
    """Takes a reading every so many seconds, in a thread of its own, while the block runs; a context manager."""

    def __init__(self, target: Target, seconds: float) -> None:
        self._target = target
        self._seconds = seconds
        self._taken: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._failed: OnecatError | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ServerWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_GPU_SECONDS)

    def take(self) -> list[dict[str, Any]]:
        """The readings since the last call."""
        with self._lock:
            taken, self._taken = self._taken, []
        return taken

    def check(self) -> None:
        """Raises the OnecatError that has ended the watching, if one has."""
        if self._failed is not None:
            raise self._failed

    def sentence(self) -> str:
        """The last reading, behind a line of progress; empty where nothing is known."""
        with self._lock:
            last = dict(self._last)
        words = []
        if last.get("private_bytes"):
            words.append(f"memory {last['private_bytes'] / MIB:.0f} MiB")
        if last.get("kv_cache_usage") is not None:
            words.append(f"KV cache {last['kv_cache_usage']:.0%}")
        if last.get("restarts"):
            words.append(f"{last['restarts']} restarts")
        return "".join(f"; {each}" for each in words)

    def _watch(self) -> None:
        next_at = time.monotonic()
        while not self._over.wait(max(0.0, next_at - time.monotonic())):
            next_at = max(next_at + self._seconds, time.monotonic())
            try:
                found = reading(self._target)
            except OnecatError as error:
                self._failed = error
                return
            with self._lock:
                self._taken.append(found)
                self._last = found
