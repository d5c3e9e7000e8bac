"""nginx files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import crossplane
import pytest

from onecat.config.schema import Deployment, Model, Proxy
from onecat.deploy.proxy import Site, render_main, render_site, site_of
from onecat.errors import OnecatError

FIXTURES = Path(__file__).parents[2] / "fixtures" / "nginx"
SITE = Site("my-model", "127.0.0.1:8080", "127.0.0.1:8000", max_body_mib=32, read_timeout_seconds=1800)


def parsed(tmp_path: Path) -> list[dict[str, object]]:
    (tmp_path / "nginx.conf").write_text(render_main(SITE, "nobody nogroup", ""))
    (tmp_path / "site.conf").write_text(render_site(SITE, "logs/access.log"))
    document = crossplane.parse(str(tmp_path / "nginx.conf"))
    assert document["errors"] == []
    return [directive for config in document["config"] for directive in config["parsed"]]


def block(directives: list[dict[str, object]], name: str, *args: str) -> dict[str, list[list[str]]]:
    """The directives of the first block `name args` anywhere, as name -> list of arguments."""
    for directive in directives:
        inner = directive.get("block") or []
        assert isinstance(inner, list)
        if directive["directive"] == name and (not args or directive["args"] == list(args)):
            found: dict[str, list[list[str]]] = {}
            for part in inner:
                found.setdefault(part["directive"], []).append(part["args"])
            return found
        deeper = block(inner, name, *args)
        if deeper:
            return deeper
    return {}


def test_the_site_is_as_agreed() -> None:
    assert render_site(SITE, "logs/access.log") == (FIXTURES / "site.conf").read_text()


def test_the_main_file_is_as_agreed() -> None:
    assert render_main(SITE, None, "") == (FIXTURES / "nginx.conf").read_text()


def test_streams_pass_unbuffered_over_kept_connections(tmp_path: Path) -> None:
    server = block(parsed(tmp_path), "server")
    assert server["proxy_buffering"] == [["off"]]
    assert server["proxy_http_version"] == [["1.1"]]
    assert ["Connection", ""] in server["proxy_set_header"]
    assert server["gzip"] == [["off"]]
    assert server["proxy_read_timeout"] == [["1800s"]]
    assert server["client_max_body_size"] == [["32m"]]


def test_an_idle_connection_is_dropped_before_the_server_drops_it(tmp_path: Path) -> None:
    upstream = block(parsed(tmp_path), "upstream")
    assert upstream["server"] == [["127.0.0.1:8000", "max_fails=0"]]
    assert upstream["keepalive_timeout"] == [["4s"]]


def test_the_path_is_passed_on_unchanged(tmp_path: Path) -> None:
    for location in (("/v1/",), ("=", "/health")):
        assert block(parsed(tmp_path), "location", *location)["proxy_pass"] == [["http://onecat_my_model"]]


def test_metrics_are_for_this_machine(tmp_path: Path) -> None:
    location = block(parsed(tmp_path), "location", "=", "/metrics")
    assert location["allow"] == [["127.0.0.1"], ["::1"]]
    assert location["deny"] == [["all"]]


@pytest.mark.parametrize("status", [403, 404, 413, 502, 503, 504])
def test_errors_of_nginx_itself_have_openais_form(status: int) -> None:
    (text,) = re.findall(rf"return {status} '(.*)';", render_site(SITE, "x"))
    error = json.loads(text)["error"]
    assert set(error) == {"message", "type", "param", "code"}


def test_the_log_is_json(tmp_path: Path) -> None:
    (arguments,) = [directive["args"] for directive in parsed(tmp_path) if directive["directive"] == "log_format"]
    assert isinstance(arguments, list)
    line = re.sub(r"\$\w+", "1", "".join(arguments[2:]))
    assert json.loads(line)["status"] == 1
    assert arguments[1] == "escape=json"


def test_a_module_that_nginx_lacks_gets_no_directive() -> None:
    text = render_main(SITE, None, "configure arguments: --without-http_scgi_module --without-http_uwsgi_module")
    assert "scgi_temp_path" not in text
    assert "uwsgi_temp_path" not in text
    assert "fastcgi_temp_path temporary/fastcgi;" in text


@pytest.mark.parametrize("name", ["a; return 200", "a {", "a\nb", "$host", "'"])
def test_a_name_that_would_change_the_configuration_is_refused(name: str) -> None:
    deployment = Deployment(name="demo", profile="cpu", model=Model(path="/m"), proxy=Proxy(server_name=name))
    with pytest.raises(OnecatError, match="proxy.server_name"):
        site_of(deployment, "127.0.0.1", 8000)


@pytest.mark.parametrize(
    ("host", "upstream"), [("0.0.0.0", "127.0.0.1:8000"), ("::", "[::1]:8000"), ("10.0.0.5", "10.0.0.5:8000")]
)
def test_the_upstream_is_where_the_server_can_be_reached(host: str, upstream: str) -> None:
    deployment = Deployment(name="demo", profile="cpu", model=Model(path="/m"))
    assert site_of(deployment, host, 8000).upstream == upstream
