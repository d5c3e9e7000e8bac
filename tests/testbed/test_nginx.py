"""A real nginx by the files that onecat writes: one of our own, before the small server."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from onecat import deploy
from onecat.deploy.client_keys import ClientKeys, render_keys
from onecat.deploy.keys import KeysReload
from onecat.deploy.nginx_build import parse_build
from onecat.deploy.proxies.directory import LARGEST_LOG
from onecat.deploy.proxies.own import OwnNginx
from onecat.deploy.site import Site, SiteLimits, render_main, render_servers, render_site, with_keys
from onecat.deploy.store import DeploymentStore
from onecat.errors import OnecatError
from onecat.hosts import LocalMachine
from onecat.paths import Home
from tests.testbed.cache import Cache
from tests.testbed.debian_packages import NotToBeHad
from tests.testbed.deployments import SmallDeployment
from tests.testbed.nginx_servers import (
    ALICE,
    BOB,
    KEYS,
    SERVERS_OWN,
    certificate,
    running_server,
    site,
    variants,
)
from tests.testbed.nginx_versions import PACKAGES, Nginx, nginx_of
from tests.testbed.ports import free_port


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as address:
        yield address


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[str]:
    with running_server(SERVERS_OWN) as address:
        yield address


@pytest.fixture
def own(tmp_path: Path, nginx: str) -> Iterator[OwnNginx]:
    proxy = OwnNginx(DeploymentStore(LocalMachine(tmp_path / "data"), "demo"))
    yield proxy
    proxy.remove()
    assert not proxy.running()


def client(of: Site, key: str | None = None, **options: object) -> httpx.Client:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=of.endpoint, headers=headers, trust_env=False, **options)  # type: ignore[arg-type]


def directory_of(own: OwnNginx) -> Path:
    return Path(own._directory)


def log(own: OwnNginx, count: int) -> list[dict[str, object]]:
    """The last lines of the access log, once there are as many."""
    limit = time.monotonic() + 5
    while len(lines := own.access_lines(count)) < count and time.monotonic() < limit:
        time.sleep(0.02)
    return [json.loads(line) for line in lines]


# --- who may ask ------------------------------------------------------------------------------------------------------


def test_a_client_is_let_in_by_its_key_and_the_server_hears_its_own(own: OwnNginx, guarded_server: str) -> None:
    asked = site(guarded_server, keys=KEYS)
    own.apply(asked)
    with client(asked, ALICE) as alice:
        heard = alice.get("/v1/headers").json()
        assert heard["authorization"] == f"Bearer {SERVERS_OWN}"
        assert alice.get("/v1/models", headers={"Authorization": f"bearer  {BOB}"}).status_code == 200
    first, second = log(own, 2)
    assert (first["key"], second["key"]) == ("alice", "bob")
    text = (directory_of(own) / "logs/access.log").read_text()
    assert not any(key in text for key in (ALICE, BOB, SERVERS_OWN))
    for path in directory_of(own).rglob("*"):
        if path.is_file() and any(key in path.read_text() for key in (ALICE, BOB, SERVERS_OWN)):
            assert (path.name, path.stat().st_mode & 0o777) == ("keys.conf", 0o600)


def test_a_wrong_key_and_a_missing_one_get_the_same_answer(own: OwnNginx, guarded_server: str) -> None:
    asked = site(guarded_server, keys=KEYS)
    own.apply(asked)
    wrong = (None, "", ALICE[:-1], ALICE + "x", ALICE.lower(), ALICE.replace(".", "x"), SERVERS_OWN, f"{ALICE} {BOB}")
    told = set()
    for key in wrong:
        with client(asked) as somebody:
            headers = {} if key is None else {"Authorization": f"Bearer {key}" if key else ""}
            answer = somebody.post("/v1/completions", json={"prompt": "x"}, headers=headers)
        shown = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
        told.add((answer.status_code, answer.text, tuple(shown.items())))
    ((status, text, headers),) = told
    assert status == 401
    assert json.loads(text)["error"]["code"] == "invalid_api_key"
    assert dict(headers)["www-authenticate"] == "Bearer"
    assert {line["key"] for line in log(own, len(wrong))} == {""}
    with client(asked) as somebody:
        assert somebody.get("/health").status_code == 200
        assert somebody.options("/v1/models").status_code == 501  # the small server's word for it: it was passed on


def test_other_keys_hold_from_one_moment_to_the_next(own: OwnNginx, guarded_server: str) -> None:
    asked = site(guarded_server, keys=KEYS)
    own.apply(asked)
    own.apply(with_keys(asked, ClientKeys((("carol", BOB),), SERVERS_OWN)))
    with client(asked) as somebody:
        status = {key: somebody.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code
                  for key in (ALICE, BOB)}  # fmt: skip
    assert status == {ALICE: 401, BOB: 200}
    # A change of servers, by a command that has no keys at hand, keeps them.
    own.apply(replace(asked, keys=None, upstreams=()))
    with client(asked, BOB) as carol:
        assert carol.get("/v1/models").status_code == 503
    with client(asked, ALICE) as alice:
        assert alice.get("/v1/models").status_code == 401


def test_what_is_not_for_clients_is_closed(own: OwnNginx, server: str) -> None:
    asked = site(server, open_paths=("/tokenize",), metrics_from=("10.9.8.7",))
    own.apply(asked)
    closed = ("/docs", "/openapi.json", "/version", "/load", "/ping", "/invocations", "/sleep", "/wake_up", "/pause",
              "/reset_prefix_cache", "/server_info", "/collective_rpc", "/scale_elastic_ep", "/start_profile",
              "/detokenize", "/v2/embed", "/v1/load_lora_adapter", "/v1/unload_lora_adapter/", "/v1//load_lora_adapter",
              "/v1/x/../load_lora_adapter", "/v1/%6coad_lora_adapter", "/v1/../sleep",
              "/v1/completions/render")  # fmt: skip
    with client(asked) as somebody:
        # As it stands: httpx would tidy the dots away.
        found = {path: raw_status(asked, path) for path in closed}
        assert set(found.values()) == {404}, found
        assert somebody.post("/tokenize", json={}).status_code == 200
        answer = somebody.get("/metrics")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def raw_status(of: Site, path: str) -> int:
    host, _, port = of.listen.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return int(connection.recv(64).split()[1])


# --- how much they may ask --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", ["address", "key"])
def test_a_client_that_asks_too_much_is_told_to_wait(own: OwnNginx, guarded_server: str, per: str) -> None:
    asked = site(guarded_server, keys=KEYS, limits=SiteLimits(per, 0.5, 2, None))  # type: ignore[arg-type]
    own.apply(asked)
    with client(asked, ALICE) as alice, client(asked, BOB) as bob:
        answers = [alice.get("/v1/models") for _ in range(5)]
        others = bob.get("/v1/models").status_code
    assert [each.status_code for each in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].json()["error"]["type"] == "rate_limit_error"
    assert answers[-1].headers["retry-after"] == "1"
    assert others == (429 if per == "address" else 200)


def test_so_many_answers_at_a_time(own: OwnNginx, server: str) -> None:
    asked = site(server, limits=SiteLimits(connections=1))
    own.apply(asked)
    with client(asked) as first, client(asked) as second:
        with first.stream("POST", "/v1/chat/completions", json={"stream": True}) as running:
            lines = running.iter_lines()
            next(lines)
            assert second.get("/v1/models").status_code == 429
            assert second.get("/health").status_code == 200
        assert second.get("/v1/models").status_code == 200


# --- streams, ids, errors ---------------------------------------------------------------------------------------------


def test_parts_arrive_as_they_are_sent_and_nginx_adds_next_to_nothing(own: OwnNginx, server: str) -> None:
    asked = site(server)
    own.apply(asked)

    def stream(url: str) -> list[float]:
        began, arrivals = time.perf_counter(), []
        with httpx.stream("POST", f"{url}/v1/chat/completions", json={"stream": True}, trust_env=False) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    arrivals.append(time.perf_counter() - began)
        return arrivals

    through = [stream(asked.endpoint) for _ in range(3)]
    direct = [stream(f"http://{server}") for _ in range(3)]
    for arrivals in through:
        assert len(arrivals) == 9
        assert arrivals[-1] - arrivals[0] > 0.3  # the server waits 0.05 s after each of eight
    longest = [
        max(later - earlier for earlier, later in zip(arrivals, arrivals[1:], strict=False)) for arrivals in through
    ]
    assert min(longest) < 0.2
    more = min(each[0] for each in through) - min(each[0] for each in direct)
    print(f"first token through nginx: {more * 1000:+.2f} ms")
    assert more < 0.1


def test_a_clients_id_is_kept_and_another_made_where_it_is_unfit(own: OwnNginx, server: str) -> None:
    asked = site(server)
    own.apply(asked)
    with client(asked) as somebody:
        kept = somebody.get("/v1/headers", headers={"X-Request-Id": "job-7.3:b"})
        made = [somebody.get("/v1/headers", headers={"X-Request-Id": each}) for each in ('"}\\x', "a" * 129, "")]
        missing = somebody.get("/nowhere", headers={"X-Request-Id": "job-8"})
    assert kept.headers["x-request-id"] == kept.json()["x-request-id"] == "job-7.3:b"
    for each in made:
        assert each.headers.get_list("x-request-id") == [each.json()["x-request-id"]]
        assert len(each.json()["x-request-id"]) == 32
    assert (missing.status_code, missing.headers["x-request-id"]) == (404, "job-8")
    assert kept.headers["x-accel-buffering"] == "no"
    lines = log(own, 5)
    assert [lines[0]["request_id"], lines[-1]["request_id"]] == ["job-7.3:b", "job-8"]
    assert (lines[0]["release"], lines[0]["upstream"], lines[-1]["release"]) == ("local/1", server, "")


def test_a_query_does_not_reach_the_log(own: OwnNginx, server: str) -> None:
    asked = site(server)
    own.apply(asked)
    with client(asked) as somebody:
        somebody.get("/v1/models?api_key=sk-secret")
    assert log(own, 1)[0]["path"] == "/v1/models"
    assert "sk-secret" not in (directory_of(own) / "logs/access.log").read_text()


def test_a_large_log_is_begun_anew_with_the_next_change(own: OwnNginx, server: str) -> None:
    asked = site(server)
    own.apply(asked)
    path = directory_of(own) / "logs/access.log"
    with path.open("r+b") as stream:
        stream.truncate(LARGEST_LOG + 1)
    own.apply(asked)
    with client(asked) as somebody:
        somebody.get("/v1/models")
    assert log(own, 1)[0]["status"] == 200
    assert path.stat().st_size < 1000
    assert path.with_name("access.log.1").stat().st_size == LARGEST_LOG + 1


def test_without_a_server_everybody_is_told_to_come_back(own: OwnNginx) -> None:
    asked = site(retry_after_seconds=7)
    own.apply(asked)
    with client(asked) as somebody:
        answers = [
            somebody.post("/v1/chat/completions", json={"stream": True, "messages": ["x" * 100_000]}),
            somebody.get("/v1/models"),
            somebody.get("/health"),
        ]
    for answer in answers:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["type"] == "server_error"


def test_a_dead_one_of_several_servers_is_not_noticed(own: OwnNginx, server: str) -> None:
    asked = site(f"127.0.0.1:{free_port()}", server)
    own.apply(asked)
    with client(asked) as somebody:
        codes = {somebody.post("/v1/completions", json={"prompt": "x"}).status_code for _ in range(6)}
    assert codes == {200}
    assert {line["release"] for line in log(own, 6)} == {"local/2"}


# --- where it listens -------------------------------------------------------------------------------------------------


def test_tls(own: OwnNginx, server: str, tmp_path: Path) -> None:
    asked = site(server, tls=certificate(tmp_path))
    own.apply(asked)
    assert asked.endpoint.startswith("https://")
    with client(asked, verify=False) as somebody:
        answer = somebody.get("/v1/models")
        assert answer.status_code == 200
        assert "strict-transport-security" not in answer.headers
        plain = httpx.get(asked.endpoint.replace("https", "http") + "/v1/models", trust_env=False)
        assert (plain.status_code, plain.json()["error"]["code"]) == (400, "https_required")
    old = subprocess.run(["openssl", "s_client", "-tls1_1", "-connect", asked.listen], input=b"", capture_output=True)
    assert old.returncode != 0
    modern = subprocess.run(
        ["openssl", "s_client", "-alpn", "h2", "-connect", asked.listen], input=b"", capture_output=True
    )
    assert b"ALPN protocol: h2" in modern.stdout


def test_ipv6(own: OwnNginx, server: str) -> None:
    asked = replace(site(server), listen=f"[::1]:{free_port()}")
    own.apply(asked)
    with client(asked) as somebody:
        assert somebody.get("/v1/models").status_code == 200


def test_an_address_that_is_taken_changes_nothing(own: OwnNginx, server: str) -> None:
    asked = site(server)
    own.apply(asked)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        elsewhere = replace(asked, listen=f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(OnecatError, match=r"the port of proxy\.listen is in use"):
            own.apply(elsewhere)
    assert asked.listen in (directory_of(own) / "site.conf").read_text()
    with client(asked) as somebody:
        assert somebody.get("/v1/models").status_code == 200


def test_what_serves_is_untouched_by_a_check_that_fails(own: OwnNginx, server: str, tmp_path: Path) -> None:
    asked = site(server, keys=KEYS)
    own.apply(asked)
    missing = replace(asked, tls=replace(certificate(tmp_path), key="/nowhere/key.pem"))
    with pytest.raises(OnecatError, match="certificate or the key"):
        own.check(missing, str(tmp_path / "release/nginx"))
    own.check(asked, str(tmp_path / "release/nginx"))
    assert not list((tmp_path / "release").rglob("keys*"))
    with client(asked, ALICE) as alice:
        assert alice.get("/v1/models").status_code == 200


# --- every nginx ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["this machine's", *PACKAGES])
def test_every_form_of_a_site_is_valid_for_every_nginx(release: str, nginx: str, cache: Cache, tmp_path: Path) -> None:
    if release == "this machine's":
        found = Nginx((nginx,))
    else:
        try:
            found = nginx_of(release, cache)
        except NotToBeHad as reason:
            pytest.skip(str(reason))
    build = parse_build(found.run("-V").stderr)
    assert build is not None
    for name, each in variants(certificate(tmp_path)).items():
        for folder in ("logs", "temporary"):
            (tmp_path / name / folder).mkdir(parents=True)
        (tmp_path / name / "nginx.conf").write_text(render_main(each, None, build))
        (tmp_path / name / "site.conf").write_text(render_site(each, "logs/access.log", build))
        (tmp_path / name / "servers.conf").write_text(render_servers(each))
        (tmp_path / name / "keys.conf").write_text(render_keys(each.identifier, KEYS))
        tested = found.run("-t", "-p", f"{tmp_path / name}/", "-c", "nginx.conf")
        assert tested.returncode == 0, (name, tested.stderr)
        assert "[warn]" not in tested.stderr, (name, tested.stderr)


# --- through `up` and `keys reload` -----------------------------------------------------------------------------------


def test_keys_of_clients_from_onecat_yaml_to_nginx(onecat_home: Path, tiny_model: Path, nginx: str) -> None:
    small = SmallDeployment(Home(onecat_home, onecat_home / "cache"), tiny_model, free_port(), free_port())
    file, key = onecat_home.parent / "keys", onecat_home.parent / "key"
    for path, text in ((file, f"alice {ALICE}\n"), (key, SERVERS_OWN)):
        path.write_text(text)
        path.chmod(0o600)
    proxy = {"listen": f"127.0.0.1:{small.proxy_port}", "keys_file": str(file), "instance": "own"}
    changes = {"proxy": proxy, "secrets": {"api_key": {"file": str(key)}}}
    release = small.up(**changes)

    def status(sent: str) -> int:
        headers = {"Authorization": f"Bearer {sent}"}
        return httpx.get(f"{release.endpoint}/v1/models", headers=headers, trust_env=False).status_code

    try:
        assert (status(ALICE), status(BOB), status(SERVERS_OWN)) == (200, 401, 401)
        file.write_text(f"bob {BOB}\n")
        assert deploy.reload_keys(small.store, small.deployment(**changes)) == KeysReload(("bob",), True)
        assert (status(ALICE), status(BOB)) == (401, 200)
        assert not deploy.reload_keys(small.store, small.deployment(**changes)).changed
        file.write_text(f"alice {ALICE}\n")
        assert small.up(**changes).number == release.number
        assert (status(ALICE), status(BOB)) == (200, 401)
        file.write_text("alice short\n")
        with pytest.raises(OnecatError, match="the key of alice has 5 characters"):
            deploy.reload_keys(small.store, small.deployment(**changes))
        assert status(ALICE) == 200
        for path in onecat_home.rglob("*"):
            if path.is_file() and any(each in path.read_bytes().decode(errors="replace") for each in (ALICE, BOB)):
                assert (path.name, path.stat().st_mode & 0o777) == ("keys.conf", 0o600)
    finally:
        deploy.down(small.store)
