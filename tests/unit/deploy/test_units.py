"""systemd units."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.config.schema import Restart
from onecat.deploy import units
from tests.unit.deploy.test_container import SPEC

FIXTURES = Path(__file__).parents[2] / "fixtures" / "systemd"
URL = "http://127.0.0.1:8000"
WORDS = st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r"), max_size=30)


def portable(text: str) -> str:
    """A unit without what differs between machines: Python and where onecat lies."""
    package = str(Path(units.__file__).parent)
    text = text.replace(sys.executable, "/usr/bin/python3").replace(package, "/usr/lib/onecat/deploy")
    return re.sub(r"/\S*/docker ", "/usr/bin/docker ", text)


def native(secret_file: str | None = None) -> str:
    return units.native_unit(
        "demo",
        3,
        ["/opt/vllm/bin/vllm", "serve", "/models/a b", "--served-model-name", "100%"],
        {"VLLM_CPU_KVCACHE_SPACE": "1"},
        secret_file,
        URL,
        Restart(),
        30,
        Path("/var/lib/onecat/demo"),
        user=(4711, 4712),
    )


def test_the_native_unit_is_as_agreed() -> None:
    assert portable(native()) == (FIXTURES / "native.service").read_text()


def test_the_container_unit_is_as_agreed() -> None:
    text = units.container_unit(3, "demo", SPEC, URL, Restart(), None)
    assert portable(text) == (FIXTURES / "container.service").read_text()


def test_a_secret_is_named_by_its_file_only() -> None:
    (line,) = [line for line in native("/etc/onecat/key").splitlines() if line.startswith("ExecStart=")]
    assert "VLLM_API_KEY /etc/onecat/key -- /opt/vllm/bin/vllm serve" in line


def test_the_container_gets_a_copy_of_the_key_that_its_user_alone_may_read() -> None:
    lines = units.container_unit(3, "demo", SPEC, URL, Restart(), None).splitlines()
    assert "RuntimeDirectory=onecat-demo" in lines and "RuntimeDirectoryMode=0700" in lines
    install = "/usr/bin/install -o 1000 -g 1000 -m 0400 /home/me/secrets/api_key /run/onecat-demo/api_key"
    assert f"ExecStartPre={install}" in lines
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    assert "source=/run/onecat-demo/api_key,target=/run/secrets/api_key" in start
    assert "/home/me/secrets" not in start


def test_without_a_key_the_unit_makes_no_directory() -> None:
    text = units.container_unit(3, "demo", replace(SPEC, secret_file=None), URL, Restart(), None)
    assert "RuntimeDirectory" not in text and "/usr/bin/install" not in text


def test_a_user_without_an_entry_in_passwd_is_a_number() -> None:
    assert {"User=4711", "Group=4712"} <= set(native().splitlines())


def test_a_unit_of_a_container_never_lets_docker_restart_it() -> None:
    assert "--restart" not in units.container_unit(3, "demo", SPEC, URL, Restart(), None)


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("plain/word.1", "plain/word.1"),
        ("", '""'),
        ("two words", '"two words"'),
        ("100%", "100%%"),
        ("$HOME", '"$$HOME"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("a\nb", '"a\\nb"'),
        (";", '";"'),
        ('{"a": 1}', '"{\\"a\\": 1}"'),
    ],
)
def test_a_word_is_quoted_for_systemd(word: str, quoted: str) -> None:
    assert units.quote(word) == quoted


def unquoted(line: str) -> list[str]:
    """How systemd reads an Exec line: words, quotes, escapes, then `%%` and `$$` (systemd.service(5))."""
    words: list[str] = []
    position = 0
    while position < len(line):
        if line[position] == " ":
            position += 1
            continue
        word, inside = "", False
        while position < len(line) and (inside or line[position] != " "):
            letter = line[position]
            if letter == '"':
                inside = not inside
            elif letter == "\\":
                position += 1
                word += {"n": "\n", "t": "\t"}.get(line[position], line[position])
            else:
                word += letter
            position += 1
        assert not inside
        assert "%" not in word.replace("%%", "")
        assert "$" not in word.replace("$$", "")
        words.append(word.replace("%%", "%").replace("$$", "$"))
    return words


@given(st.lists(WORDS, min_size=1, max_size=6))
def test_systemd_reads_back_the_same_words(argv: list[str]) -> None:
    line = units.command_line(argv)
    assert "\n" not in line
    assert unquoted(line) == argv


def test_crashes_in_a_row_fall_into_the_start_limit() -> None:
    restart = Restart(max_crashes=10, backoff_max_seconds=30)
    assert units.start_limit_seconds(restart) >= 10 * (30 + units.LONGEST_LOADING_SECONDS)
