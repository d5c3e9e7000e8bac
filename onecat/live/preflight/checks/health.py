"""Health."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.health import Health


@check(
    "preflight.health",
    title="The server is healthy and serves the model",
    why="Clients ask for a model by its name; a load balancer sends requests to what answers /health.",
    fix=("onecat logs NAME", "onecat up"),
    source=("https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",),
    requires=needs(Health),
    group="server",
    place=2,
)
def health(look: Look) -> Iterator[Verdict]:
    """GET /health, /v1/models and /version of the server itself."""
    seen = look.of(Health)
    fix = (f"onecat logs {look.name}{look.host_option}", "onecat up")
    if seen.health_status != 200:
        told = seen.error if seen.health_status is None else f"GET /health answers {seen.health_status}"
        yield Verdict("fail", f"The server is not healthy: {told}", evidence=(f"{seen.url}/health: {told}",), fix=fix)
        return
    if seen.models is None:
        yield Verdict("fail", "It does not list its models", evidence=(seen.models_error,), fix=fix)
        return
    name = look.plan.served_name
    if name not in seen.models:
        told = f"It serves {', '.join(seen.models)}, not {name}"
        yield Verdict("fail", told, evidence=(f"{seen.url}/v1/models",), fix=("onecat up", *fix[:1]))
        return
    milliseconds = (seen.health_seconds or 0) * 1000
    version = "" if seen.version is None else f", {look.plan.engine} {seen.version}"
    length = () if seen.longest is None else (f"longest request: {seen.longest:,} tokens",)
    yield Verdict("pass", f"Healthy in {milliseconds:.0f} ms, serves {name}{version}", evidence=length)
