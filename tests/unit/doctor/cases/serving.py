"""Ports and nginx."""

from __future__ import annotations

from dataclasses import replace

from onecat.doctor import Settings
from onecat.facts import Listener, Tools
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import HEALTHY, NOTHING_KNOWN, V100

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
]
