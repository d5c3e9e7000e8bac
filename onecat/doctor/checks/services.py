"""Services and containers of others that serve models here, and how systemd is to treat such services."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.checks.containers import running, serves
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import told
from onecat.facts import SystemdUnit

RESTART_POLICIES = "https://docs.docker.com/engine/containers/start-containers-automatically.md"
RESTARTS = ("always", "on-failure", "on-abnormal", "on-abort", "on-watchdog")
_ENGINE = re.compile(
    r"vllm|1cat|sglang|lmdeploy|tritonserver|llama[-_.]server|llama_cpp|text-generation-launcher", re.IGNORECASE
)
_RUNS_CONTAINER = re.compile(r"\b(?:docker|podman)\b.*\b(?:run|start)\b")


def _command(unit: SystemdUnit) -> str:
    return " ; ".join(unit.values("ExecStart"))


def _serves(unit: SystemdUnit) -> bool:
    return _ENGINE.search(_command(unit)) is not None


def _serves_anything(unit: SystemdUnit) -> bool:
    return _serves(unit) or "ollama serve" in _command(unit)


def _is_own(context: Context, name: str) -> bool:
    return name.startswith("onecat-") or name in context.settings.own_names


def _units(context: Context) -> list[SystemdUnit]:
    """The services that run an inference engine, in a container or not."""
    return [unit for unit in context.facts.systemd_units or () if _serves(unit)]


def _last(unit: SystemdUnit, *names: str) -> str | None:
    """A setting that has one value: the last one counts (systemd.syntax(7))."""
    return next((value for name in names for value in reversed(unit.values(name))), None)


@check(
    "serving.units",
    title="No other service serves a model here",
    why="A second server takes GPU memory and perhaps the port: whichever starts last does not start.",
    fix=("sudo systemctl disable --now NAME", "or choose another port and other GPUs"),
    source=("https://github.com/vllm-project/vllm/issues/20305",),
    requires=(requirements.systemd_units,),
)
def serving_units(context: Context) -> Iterator[Verdict]:
    """systemd's services whose command starts an inference engine, except onecat's own."""
    listed = context.facts.systemd_units or ()
    others = [unit for unit in listed if _serves_anything(unit) and not _is_own(context, unit.name)]
    if not others:
        yield Verdict("pass", "No other service serves a model")
    for unit in others:
        clash = context.settings.port in _ports(_command(unit))
        yield Verdict(
            "warn" if clash else "info",
            f"The service {unit.name} serves a model" + (f" on port {context.settings.port} too" if clash else ""),
            unit.name,
            (f"{unit.path or unit.name}: ExecStart={_command(unit)[:200]}",),
            fix=(f"if onecat is to take its place: sudo systemctl disable --now {unit.name}",),
        )


def _ports(command: str) -> set[int]:
    """The ports that a command serves on: --port 8000, --port=8000, -p 127.0.0.1:8000:8000."""
    words = re.findall(r"--port[= ](\d{1,5})|(?:-p|--publish)[= ](?:[\d.]+:)?(\d{1,5}):", command)
    return {int(number) for pair in words for number in pair if number}


@check(
    "serving.containers",
    title="No other container uses the GPUs",
    why="A container that serves a model already holds most of the GPU memory, and perhaps the port.",
    fix=("docker stop NAME", "or choose another port and other GPUs"),
    source=("https://github.com/vllm-project/vllm/issues/20305",),
    requires=(requirements.docker_containers,),
)
def serving_containers(context: Context) -> Iterator[Verdict]:
    """Running containers that serve models on GPUs or publish the server's port, except onecat's own.

    Monitors of GPUs (DCGM and the like) are in nobody's way.
    """
    others = [each for each in running(context) if not _is_own(context, each.name)]
    port = context.settings.port
    found = [each for each in others if serves(each) or port in each.ports]
    if not found:
        yield Verdict("pass", "No other container is in the way")
    for each in found:
        clash = port in each.ports and port not in context.settings.own_ports
        uses = [*(["uses GPUs"] if each.gpus else []), *([f"publishes port {port}"] if clash else [])]
        yield Verdict(
            "warn" if clash else "info",
            f"The container {each.name} {' and '.join(uses) or 'publishes the port'}",
            each.name,
            (f"docker ps: {each.name}, image {told(each.image)}, {told(each.state)}",),
            fix=(f"if onecat is to take its place: docker stop {each.name}",),
        )


@check(
    "serving.restart-policy",
    title="Either Docker or systemd restarts a server, not both",
    why="Docker's restart policy and a unit that starts the same container work against each other: a stopped service "
    "comes back, and a crash is counted by neither. A policy without end restarts a server that cannot start again and "
    "again.",
    fix=("in the unit: docker run --rm without --restart and without -d", "or: docker update --restart=no NAME"),
    source=(RESTART_POLICIES, "https://github.com/eugr/spark-vllm-docker/issues/257"),
    requires=(requirements.systemd_units,),
)
def serving_restart_policy(context: Context) -> Iterator[Verdict]:
    """Units that run containers, for --restart in their command or a restart policy of the container they start."""
    docker = context.facts.docker
    containers = {each.name: each for each in (docker.containers if docker else None) or ()}
    quiet, unknown = True, False
    mixed: set[str] = set()
    for unit in context.facts.systemd_units or ():
        command = _command(unit)
        if not _RUNS_CONTAINER.search(command):
            continue
        written = re.search(r"--restart[= ](\S+)", command)
        policy = written[1] if written else None
        started = [
            each for name, each in containers.items() if re.search(rf"(?:^|[\s=]){re.escape(name)}(?:\s|$)", command)
        ]
        kept = [each for each in started if each.restart_policy not in (None, "", "no")]
        mixed.update(each.name for each in kept)
        # `docker run` states the policy or wants none; `docker start` takes that of the container.
        is_listed = docker is not None and docker.containers is not None
        unknown = unknown or (not is_listed and re.search(r"\bdocker\b.*\bstart\b", command) is not None)
        if policy not in (None, "no") or kept:
            quiet = False
            yield Verdict(
                "warn",
                f"{unit.name} starts a container that Docker restarts as well",
                unit.name,
                (
                    *((f"{unit.path or unit.name}: --restart {policy}",) if policy else ()),
                    *(f"docker inspect {each.name}: RestartPolicy {each.restart_policy}" for each in kept),
                ),
                fix=(
                    "in the unit: docker run --rm without --restart and without -d",
                    *(f"docker update --restart=no {each.name}" for each in kept),
                    "and Restart=always in its [Service] section",
                ),
            )
    for each in running(context):
        if serves(each) and each.restart_policy in ("always", "unless-stopped") and each.name not in mixed:
            quiet = False
            yield Verdict(
                "info",
                f"Docker restarts {each.name} without end ({each.restart_policy})",
                each.name,
                (f"docker inspect {each.name}: RestartPolicy {each.restart_policy}",),
                fix=(f"docker update --restart=on-failure:5 {each.name}",),
            )
    if quiet and unknown:
        reason = requirements.docker_containers(context) or "the containers were not listed"
        yield Verdict("skip", f"Not checked: a service starts a container whose restart policy is not known: {reason}")
    elif quiet:
        yield Verdict("pass", "No server is restarted by two")


@check(
    "serving.start-limit",
    title="Services that serve a model give up when they cannot start",
    why="systemd gives up after five starts within ten seconds; a server takes longer than that to fail, so it is "
    "restarted for ever, and each try may leave memory behind.",
    fix=("in [Unit]: StartLimitIntervalSec=3600 and StartLimitBurst=5; in [Service]: RestartSec=10",),
    source=(
        "https://github.com/eugr/spark-vllm-docker/issues/257",
        "https://github.com/theforeman/foreman/pull/9980",
    ),
    requires=(requirements.systemd_units,),
)
def serving_start_limit(context: Context) -> Iterator[Verdict]:
    """Restart= and StartLimit*= of services that serve a model."""
    units = _units(context)
    if not units:
        yield Verdict("skip", "Not checked: no service serves a model")
    for unit in units:
        limit = _last(unit, "StartLimitIntervalSec", "StartLimitInterval")
        restart = _last(unit, "Restart") or "no"
        if restart not in RESTARTS:
            yield Verdict("pass", f"{unit.name} is not restarted", unit.name)
        elif limit in (None, "0") and (limit == "0" or _last(unit, "StartLimitBurst") is None):
            yield Verdict(
                "warn",
                f"{unit.name} is restarted for ever when it cannot start",
                unit.name,
                (f"{unit.path or unit.name}: Restart={restart}, StartLimitIntervalSec={limit or 'not set'}",),
                fix=(
                    f"sudo systemctl edit {unit.name}: StartLimitIntervalSec=3600 and StartLimitBurst=5 under [Unit]",
                    "and RestartSec=10 under [Service]",
                ),
            )
        else:
            yield Verdict("pass", f"{unit.name} gives up after a while", unit.name)


@check(
    "serving.kill-mode",
    title="A stop ends every process of a server",
    why="vLLM's engine and workers are processes of their own. Where systemd ends only the first, they live on and "
    "hold the GPU's memory, and the next start finds none.",
    fix=("KillMode=control-group or mixed under [Service]",),
    source=(
        "https://man7.org/linux/man-pages/man5/systemd.kill.5.html",
        "https://github.com/Blackwellboy/model-serving-minefield/pull/53",
    ),
    requires=(requirements.systemd_units,),
)
def serving_kill_mode(context: Context) -> Iterator[Verdict]:
    """KillMode= of services that serve a model."""
    units = _units(context)
    if not units:
        yield Verdict("skip", "Not checked: no service serves a model")
    for unit in units:
        mode = _last(unit, "KillMode") or "control-group"
        if mode in ("process", "none"):
            yield Verdict(
                "warn",
                f"A stop of {unit.name} leaves the engine's processes and their GPU memory",
                unit.name,
                (f"{unit.path or unit.name}: KillMode={mode}",),
                fix=(f"sudo systemctl edit {unit.name}: KillMode=mixed under [Service]",),
            )
        else:
            yield Verdict("pass", f"A stop of {unit.name} ends every process ({mode})", unit.name)


@check(
    "serving.unit-restart",
    title="A server that has died is started again",
    why="When vLLM's engine dies its API server ends with status 0: Restart=on-failure takes that for an orderly end.",
    fix=("Restart=always under [Service]",),
    source=("https://github.com/vllm-project/vllm/issues/53726",),
    requires=(requirements.systemd_units,),
)
def serving_unit_restart(context: Context) -> Iterator[Verdict]:
    """Restart= of services that serve a model."""
    units = _units(context)
    if not units:
        yield Verdict("skip", "Not checked: no service serves a model")
    for unit in units:
        restart = _last(unit, "Restart") or "no"
        if restart == "always":
            yield Verdict("pass", f"{unit.name} is always started again", unit.name)
        else:
            yield Verdict(
                "info",
                f"{unit.name} stays down when its engine has died",
                unit.name,
                (f"{unit.path or unit.name}: Restart={restart}",),
                fix=(f"sudo systemctl edit {unit.name}: Restart=always under [Service]",),
            )
