"""nginx's files: what they hold, parsed by crossplane, judged by gixy, and as they were agreed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import crossplane
import pytest

from onecat.config.schema import Deployment, Limits, Model, Proxy, Tls
from onecat.deploy.client_keys import ClientKeys, parse_keys, read_client_keys, render_keys
from onecat.deploy.nginx_build import OLDEST, NginxBuild, parse_build
from onecat.deploy.site import (
    Site,
    SiteLimits,
    SiteTls,
    Upstream,
    from_document,
    render_main,
    render_servers,
    render_site,
    site_of,
    to_document,
    with_keys,
)
from onecat.errors import OnecatError
from tests.testbed.nginx_servers import ALICE, BOB, KEYS, SERVERS_OWN, variants

FIXTURES = Path(__file__).parents[2] / "fixtures" / "nginx"
TLS = SiteTls("/etc/onecat/certificate.pem", "/etc/onecat/key.pem")
SITE = Site("my-model", "127.0.0.1:8080", (Upstream("127.0.0.1:8000", 1, "local/3"),), max_body_mib=32)
GUARDED = with_keys(replace(SITE, tls=TLS, limits=SiteLimits("key", 2.5, 20, 8)), KEYS)
NEWEST = NginxBuild((1, 30, 6), OLDEST.options)


def parsed(site: Site, tmp_path: Path, build: NginxBuild = OLDEST) -> list[dict[str, Any]]:
    (tmp_path / "nginx.conf").write_text(render_main(site, "nobody nogroup", build))
    (tmp_path / "site.conf").write_text(render_site(site, "logs/access.log", build))
    (tmp_path / "servers.conf").write_text(render_servers(site))
    (tmp_path / "keys.conf").write_text("" if site.keys is None else render_keys(site.identifier, site.keys))
    document = crossplane.parse(str(tmp_path / "nginx.conf"))
    assert document["errors"] == []
    return [directive for config in document["config"] for directive in config["parsed"]]


def block(directives: list[dict[str, Any]], name: str, *args: str) -> dict[str, list[list[str]]]:
    """The directives of the first block `name args` anywhere, as name -> list of arguments."""
    for directive in directives:
        inner = directive.get("block") or []
        if directive["directive"] == name and (not args or directive["args"] == list(args)):
            found: dict[str, list[list[str]]] = {}
            for part in inner:
                found.setdefault(part["directive"], []).append(part["args"])
            return found
        deeper = block(inner, name, *args)
        if deeper:
            return deeper
    return {}


# --- as agreed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("site.conf", render_site(SITE, "logs/access.log")),
        ("site-paused.conf", render_site(replace(SITE, upstreams=()), "logs/access.log")),
        ("site-guarded.conf", render_site(GUARDED, "/var/log/nginx/my-model.log", NEWEST, "/etc/nginx/my-model.keys")),
        ("keys.conf", render_keys("onecat_my_model", KEYS)),
        ("nginx.conf", render_main(SITE, None)),
    ],
)
def test_the_files_are_as_agreed(name: str, text: str) -> None:
    assert text == (FIXTURES / name).read_text()


# --- the server behind it ---------------------------------------------------------------------------------------------


def test_streams_pass_unbuffered_over_kept_connections(tmp_path: Path) -> None:
    server = block(parsed(replace(SITE, read_timeout_seconds=1800), tmp_path), "server")
    assert server["proxy_buffering"] == [["off"]]
    assert server["proxy_http_version"] == [["1.1"]]
    assert ["Connection", ""] in server["proxy_set_header"]
    assert server["gzip"] == [["off"]]
    assert server["proxy_read_timeout"] == [["1800s"]]
    assert server["client_max_body_size"] == [["32m"]]


def test_an_idle_connection_is_dropped_before_the_server_drops_it(tmp_path: Path) -> None:
    upstream = block(parsed(SITE, tmp_path), "upstream")
    assert upstream["server"] == [["127.0.0.1:8000", "weight=1", "max_fails=0"]]
    assert upstream["keepalive_timeout"] == [["4s"]]
    assert block(parsed(SITE, tmp_path), "server")["proxy_next_upstream"] == [["off"]]


def test_of_equal_servers_the_least_busy_one_is_asked_and_a_canary_gets_its_share(tmp_path: Path) -> None:
    equal = replace(SITE, upstreams=(Upstream("10.0.0.1:8000"), Upstream("10.0.0.2:8000")))
    upstream = block(parsed(equal, tmp_path), "upstream")
    assert upstream["least_conn"] == [[]]
    assert [each[0] for each in upstream["server"]] == ["10.0.0.1:8000", "10.0.0.2:8000"]
    assert block(parsed(equal, tmp_path), "server")["proxy_next_upstream"] == [["error", "timeout"]]
    canary = replace(SITE, upstreams=(Upstream("10.0.0.1:8000", 9), Upstream("10.0.0.1:8001", 1)))
    upstream = block(parsed(canary, tmp_path), "upstream")
    assert "least_conn" not in upstream
    assert [each[1] for each in upstream["server"]] == ["weight=9", "weight=1"]


def test_the_path_is_passed_on_unchanged(tmp_path: Path) -> None:
    for location in (("/v1/",), ("=", "/health")):
        assert block(parsed(SITE, tmp_path), "location", *location)["proxy_pass"] == [["http://onecat_my_model"]]


def test_a_socket_of_the_realtime_interface_is_upgraded(tmp_path: Path) -> None:
    location = block(parsed(GUARDED, tmp_path), "location", "=", "/v1/realtime")
    assert ["Upgrade", "$http_upgrade"] in location["proxy_set_header"]
    assert ["Connection", "upgrade"] in location["proxy_set_header"]
    assert ["Authorization", "$onecat_my_model_authorization"] in location["proxy_set_header"]


def test_metrics_are_for_those_that_are_named(tmp_path: Path) -> None:
    assert block(parsed(SITE, tmp_path), "location", "=", "/metrics")["allow"] == [["127.0.0.1"], ["::1"]]
    location = block(parsed(replace(SITE, metrics_from=("10.0.0.0/8",)), tmp_path), "location", "=", "/metrics")
    assert (location["allow"], location["deny"]) == ([["10.0.0.0/8"]], [["all"]])


# --- what differs from one nginx to another ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "listens"),
    [
        (OLDEST, ("listen 127.0.0.1:8080 ssl http2",)),
        (NginxBuild((1, 25, 0), OLDEST.options), ("listen 127.0.0.1:8080 ssl http2",)),
        (NginxBuild((1, 25, 1), OLDEST.options), ("listen 127.0.0.1:8080 ssl", "http2 on")),
        (NginxBuild((1, 25, 1), "--with-http_ssl_module"), ("listen 127.0.0.1:8080 ssl",)),
    ],
)
def test_http2_is_spoken_as_this_nginx_wants_to_be_told(build: NginxBuild, listens: tuple[str, ...]) -> None:
    assert GUARDED.listen_options(build) == listens


def test_a_reload_closes_no_connection_that_is_about_to_be_used_where_nginx_can_do_so() -> None:
    newer, older = (render_site(SITE, "x", NginxBuild((1, 27, patch))) for patch in (4, 3))
    assert "keepalive_min_timeout 5s;" in newer and "keepalive_timeout 0;" not in newer
    assert "keepalive_min_timeout" not in older and "keepalive_timeout 0;" in older


def test_a_build_is_read_from_what_nginx_says_of_itself() -> None:
    said = "nginx version: nginx/1.22.1\nbuilt with OpenSSL\nconfigure arguments: --prefix=/usr/share/nginx " \
           "--conf-path=/etc/nginx/nginx.conf --pid-path=logs/nginx.pid --with-http_v2_module " \
           "--without-http_limit_req_module\n"  # fmt: skip
    build = parse_build(said)
    assert build is not None
    assert build.version == (1, 22, 1)
    assert (build.path("conf-path"), build.path("pid-path")) == (
        "/etc/nginx/nginx.conf",
        "/usr/share/nginx/logs/nginx.pid",
    )
    assert (build.has("http_v2"), build.has("http_ssl"), build.lacks("http_limit_req")) == (True, False, True)
    assert GUARDED.missing_modules(build) == ("http_limit_req", "http_ssl")
    assert SITE.missing_modules(build) == ()
    assert parse_build("bash: nginx: command not found") is None


def test_a_module_that_nginx_lacks_gets_no_directive() -> None:
    text = render_main(SITE, None, NginxBuild((1, 22, 1), "--without-http_scgi_module --without-http_uwsgi_module"))
    assert "scgi_temp_path" not in text
    assert "uwsgi_temp_path" not in text
    assert "fastcgi_temp_path temporary/fastcgi;" in text


def test_no_name_is_too_long_for_nginxs_tables() -> None:
    site = replace(GUARDED, deployment="a" * 40)
    names = re.findall(r"\$onecat_\w+", render_site(site, "x") + render_keys(site.identifier, KEYS))
    assert max(len(name) for name in names) <= 47
    assert site.identifier != replace(site, deployment="a" * 39 + "b").identifier


# --- clients ----------------------------------------------------------------------------------------------------------


def test_keys_are_in_no_file_but_their_own() -> None:
    text = render_site(GUARDED, "x") + json.dumps(to_document(GUARDED)) + repr((GUARDED, KEYS))
    text += json.dumps(asdict(GUARDED), default=str)
    assert not any(key in text for key in (ALICE, BOB, SERVERS_OWN))
    assert from_document(json.loads(json.dumps(to_document(GUARDED)))) == replace(GUARDED, upstreams=())
    assert with_keys(GUARDED, ClientKeys(KEYS.clients[:1], SERVERS_OWN)) != GUARDED


def test_a_key_stands_for_itself_and_nothing_like_it() -> None:
    (pattern, _) = re.findall(r'"~(.*)" "', render_keys("x", KEYS))
    matches = re.compile(pattern.replace(r"\z", r"\Z"))
    assert matches.search(f"Bearer {ALICE}")
    assert matches.search(f"bearer   {ALICE}")
    for other in (ALICE.lower(), ALICE.replace(".", "x"), ALICE.replace("+", ""), ALICE + "=", "x" + ALICE):
        assert not matches.search(f"Bearer {other}"), other
    assert not matches.search(f"x Bearer {ALICE}")


@pytest.mark.parametrize(
    ("text", "told", "line"),
    [
        ("alice\n", "1 words in place of", 1),
        ("# ours\n\nalice 0123456789abcdef more\n", "3 words in place of", 3),
        ('alice 0123456789"abcdef\n', "the key of alice has a character", 1),
        ("alice 0123456789$abcdef\n", "the key of alice has a character", 1),
        ("al;ce 0123456789abcdef\n", "a client's name has a character", 1),
        ("alice tooshort\n", "the key of alice has 8 characters", 1),
        ("0123456789abcdef alice\n", "the key of a client with a long name has 5 characters", 1),
        ("0123456789abcdef tooshort!\n", "the key of a client with a long name has a character", 1),
        ("alice 0123456789abcdef\nbob 0123456789abcdef\n", "bob and alice have the same key", 2),
    ],
)
def test_a_line_that_is_no_name_and_key_is_told_without_the_key(text: str, told: str, line: int) -> None:
    with pytest.raises(OnecatError, match=told) as raised:
        parse_keys(text, "keys")
    assert raised.value.where == f"keys:{line}"
    assert not any(word in raised.value.found for word in ("0123456789", "tooshort"))


def test_an_empty_file_of_keys_is_refused() -> None:
    with pytest.raises(OnecatError, match="no key in it"):
        parse_keys("# nobody yet\n", "keys")


def test_the_file_of_keys_is_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"alice {ALICE}\n# changes its key\nalice {BOB}\n")
    path.chmod(0o644)
    deployment = deployment_with(keys_file=str(path))
    with pytest.raises(OnecatError, match="everybody on this machine may read"):
        read_client_keys(deployment, None)
    path.chmod(0o600)
    assert read_client_keys(deployment, None) == ClientKeys((("alice", ALICE), ("alice", BOB)))
    with pytest.raises(OnecatError, match="a character that nginx cannot send"):
        read_client_keys(deployment, "pa$$word")
    path.unlink()
    with pytest.raises(OnecatError, match="No such file"):
        read_client_keys(deployment, None)
    assert read_client_keys(deployment_with(), None) is None


@pytest.mark.parametrize(("per_second", "rate"), [(10.0, "10r/s"), (0.5, "30r/m"), (2.5, "150r/m"), (0.001, "1r/m")])
def test_a_rate_is_written_in_whole_numbers(per_second: float, rate: str) -> None:
    assert replace(SITE, limits=SiteLimits(requests_per_second=per_second)).rate == rate


# --- answers and log --------------------------------------------------------------------------------------------------


def test_errors_of_nginx_itself_have_openais_form() -> None:
    answers = re.findall(r"return (\d+) '(.*)';", render_site(GUARDED, "x"))
    assert {status for status, _ in answers} == {"400", "401", "403", "404", "413", "429", "500", "502", "503", "504"}
    for _, text in answers:
        assert set(json.loads(text)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("site", [SITE, GUARDED])
def test_the_log_is_json_and_has_neither_queries_nor_headers_of_clients(site: Site, tmp_path: Path) -> None:
    (arguments,) = [each["args"] for each in parsed(site, tmp_path) if each["directive"] == "log_format"]
    text = "".join(arguments[2:])
    line = json.loads(re.sub(r"\$\w+", "1", text))
    assert line["status"] == 1
    assert {"request_id", "key", "release", "upstream", "upstream_seconds", "bytes"} <= set(line)
    assert arguments[1] == "escape=json"
    assert not re.findall(r"\$(args|query_string|request|request_uri|http_\w+)\b", text)


# --- onecat.yaml ------------------------------------------------------------------------------------------------------


def deployment_with(**proxy: Any) -> Deployment:
    return Deployment(name="demo", profile="cpu", model=Model(path="/m"), proxy=Proxy(**proxy))


def test_everything_of_onecat_yaml_reaches_the_site() -> None:
    site = site_of(
        deployment_with(
            listen="[::]:443",
            server_name="models.example *.models.example",
            tls=Tls(certificate="/a.pem", key="/b.pem", hsts_seconds=300),
            limits=Limits(requests_per_second=3, burst=5, connections=7),
            metrics_from=("10.0.0.0/8",),
            open_paths=("/tokenize",),
        )
    )
    assert site.tls == SiteTls("/a.pem", "/b.pem", 300)
    assert site.limits == SiteLimits("address", 3, 5, 7)
    assert (site.endpoint, site.metrics_from, site.open_paths) == ("https://[::1]:443", ("10.0.0.0/8",), ("/tokenize",))
    assert site.server_name == "models.example *.models.example"


@pytest.mark.parametrize(
    ("values", "key"),
    [
        *(({"server_name": name}, "proxy.server_name") for name in ("a; return 200", "a {", "a\nb", "$host", "'")),
        ({"tls": Tls(certificate="/a b.pem", key="/b.pem")}, "proxy.tls.certificate"),
        ({"tls": Tls(certificate="/a.pem", key="/b;c.pem")}, "proxy.tls.key"),
        ({"metrics_from": ("everybody",)}, "proxy.metrics_from"),
        ({"limits": Limits(per="key", connections=1)}, "proxy.limits.per"),
    ],
)
def test_a_value_that_would_change_the_configuration_is_refused(values: Mapping[str, Any], key: str) -> None:
    with pytest.raises(OnecatError, match=key):
        site_of(deployment_with(**values))


# --- gixy -------------------------------------------------------------------------------------------------------------


# No HSTS unless onecat.yaml asks for it: it binds browsers to a name on all its ports (RFC 6797, section 8.1), and
# clients of an API do not heed it.
ACCEPTED = {("hsts_header", name) for name in ("tls", "everything", "everything-paused")}


def gixy(*files: Path) -> set[tuple[str, str]]:
    """Which plugin objects to which file's folder."""
    program = Path(sys.executable).with_name("gixy")
    found = subprocess.run([program, "--format", "json", *files], capture_output=True, text=True)
    return {(each["plugin"], Path(each["path"]).parent.name) for each in json.loads(found.stdout)}


@pytest.mark.parametrize("build", [OLDEST, NEWEST], ids=["oldest", "newest"])
def test_gixy_objects_to_nothing(build: NginxBuild, tmp_path: Path) -> None:
    for name, site in variants(TLS).items():
        (tmp_path / name).mkdir()
        parsed(site, tmp_path / name, build)
    assert gixy(*(tmp_path / name / "nginx.conf" for name in variants(TLS))) == ACCEPTED


def test_gixy_is_asked_for_real(tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text("http { server { location / { return 301 https://$host$uri; } } }\n")
    assert ("http_splitting", tmp_path.name) in gixy(tmp_path / "nginx.conf")
