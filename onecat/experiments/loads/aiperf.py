"""Load by NVIDIA's aiperf, where it is installed: one process for each block.

Checked with aiperf 0.13.0 (https://docs.nvidia.com/aiperf/). Everything it is asked stands in a configuration file of
its own, readable by its owner alone, for an API key has no place on a command line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.loads import CutShort
from onecat.experiments.loads.cores import Pinning, as_ranges
from onecat.experiments.loads.engine import REQUEST_SECONDS, key_of
from onecat.experiments.loads.failures import kind_of, kind_of_status, message_of
from onecat.experiments.records import Arrivals, Block, Endpoint, Request, Workload

if TYPE_CHECKING:
    from onecat.hosts import Machine

PROGRAM = "aiperf"
_RECORDS = "profile_export.jsonl"
_LOOK_SECONDS = 1.0
# Offline, aiperf 0.13.0 takes the path of a tokenizer for a name on the Hugging Face hub, which it does not need then.
_ENVIRONMENT = ("env", "-u", "HF_HUB_OFFLINE", "-u", "TRANSFORMERS_OFFLINE", "NO_PROXY=*", "no_proxy=*")


class AiperfLoadDriver:
    """See LoadDriver.

    Parameters:
        machine: which sends the load; aiperf is on its PATH.
        request_seconds: after so many a request counts as timed out.

    Raises OnecatError when there is no aiperf.
    """

    def __init__(
        self, machine: Machine, *, where: str, pinning: Pinning, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        self._machine = machine
        self._where = where
        self._pinning = pinning
        self.request_seconds = request_seconds
        found = machine.run(["sh", "-c", f"command -v {PROGRAM} >/dev/null && {PROGRAM} --version"])
        if found.exit_code != 0:
            raise OnecatError(
                f"there is no {PROGRAM} on {where}",
                expected=f"{PROGRAM} on the PATH of the machine that sends the load",
                where=where,
                details=found.stderr.decode(errors="replace").splitlines()[-3:],
                next_steps=[
                    "install it there: pip install aiperf",
                    "or leave --driver out: the engine's own benchmark",
                ],
                code=ExitCode.NO,
            )
        self._version = found.stdout.decode(errors="replace").split()[-1]

    def run(
        self,
        endpoint: Endpoint,
        workload: Workload,
        arrivals: Arrivals,
        *,
        number: int,
        arm: str = "",
        warm_up: bool = False,
        stop_after: float | None = None,
    ) -> Block:
        """See LoadDriver.run. Random prompts only."""
        if workload.source != "random":
            raise OnecatError(
                f"{PROGRAM} is asked for random prompts only",
                next_steps=["leave --driver out: the engine's own benchmark sends files of prompts"],
            )
        document = configuration(endpoint, workload, arrivals, self.request_seconds, stop_after)
        folder = self._machine.run(["mktemp", "-d"]).stdout.decode().strip()
        began = time.time()
        try:
            self._machine.write(f"{folder}/aiperf.yaml", json.dumps(document).encode())
            said, interrupt = self._send(folder)
            requests = read_records((self._machine.read(f"{folder}/{_RECORDS}") or b"").decode(errors="replace"))
        finally:
            self._machine.remove(folder)
        if not requests and interrupt is None:
            raise OnecatError(
                f"{PROGRAM} sent nothing", where=self._where, details=said[-12:], code=ExitCode.NEEDS_PERSON
            )
        first = min((start for start, _ in requests), default=began)
        block = Block(
            number=number,
            endpoint=endpoint.label,
            started_at=datetime.fromtimestamp(first, timezone.utc)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            seconds=max((start + each.end_to_end for start, each in requests), default=first) - first,
            requests=tuple(_from(first, start, each) for start, each in requests),
            arrivals=arrivals,
            workload=workload,
            arm=arm,
            warm_up=warm_up,
        )
        if interrupt is not None:
            raise CutShort(block if requests else None) from interrupt
        return block

    def describe(self) -> dict[str, Any]:
        """See LoadDriver.describe."""
        return {
            "name": PROGRAM,
            "version": self._version,
            "where": self._where,
            "cores": None if self._pinning.cores is None else list(self._pinning.cores),
            "pinned": self._pinning.cores is not None,
            "pinning": self._pinning.why,
        }

    def close(self) -> None:
        """Between blocks there is no process."""

    def __enter__(self) -> AiperfLoadDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, folder: str) -> tuple[list[str], KeyboardInterrupt | None]:
        """Run it to its end. Returns what it said, and the Ctrl-C that ended it, if one did."""
        cores = self._pinning.cores
        argv = [*_ENVIRONMENT, *(() if cores is None else ("taskset", "-c", as_ranges(cores))), PROGRAM, "profile"]
        argv += ["--config", f"{folder}/aiperf.yaml", "--output-artifact-dir", folder, "--ui", "none"]
        argv += ["--no-gpu-telemetry", "--no-server-metrics"]
        argv = removing_after(f"{folder}/aiperf.yaml", argv)
        said: list[str] = []
        with self._machine.start(argv) as conversation:
            try:
                while True:
                    try:
                        line = conversation.line(_LOOK_SECONDS)
                    except TimeoutError:
                        continue
                    if line is None:
                        break
                    said = [*said[-40:], line.decode(errors="replace")]
            except KeyboardInterrupt as interrupt:
                return said, interrupt
            said += conversation.errors.decode(errors="replace").splitlines()[-20:]
        return said, None


def removing_after(path: str, argv: Sequence[str]) -> list[str]:
    """A command that does the same, and removes a file when the program has ended, however it did.

    The machine's own shell does it, so that a file with a key is gone also where the connection to the machine is.
    """
    return ["sh", "-c", '"$@"; code=$?; rm -f "$0"; exit $code', path, *argv]


def configuration(
    endpoint: Endpoint, workload: Workload, arrivals: Arrivals, request_seconds: float, stop_after: float | None
) -> dict[str, Any]:
    """What aiperf is asked, as its configuration file (schema 2.0). Raises OnecatError without a tokenizer."""
    if endpoint.tokenizer is None:
        raise OnecatError("aiperf needs the model's tokenizer", next_steps=["name it: --tokenizer DIRECTORY"])
    key = key_of(endpoint)
    extra: dict[str, Any] = {"temperature": 0}
    if workload.ignore_eos:
        extra["ignore_eos"] = True
    prompts: dict[str, Any] = {"isl": workload.input_tokens, "osl": workload.output_tokens or 128}
    if workload.range_ratio:
        prompts = {
            name: {
                "type": "uniform",
                "min": round(mean * (1 - workload.range_ratio)),
                "max": round(mean * (1 + workload.range_ratio)),
            }
            for name, mean in prompts.items()
        }
    return {
        "schemaVersion": "2.0",
        "randomSeed": workload.seed,
        "benchmark": {
            "model": endpoint.model,
            "endpoint": {
                "url": endpoint.base_url,
                "type": "chat" if workload.chat else "completions",
                "streaming": True,
                "timeout": request_seconds,
                "useServerTokenCount": True,
                "extra": extra,
                **({} if key is None else {"apiKey": key}),
                **({} if endpoint.server_name is None else {"headers": {"Host": endpoint.server_name}}),
            },
            "tokenizer": {"name": endpoint.tokenizer},
            "dataset": {"type": "synthetic", "entries": workload.requests, "prompts": prompts},
            "phases": _phase(workload, arrivals, stop_after),
        },
    }


def _phase(workload: Workload, arrivals: Arrivals, stop_after: float | None) -> dict[str, Any]:
    phase: dict[str, Any] = {"requests": workload.requests}
    if arrivals.concurrency is not None:
        phase["concurrency"] = arrivals.concurrency
    if stop_after is not None:
        phase |= {"duration": stop_after, "gracePeriod": "inf"}
    if arrivals.rate is None:
        return {"type": "concurrency", "concurrency": workload.requests, **phase}
    if arrivals.burstiness == 1.0:
        return {"type": "poisson", "rate": arrivals.rate, **phase}
    return {"type": "gamma", "rate": arrivals.rate, "smoothness": arrivals.burstiness, **phase}


def read_records(text: str) -> list[tuple[float, Request]]:
    """The requests of aiperf's records (profile_export.jsonl), each with when it was sent (seconds since the epoch).

    A last line that was cut off is left out.
    """
    return sorted(_records(text), key=lambda each: each[1].index)


def _records(text: str) -> Iterable[tuple[float, Request]]:
    for line in text.split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        about, metrics, error = record["metadata"], record.get("metrics") or {}, record.get("error")
        if about.get("benchmark_phase") != "profiling":
            continue
        start, end = about["request_start_ns"] / 1e9, about["request_end_ns"] / 1e9
        yield (
            start,
            Request(
                index=int(about["session_num"]),
                start=0.0,
                input_tokens=int(_value(metrics, "input_sequence_length") or 0),
                output_tokens=int(_value(metrics, "output_sequence_length") or 0),
                ttft=_seconds(metrics, "time_to_first_token"),
                end_to_end=_seconds(metrics, "request_latency") or end - start,
                inter_token=tuple(each / 1000 for each in _value(metrics, "inter_chunk_latency") or ()),
                error=None if error is None else _kind(error),
                message="" if error is None else message_of(f"{error.get('type')}: {error.get('message')}"),
            ),
        )


def _from(first: float, start: float, request: Request) -> Request:
    from dataclasses import replace

    return replace(request, start=start - first)


def _kind(error: Mapping[str, Any]) -> str:
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return kind_of_status(code)
    return kind_of(f"{error.get('type')}: {error.get('message')}")


def _value(metrics: Mapping[str, Any], name: str) -> Any:
    return (metrics.get(name) or {}).get("value")


def _seconds(metrics: Mapping[str, Any], name: str) -> float | None:
    """A metric in seconds; aiperf gives times in milliseconds."""
    value = _value(metrics, name)
    return None if value is None else float(value) / 1000
