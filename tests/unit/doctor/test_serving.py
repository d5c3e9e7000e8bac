"""Whose port it is decides whether a port in use is worth a warning."""

from __future__ import annotations

import pytest

from onecat.doctor import Settings, examine
from onecat.facts import Facts, Listener


@pytest.mark.parametrize(
    ("own_ports", "status"),
    [((), "warn"), ((8080,), "warn"), ((8000,), "pass")],
)
def test_a_port_in_use_is_fine_when_a_deployment_of_onecat_holds_it(own_ports: tuple[int, ...], status: str) -> None:
    facts = Facts(host="local", listeners=(Listener("127.0.0.1", 8000),))
    found = examine(facts, None, Settings(own_ports=own_ports))
    assert [finding.status for finding in found if finding.check == "serving.port"] == [status]
