"""Ports and nginx."""

from __future__ import annotations

from dataclasses import replace

from onecat.doctor import Settings
from onecat.facts import Facts, Listener, ServerLog, SystemdUnit, Tools
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import HEALTHY, NOTHING_KNOWN, V100


def started(command: str) -> Facts:
    """A host with a systemd unit that starts a server so."""
    return replace(NOTHING_KNOWN, systemd_units=(SystemdUnit("vllm.service", settings=(("ExecStart", command),)),))


def logged(*lines: str) -> Facts:
    """A host with the log of a server."""
    return replace(NOTHING_KNOWN, server_logs=(ServerLog("server.log", lines),))


CASES: list[Case] = [
    case("serving.port", "pass", "Port 8000 is free", HEALTHY),
    case("serving.port", "warn", "Port 22, for the server, is in use", HEALTHY, V100, Settings(port=22)),
    case("serving.port", "skip", "not known", NOTHING_KNOWN),
    case("serving.proxy-port", "pass", "Port 8080 is free", HEALTHY),
    case("serving.proxy-port", "warn", "in use", replace(HEALTHY, listeners=(Listener("::", 8080),))),
    case("serving.proxy-port", "skip", "has no proxy", HEALTHY, V100, Settings(proxy_port=None)),
    case("serving.nginx", "pass", "nginx 1.18.0", HEALTHY),
    case("serving.nginx", "info", "nginx is not installed", replace(HEALTHY, tools=Tools())),
    case("serving.nginx", "skip", "not known", NOTHING_KNOWN),
    case("serving.statistics", "skip", "the arguments of no server are known", NOTHING_KNOWN),
    case("serving.statistics", "pass", "No server is told", HEALTHY, V100, Settings(serve=())),
    case("serving.statistics", "pass", "No server is told", HEALTHY, V100, Settings(serve=(("max-num-seqs", 4),))),
    case("serving.statistics", "pass", "No server is told", started("vllm serve /m --port 8000")),
    case("serving.statistics", "pass", "No server is told", logged("INFO non-default args: {'port': 8000}")),
    case(
        "serving.statistics",
        "warn",
        "is told to keep no statistics",
        HEALTHY,
        V100,
        Settings(serve=(("disable-log-stats", True),)),
    ),
    case(
        "serving.statistics",
        "pass",
        "No server is told",
        HEALTHY,
        V100,
        Settings(serve=(("disable-log-stats", False),)),
    ),
    case("serving.statistics", "warn", "keep no statistics", started("vllm serve /m --disable-log-stats")),
    case("serving.statistics", "warn", "keep no statistics", started("docker run image /m --disable_log_stats")),
    case(
        "serving.statistics",
        "warn",
        "keep no statistics",
        logged("INFO 11-29 non-default args: {'model_tag': '/m', 'disable_log_stats': True}"),
    ),
]
