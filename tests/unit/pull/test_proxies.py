"""Which proxy the environment names for an address."""

from __future__ import annotations

import pytest

from onecat.errors import OnecatError
from onecat.pull.proxies import Proxy, proxy_of

HTTPS = {"HTTPS_PROXY": "http://proxy.example:3128"}
FOUND = Proxy("HTTPS_PROXY", "http://proxy.example:3128")


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        (HTTPS, FOUND),
        ({"https_proxy": "proxy.example:8080", **HTTPS}, Proxy("https_proxy", "http://proxy.example:8080")),
        ({"https_proxy": "", **HTTPS}, None),
        ({"ALL_PROXY": "http://[::1]:3128/"}, Proxy("ALL_PROXY", "http://[::1]:3128")),
        ({"HTTPS_PROXY": "https://proxy.example"}, Proxy("HTTPS_PROXY", "https://proxy.example:443")),
        ({"HTTP_PROXY": "http://proxy.example:3128"}, None),
    ],
)
def test_lower_case_and_the_scheme_of_the_address_come_first(environment: dict[str, str], proxy: Proxy | None) -> None:
    assert proxy_of("https://hub.example/x", environment) == proxy


@pytest.mark.parametrize(
    ("url", "exceptions", "is_direct"),
    [
        ("https://hub.example/", "*", True),
        ("https://hub.example/", "other.example, hub.example", True),
        ("https://a.hub.example/", "hub.example", True),
        ("https://a.hub.example/", ".hub.example", True),
        ("https://a.hub.example/", "*.hub.example", True),
        ("https://nothub.example/", "hub.example", False),
        ("https://HUB.example/", "Hub.Example", True),
        ("https://hub.example:8443/", "hub.example:8443", True),
        ("https://hub.example/", "hub.example:8443", False),
        ("https://10.1.2.3/", "10.0.0.0/8", True),
        ("https://11.1.2.3/", "10.0.0.0/8", False),
        ("https://[fd00::1]/", "[fd00::1]", True),
        ("https://10.1.2.3/", "10.1.2.3", True),
        ("https://hub.example/", " , ", False),
    ],
)
def test_no_proxy_names_hosts_domains_networks_and_ports(url: str, exceptions: str, is_direct: bool) -> None:
    assert (proxy_of(url, {**HTTPS, "NO_PROXY": exceptions}) is None) is is_direct


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/", "http://localhost/", "https://[::1]/", "http://127.9.9.9/"])
def test_no_proxy_is_asked_for_this_machine_so_that_none_reads_a_token_that_goes_to_it(url: str) -> None:
    assert proxy_of(url, {"ALL_PROXY": "http://proxy.example:3128"}) is None


def test_a_password_of_a_proxy_is_never_shown() -> None:
    found = proxy_of("https://hub.example/", {"HTTPS_PROXY": "http://me:p%40ss@proxy.example:3128"})
    assert found is not None and found.login == ("me", "p@ss")
    assert "p@ss" not in repr(found) and "me" not in found.url


@pytest.mark.parametrize(
    "value", ["socks5://me:secret@127.0.0.1:9", "foo://x", "http://[::", "http://h:99999", "http://"]
)
def test_what_is_no_http_proxy_is_told_with_its_variable_and_without_its_secrets(value: str) -> None:
    with pytest.raises(OnecatError, match="HTTPS_PROXY names") as caught:
        proxy_of("https://hub.example/", {"HTTPS_PROXY": value})
    assert "secret" not in caught.value.found and any("NO_PROXY" in step for step in caught.value.next_steps)
