"""What an experiment sends, what came back, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

RESULT_SCHEMA = "onecat.bench/1"

Kind = Literal["run", "burst", "ab", "sweep", "soak"]


class ApiKey:
    """A key that is shown to a server and to nobody else.

    No dataclass: what turns a record that holds it into a document shall not find it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The key."""
        return self._text

    def __repr__(self) -> str:
        return "<an API key>"


@dataclass(frozen=True)
class Endpoint:
    """A server that answers OpenAI's API.

    label: what it is called in reports. base_url: without /v1, as the machine that sends the load reaches it.
    model: the served name. tokenizer: a directory on the machine that sends the load, or None. key_file: a file of this
    machine with the API key, or None; key: the key itself, where it is known otherwise. server_name: the Host header,
    where nginx chooses by it. verify: whether a certificate must be for the name in base_url.
    """

    label: str
    base_url: str
    model: str
    tokenizer: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    key: ApiKey | None = None
    verify: bool = True


@dataclass(frozen=True)
class Workload:
    """Which requests are sent: the same ones for the same values, so that runs can be compared pair by pair.

    source: `random` tokens, a `file` of prompts (JSON lines with `prompt`, or one prompt a line), or `sharegpt` (JSON).
    requests: how many. input_tokens, output_tokens: of random prompts (output_tokens is a limit for the others; None:
    what the file says). range_ratio: 0 for exactly these lengths, 0.5 for half of them to one and a half times.
    digest: SHA-256 of the file. chat: sent as chats (/v1/chat/completions), else as texts to go on with
    (/v1/completions).
    """

    source: Literal["random", "file", "sharegpt"] = "random"
    requests: int = 100
    input_tokens: int = 512
    output_tokens: int | None = 128
    range_ratio: float = 0.0
    path: str | None = None
    digest: str | None = None
    seed: int = 0
    ignore_eos: bool = True
    chat: bool = False


@dataclass(frozen=True)
class Arrivals:
    """When requests are sent.

    concurrency: at most so many at once; None: no limit. rate: requests a second; None: as fast as concurrency lets.
    burstiness: 1 for Poisson arrivals, less for bursts, more for even ones (shape of the gamma distribution of gaps).
    """

    concurrency: int | None = None
    rate: float | None = None
    burstiness: float = 1.0


@dataclass(frozen=True)
class Objectives:
    """What a request must keep to count as good; None: no demand. All in milliseconds."""

    ttft_ms: float | None = None
    inter_token_ms: float | None = None
    end_to_end_ms: float | None = None


@dataclass(frozen=True)
class Request:
    """One request and what came of it. Times are seconds.

    index: which prompt of the workload it was. start: since the block's begin. ttft: to the first token; None where
    none came. inter_token: between chunks. end_to_end: to the last token. error: None when it was answered, else a
    kind of `errors.KINDS`; message: what the driver told, shortened.
    """

    index: int
    start: float
    input_tokens: int
    output_tokens: int
    ttft: float | None
    end_to_end: float
    inter_token: tuple[float, ...] = ()
    error: str | None = None
    message: str = ""


@dataclass(frozen=True)
class Block:
    """Requests that were sent together: one call of the driver.

    arm: which of the compared endpoints (`A`, `B`, a point of a sweep), or empty. number: in the experiment, from 0.
    started_at: UTC, RFC 3339. seconds: from the first request to the last answer. warm_up: left out of statistics.
    """

    number: int
    endpoint: str
    started_at: str
    seconds: float
    requests: tuple[Request, ...]
    arrivals: Arrivals
    workload: Workload
    arm: str = ""
    warm_up: bool = False


@dataclass(frozen=True)
class Environment:
    """Under which conditions an experiment ran: what must be equal for two of them to be compared, and what is told.

    arms: for each arm (or "" for the only one) what is known of the server: engine, engine_version, patch series,
    profile, server_args, model, checkpoint digest, release, image id, gpus, driver, facts hash. driver: what sent the
    load, with version, where, pinned to which cores. onecat: our version. host: name.
    """

    onecat: str
    host: str
    driver: dict[str, Any]
    arms: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Experiment:
    """One result file, read back.

    finished_at: None: it was cut off, and can be resumed. resumed_at: when that was done. settings: what the command
    was asked, for resuming. samples: readings of the server's metrics and processes on the way, each with `time`.
    verdict: of the kind's own.
    """

    id: str
    kind: Kind
    started_at: str
    environment: Environment
    blocks: tuple[Block, ...]
    objectives: Objectives = Objectives()
    settings: dict[str, Any] = field(default_factory=dict)
    samples: tuple[dict[str, Any], ...] = ()
    verdict: dict[str, Any] | None = None
    finished_at: str | None = None
    resumed_at: tuple[str, ...] = ()
