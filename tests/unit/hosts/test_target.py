"""What a person may write to name a host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.errors import ExitCode, OnecatError
from onecat.hosts import Target, parse_target


@pytest.mark.parametrize(
    ("text", "host", "user", "port"),
    [
        ("gpu1", "gpu1", None, None),
        ("ops@gpu1", "gpu1", "ops", None),
        ("ops@gpu1:2222", "gpu1", "ops", 2222),
        ("gpu1.example.org:22", "gpu1.example.org", None, 22),
        ("user@domain@gpu1", "gpu1", "user@domain", None),
        ("192.0.2.7", "192.0.2.7", None, None),
        ("2001:db8::7", "2001:db8::7", None, None),
        ("[2001:db8::7]", "2001:db8::7", None, None),
        ("ops@[fe80::1%eth0]:2200", "fe80::1%eth0", "ops", 2200),
        ("ssh://gpu1", "gpu1", None, None),
        ("ssh://ops@Gpu1:2222/", "Gpu1", "ops", 2222),
        ("ssh://ops@[2001:db8::7]:2222", "2001:db8::7", "ops", 2222),
    ],
)
def test_a_host_is_named_as_ssh_and_its_like_name_it(text: str, host: str, user: str | None, port: int | None) -> None:
    target = parse_target(text)
    assert (target.text, target.host, target.user, target.port) == (text, host, user, port)
    assert not target.is_local


def test_local_is_this_machine_and_nothing_else_is() -> None:
    assert parse_target("local").is_local
    assert not parse_target("localhost").is_local


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "@gpu1", "ops@", "gpu1:", "gpu1:0", "gpu1:65536", "gpu1:ssh", "[2001:db8::7", "[gpu1]x", "a b"),
        *("-oProxyCommand=id", "ops@-gpu1", "-l@gpu1", "gpu1;id", "$(id)@gpu1", "gpu1\nid", "`id`", "*"),
        *("ssh://", "ssh://gpu1/path", "ssh://gpu1:99999", "ssh://gpu1?x=1", "http://gpu1"),
    ],
)
def test_what_names_no_host_is_a_mistake_of_usage(text: str) -> None:
    with pytest.raises(OnecatError, match="names no host") as caught:
        parse_target(text)
    assert caught.value.code is ExitCode.USAGE
    assert "USER@NAME:PORT" in str(caught.value.expected)


def test_a_password_in_the_name_is_refused_and_not_repeated() -> None:
    with pytest.raises(OnecatError, match="password has no place") as caught:
        parse_target("ssh://ops:geheim@gpu1")
    assert "geheim" not in f"{caught.value} {caught.value.expected} {caught.value.next_steps}"


@given(st.text(max_size=40))
def test_any_text_names_a_host_or_is_refused(text: str) -> None:
    try:
        target = parse_target(text)
    except OnecatError:
        return
    assert target.host and not target.host.startswith("-")
    assert not set(" \t\n'\"`$&;<>|(){}\\") & set(target.host + (target.user or ""))


def test_the_words_for_ssh_lead_to_the_same_host() -> None:
    assert Target("x", "gpu1", "ops", 2222).ssh_words == "-p 2222 ops@gpu1"
    assert parse_target("gpu1").ssh_words == "gpu1"
