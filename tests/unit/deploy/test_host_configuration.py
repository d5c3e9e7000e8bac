"""What nginx tells of the host's configuration, read."""

from __future__ import annotations

import pytest

from onecat.deploy.nginx_build import NginxBuild
from onecat.deploy.proxies.host_configuration import (
    clashes,
    conflicting_names,
    listens,
    parse_dump,
    with_included,
    without_comments,
)
from onecat.deploy.site import Site

MAIN = """user www-data;
# pid /old/nginx.pid;
pid /run/nginx.pid;
error_log logs/error.log warn;
http {
    # include /etc/nginx/conf.d/*.conf;
    log_format x '# $uri "';
    include mime.types; include conf.d/*.conf;
}
"""
OTHER = "server { listen 80 default_server; listen [::]:8080; # listen 9;\nlisten unix:/x.sock; listen 10.0.0.1; }\n"
BUILD = NginxBuild((1, 22, 1), "--prefix=/usr/share/nginx --pid-path=/var/run/nginx.pid")


def dumped(*files: tuple[str, str]) -> str:
    return "".join(f"# configuration file {path}:\n{text}\n" for path, text in files)


def test_the_folder_of_sites_is_found_where_it_is_not_commented_out() -> None:
    dump = parse_dump(dumped(("/etc/nginx/nginx.conf", MAIN), ("/etc/nginx/conf.d/a.conf", OTHER)))
    assert dump is not None
    assert (dump.main, dump.include, dump.site_directory) == (
        "/etc/nginx/nginx.conf",
        "conf.d/*.conf",
        "/etc/nginx/conf.d",
    )
    assert (dump.pid_path(BUILD), dump.error_log(BUILD)) == ("/run/nginx.pid", "/usr/share/nginx/logs/error.log")
    trial = with_included(dump, ["/etc/nginx/conf.d/a.conf", "/etc/nginx/.ours"])
    assert "include mime.types; include /etc/nginx/conf.d/a.conf;\ninclude /etc/nginx/.ours;" in trial
    assert "conf.d/*.conf" not in trial
    assert """log_format x '# $uri "';""" in trial


@pytest.mark.parametrize("text", ["http { include sites-enabled/*; }", "# include conf.d/*.conf;\nhttp {}", ""])
def test_without_such_a_folder_there_is_nothing_to_read(text: str) -> None:
    assert parse_dump(dumped(("/etc/nginx/nginx.conf", text)) if text else "") is None


def test_the_pid_of_a_configuration_that_names_none_is_that_of_the_program() -> None:
    dump = parse_dump(dumped(("/etc/nginx/nginx.conf", "http { include /etc/nginx/conf.d/*.conf; }")))
    assert dump is not None
    assert dump.pid_path(BUILD) == "/var/run/nginx.pid"


def test_every_address_is_found() -> None:
    assert list(listens(OTHER)) == ["*:80", "[::]:8080", "10.0.0.1:80"]
    assert without_comments("a '# b' # c\n") == "a '# b' \n"


@pytest.mark.parametrize(
    ("listen", "server_name", "clash"),
    [
        ("0.0.0.0:80", "_", True),
        ("*:80", "_", True),
        ("[::]:8080", "_", True),
        ("10.0.0.1:80", "_", True),
        ("127.0.0.1:80", "_", False),
        ("0.0.0.0:81", "_", False),
        ("0.0.0.0:80", "models.example", False),
    ],
)
def test_a_site_without_a_name_needs_an_address_of_its_own(listen: str, server_name: str, clash: bool) -> None:
    dump = parse_dump(dumped(("/etc/nginx/nginx.conf", MAIN), ("/etc/nginx/conf.d/other.conf", OTHER)))
    assert dump is not None
    found = clashes(dump, Site("demo", listen, (), server_name=server_name), "/etc/nginx/conf.d/onecat-demo.conf")
    assert [each.where for each in found] == (["/etc/nginx/conf.d/other.conf"] if clash else [])
    assert clashes(dump, Site("demo", listen, ()), "/etc/nginx/conf.d/other.conf") == []


def test_a_name_that_two_sites_have_is_read_from_nginxs_warning() -> None:
    words = 'nginx: [warn] conflicting server name "a.example" on 0.0.0.0:80, ignored\nnginx: configuration is ok\n'
    assert [(each.name, each.where) for each in conflicting_names(words)] == [("a.example", "0.0.0.0:80")]
