"""Services, containers of others, logs of servers."""

from __future__ import annotations

from dataclasses import replace

from onecat.doctor import Settings
from onecat.facts import Facts, ServerLog, Tools
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import HEALTHY, V100
from tests.unit.doctor.host_examples import KNOWN, container, docker, known, unit

SERVE = "/opt/vllm/bin/vllm serve /srv/models/qwen --port 8000"
DOCKER_RUN = "/usr/bin/docker run --name vllm --gpus all -p 127.0.0.1:8000:8000 vllm/vllm-openai:v0.27.1"
ONECAT = {
    "ExecStart": SERVE,
    "Restart": "always",
    "StartLimitIntervalSec": "6300",
    "StartLimitBurst": "10",
    "KillMode": "mixed",
}


def log(*lines: str) -> Facts:
    return known(server_logs=(ServerLog("server.log", lines),))


def unlisted(command: str) -> Facts:
    """A unit that runs this command, on a host whose Docker daemon does not let this user in."""
    return replace(docker(state="forbidden", containers=None), systemd_units=unit(ExecStart=command).systemd_units)


def mixed(command: str) -> Facts:
    """A unit that runs this command, and a container named vllm that Docker restarts."""
    return replace(container(restart_policy="unless-stopped"), systemd_units=unit(ExecStart=command).systemd_units)


CASES: list[Case] = [
    case(
        "serving.nginx",
        "warn",
        "nginx 1.14.1 is too old",
        known(tools=Tools((("nginx", "/x"),), (("nginx", "1.14.1"),))),
    ),
    case("serving.nginx", "pass", "is installed", known(tools=Tools((("nginx", "/usr/sbin/nginx"),)))),
    case("serving.units", "pass", "No other service", KNOWN),
    case("serving.units", "pass", "No other service", unit("onecat-qwen.service", **ONECAT)),
    case(
        "serving.units",
        "pass",
        "No other service",
        unit("ours.service", **ONECAT),
        V100,
        Settings(own_names=("ours.service",)),
    ),
    case("serving.units", "pass", "No other service", unit("nginx.service", ExecStart="/usr/sbin/nginx")),
    case("serving.units", "warn", "on port 8000 too", unit(ExecStart=SERVE)),
    case("serving.units", "warn", "on port 8000 too", unit(ExecStart=DOCKER_RUN)),
    case("serving.units", "info", "vllm.service serves a model", unit(ExecStart=SERVE.replace("8000", "9000"))),
    case("serving.units", "info", "ollama.service", unit("ollama.service", ExecStart="/usr/local/bin/ollama serve")),
    case("serving.units", "skip", "not known", HEALTHY),
    case("serving.containers", "pass", "No other container", KNOWN),
    case("serving.containers", "warn", "uses GPUs and publishes port 8000", container()),
    case("serving.containers", "info", "vllm uses GPUs", container(ports=())),
    case("serving.containers", "pass", "No other container", container(gpus=False, ports=(5432,))),
    case("serving.containers", "skip", "were not listed", HEALTHY),
    case("serving.restart-policy", "pass", "restarted by two", KNOWN),
    case("serving.restart-policy", "pass", "restarted by two", unit(ExecStart=DOCKER_RUN)),
    case(
        "serving.restart-policy",
        "warn",
        "that Docker restarts as well",
        unit(ExecStart=DOCKER_RUN.replace("--gpus", "--restart unless-stopped --gpus")),
    ),
    case("serving.restart-policy", "warn", "that Docker restarts as well", mixed("/usr/bin/docker start -a vllm")),
    case("serving.restart-policy", "info", "restarts vllm without end", container(restart_policy="always")),
    case("serving.restart-policy", "pass", "", container(restart_policy="always", image="nvidia/dcgm-exporter:4")),
    case("serving.restart-policy", "skip", "not known", HEALTHY),
    case("serving.restart-policy", "skip", "daemon refuses this user", unlisted("/usr/bin/docker start -a vllm")),
    case("serving.restart-policy", "pass", "restarted by two", unlisted(DOCKER_RUN)),
    case("serving.start-limit", "pass", "gives up", unit(**ONECAT)),
    case("serving.start-limit", "pass", "is not restarted", unit(ExecStart=SERVE)),
    case("serving.start-limit", "warn", "restarted for ever", unit(ExecStart=SERVE, Restart="always")),
    case(
        "serving.start-limit",
        "warn",
        "for ever",
        unit(ExecStart=SERVE, Restart="on-failure", StartLimitIntervalSec="0"),
    ),
    case("serving.start-limit", "skip", "no service", unit(ExecStart="/usr/local/bin/ollama serve", Restart="always")),
    case("serving.start-limit", "skip", "no service serves", KNOWN),
    case("serving.kill-mode", "pass", "(control-group)", unit(ExecStart=SERVE)),
    case("serving.kill-mode", "warn", "leaves the engine's processes", unit(ExecStart=SERVE, KillMode="process")),
    case("serving.kill-mode", "skip", "no service serves", KNOWN),
    case("serving.unit-restart", "pass", "always started again", unit(**ONECAT)),
    case("serving.unit-restart", "info", "stays down", unit(ExecStart=SERVE, Restart="on-failure")),
    case("serving.unit-restart", "skip", "no service serves", KNOWN),
    case("serving.log", "pass", "tells of no fault", log("INFO 11-29 12:00:00 [api_server.py:1] Started")),
    case(
        "serving.log",
        "fail",
        "holds no code",
        log("RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ),
    case(
        "serving.log",
        "warn",
        "larger than client_max_body_size",
        log("2026/11/29 17:00:00 [error] 31#31: *9 client intended to send too large body: 157286400 bytes"),
    ),
    case("serving.log", "skip", "no log of a server", KNOWN),
]
