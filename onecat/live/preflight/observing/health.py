"""What the server says of itself: its health, its version, the models it serves, its metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from onecat.live.preflight.observing.registry import observer
from onecat.live.preflight.subject import Subject

TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Health:
    """health_status: of GET /health; None where nothing answered, then `error` says what happened.

    health_seconds: until it came. models: ids of /v1/models; None where it did not answer 200, then `models_error` says
    what it did. longest: max_model_len that it states. version: of the engine. metrics: how many of vLLM's series
    /metrics has; None where it does not answer 200.
    """

    url: str
    health_status: int | None
    health_seconds: float | None = None
    error: str = ""
    models: tuple[str, ...] | None = None
    models_error: str = ""
    longest: int | None = None
    version: str | None = None
    metrics: int | None = None


@observer(Health, place=20)
def observe_health(subject: Subject) -> Health:
    """Ask the server itself, without nginx."""
    import httpx

    url = subject.look.release.server_url
    with httpx.Client(base_url=subject.server_url, timeout=TIMEOUT_SECONDS, trust_env=False) as client:
        begin = time.monotonic()
        try:
            health = client.get("/health")
        except httpx.HTTPError as error:
            return Health(url, None, error=str(error) or type(error).__name__)
        seconds = time.monotonic() - begin
        key = subject.api_key
        models, why, longest = _models(client, {} if key is None else {"Authorization": f"Bearer {key}"})
        return Health(
            url,
            health.status_code,
            seconds,
            models=models,
            models_error=why,
            longest=longest,
            version=_version(client),
            metrics=_metrics(client),
        )


def _models(client: Any, headers: dict[str, str]) -> tuple[tuple[str, ...] | None, str, int | None]:
    import httpx

    try:
        answer = client.get("/v1/models", headers=headers)
        if answer.status_code != 200:
            return None, f"GET /v1/models answers {answer.status_code}: {answer.text.strip()[:200]}", None
        rows = answer.json()["data"]
        lengths = [row.get("max_model_len") for row in rows]
        return tuple(str(row["id"]) for row in rows), "", next((int(each) for each in lengths if each), None)
    except httpx.HTTPError as error:
        return None, f"GET /v1/models: {error or type(error).__name__}", None
    except (ValueError, KeyError, TypeError) as error:
        return None, f"GET /v1/models is not in OpenAI's form: {error!r}", None


def _version(client: Any) -> str | None:
    import httpx

    try:
        answer = client.get("/version")
        return str(answer.json()["version"]) if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):  # a server that does not tell its version may be well
        return None


def _metrics(client: Any) -> int | None:
    import httpx

    try:
        answer = client.get("/metrics")
    except httpx.HTTPError:  # told by the check of statistics as none
        return None
    if answer.status_code != 200:
        return None
    return sum(line.startswith("vllm:") for line in str(answer.text).splitlines())
