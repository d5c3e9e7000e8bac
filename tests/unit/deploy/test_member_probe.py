"""Active probing of the servers behind one nginx: what is decided, and what systemd is told."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.deploy import member_probe
from onecat.deploy.member_probe import ANSWERS, FAILURES, Listed
from onecat.deploy.probing import INTERVAL_SECONDS, render_units
from onecat.deploy.site import Site, Upstream, from_document, render_servers, render_site, to_document, without_marks

A, B = Upstream("10.0.0.1:8000", 1, "gpu1/3"), Upstream("[fd00::2]:8000", 1, "gpu2/3")
SITE = Site("demo", "127.0.0.1:8080", (A, B), probed=True)


def down(text: str) -> set[str]:
    return {each.address for each in member_probe.parse(text) if each.is_down}


def mark(text: str, *addresses: str) -> str:
    return member_probe.marked(text, {each.line for each in member_probe.parse(text) if each.address in addresses})


def looks(text: str, *answered: set[str]) -> str:
    """nginx's file after so many looks, each of which these addresses answered."""
    counts: dict[str, int] = {}
    for well in answered:
        servers = member_probe.parse(text)
        counts = member_probe.count(servers, counts, well)
        text = member_probe.marked(text, member_probe.decide(servers, counts))
    return text


def test_the_servers_of_a_probed_site_stand_in_a_file_of_their_own() -> None:
    text = render_site(SITE, "x", servers_file="/etc/nginx/conf.d/onecat-demo.servers")
    assert "include /etc/nginx/conf.d/onecat-demo.servers;" in text and "server 10.0.0.1" not in text
    assert "least_conn;" in text
    for other in (replace(SITE, probed=False), replace(SITE, upstreams=(A,)), replace(SITE, upstreams=())):
        assert "include" not in render_site(other, "x")
    assert from_document(to_document(SITE)).probed
    assert member_probe.parse(render_servers(SITE)) == [
        Listed(f"server {each.address} weight=1 max_fails=1 fail_timeout=10s; # {each.name}", each.address, False)
        for each in (A, B)
    ]


def test_a_server_is_given_up_after_some_failures_in_a_row_and_comes_back_after_some_answers() -> None:
    text, both, one = render_servers(SITE), {A.address, B.address}, {A.address}
    assert down(looks(text, *[one] * (FAILURES - 1))) == set()
    assert down(looks(text, one, both, *[one] * (FAILURES - 1))) == set()
    assert down(looks(text, *[one] * FAILURES)) == {B.address}
    assert down(looks(text, *[one] * FAILURES, both)) == {B.address}
    assert down(looks(text, *[one] * FAILURES, both, one, both)) == {B.address}
    assert looks(text, *[one] * FAILURES, *[both] * ANSWERS) == text


def test_the_last_server_is_never_given_up() -> None:
    text, one, other, none = render_servers(SITE), {A.address}, {B.address}, set[str]()
    assert down(looks(text, *[none] * 9)) == set()
    gone = looks(text, *[one] * FAILURES)
    assert down(looks(gone, *[none] * 9)) == {B.address}
    assert down(looks(gone, *[other] * FAILURES)) == {A.address}, "the other one answers again, and this one does not"


def test_a_change_of_servers_keeps_the_marks_of_those_that_stay() -> None:
    before = mark(render_servers(SITE), B.address)
    assert render_servers(SITE, before) == before
    assert without_marks(before) == render_servers(SITE)
    assert down(render_servers(replace(SITE, upstreams=(replace(A, name="gpu1/4"), B)), before)) == {B.address}
    assert down(render_servers(replace(SITE, upstreams=(A, replace(B, name="gpu2/4"))), before)) == set()
    assert down(render_servers(replace(SITE, upstreams=(B,)), before)) == set(), "none would be left"


@pytest.mark.parametrize("spoilt", ["", "[]", "{", '{"x": "y"}'])
def test_spoilt_counts_are_begun_anew(spoilt: str) -> None:
    assert member_probe._counts(spoilt) == {}


@pytest.mark.parametrize(("user", "of_host"), [(0, True), (0, False), (1000, False)])
def test_systemd_objects_to_nothing(user: int, of_host: bool, tmp_path: Path) -> None:
    units = render_units("demo", "/srv/one %cat/deployments/demo", "/usr/bin/python3", "/srv/proxy", user, of_host)
    for path, text in units.files.items():
        (tmp_path / Path(path).name).write_text(text)
    assert f"OnUnitInactiveSec={INTERVAL_SECONDS}\n" in units.timer
    assert ("User=1000" in units.service) == (user == 1000)
    assert ("ReadWritePaths=-/var/log/nginx" in units.service) == of_host
    done = subprocess.run(
        ["systemd-analyze", "verify", *sorted(map(str, tmp_path.iterdir()))], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
