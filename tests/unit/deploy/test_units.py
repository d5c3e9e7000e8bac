"""systemd units."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.config.schema import Restart
from onecat.deploy import health_gate, units
from onecat.deploy.container_spec import ContainerSpec
from tests.unit.deploy.test_container import SPEC

FIXTURES = Path(__file__).parents[2] / "fixtures" / "systemd"
URL = "http://127.0.0.1:8000"
WORDS = st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r"), max_size=30)


def portable(text: str) -> str:
    """A unit without what differs between machines: Python and where onecat lies."""
    package = str(Path(units.__file__).parent)
    return text.replace(sys.executable, "/usr/bin/python3").replace(package, "/usr/lib/onecat/deploy")


def native(secret_file: str | None = None) -> str:
    return units.native_unit(
        "demo",
        3,
        ["/opt/vllm/bin/vllm", "serve", "/models/a b", "--served-model-name", "100%"],
        {"VLLM_CPU_KVCACHE_SPACE": "1"},
        secret_file,
        URL,
        600,
        Restart(),
        30,
        Path("/var/lib/onecat/demo"),
        user=(4711, 4712),
    )


def test_the_native_unit_is_as_agreed() -> None:
    assert portable(native()) == (FIXTURES / "native.service").read_text()


def standalone(spec: ContainerSpec = SPEC) -> str:
    """The unit of a container for people who install it themselves."""
    return units.container_unit(3, "demo", spec, Restart(), None, gate="/usr/local/lib/onecat/demo-ready")


def looked_after(spec: ContainerSpec = SPEC) -> str:
    """The unit of a container that onecat installs."""
    state = "/var/lib/onecat/units/onecat-demo-0003"
    return units.container_unit(
        3,
        "demo",
        spec,
        Restart(),
        "unix:///run/docker.sock",
        gate=f"{state}/health-gate.sh",
        state_directory=state,
        identity="0123",
    )


def test_the_container_units_are_as_agreed() -> None:
    assert standalone() == (FIXTURES / "container.service").read_text()
    assert looked_after() == (FIXTURES / "container-looked-after.service").read_text()


def test_a_secret_is_named_by_its_file_only() -> None:
    (line,) = [line for line in native("/etc/onecat/key").splitlines() if line.startswith("ExecStart=")]
    assert "VLLM_API_KEY /etc/onecat/key -- /opt/vllm/bin/vllm serve" in line


def test_the_container_gets_a_copy_of_the_key_that_its_user_alone_may_read() -> None:
    lines = standalone().splitlines()
    assert "RuntimeDirectory=onecat-demo" in lines and "RuntimeDirectoryMode=0700" in lines
    install = "/usr/bin/install -o 1000 -g 1000 -m 0400 /home/me/secrets/api_key /run/onecat-demo/api_key"
    assert f"ExecStartPre=+{install}" in lines
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    assert "source=/run/onecat-demo/api_key,target=/run/secrets/api_key" in start
    assert "/home/me/secrets" not in start


def test_without_a_key_the_unit_makes_no_directory() -> None:
    text = standalone(replace(SPEC, secret_file=None))
    assert "RuntimeDirectory" not in text and "/usr/bin/install" not in text


def test_a_user_without_an_entry_in_passwd_is_a_number() -> None:
    assert {"User=4711", "Group=4712"} <= set(native().splitlines())


def test_the_unit_that_onecat_looks_after_takes_the_key_that_lies_with_the_release() -> None:
    assert "source=/home/me/secrets/api_key,target=/run/secrets/api_key" in looked_after()
    assert "/usr/bin/install" not in looked_after()


def test_a_unit_of_a_container_lets_neither_docker_restart_it_nor_pull_its_image() -> None:
    for text in (standalone(), looked_after()):
        assert "--restart" not in text
        assert "--pull never" in text


def test_a_start_has_no_limit_of_systemds_and_a_crash_before_it_is_accepted_no_second_one() -> None:
    lines = looked_after().splitlines()
    assert "TimeoutStartSec=infinity" in lines and "Restart=always" in lines
    assert [line for line in lines if line.startswith("ConditionPathExists")] == [
        "ConditionPathExists=|/var/lib/onecat/units/onecat-demo-0003/starting",
        "ConditionPathExists=|/var/lib/onecat/units/onecat-demo-0003/accepted",
    ]
    assert "Condition" not in standalone()


def test_the_client_of_a_daemon_that_is_no_file_keeps_the_network() -> None:
    text = units.container_unit(3, "demo", SPEC, Restart(), "tcp://127.0.0.1:2375", gate="/g")
    assert "PrivateNetwork" not in text and "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6" in text
    assert "PrivateNetwork=yes" in looked_after()


def test_the_gate_carries_its_program_and_needs_nothing_of_onecat() -> None:
    script = units.gate_script(replace(SPEC, silence_seconds=42))
    shell, _, program = script.partition("# --- health_gate.py\n")
    assert program == Path(health_gate.__file__).read_text()
    assert "http://127.0.0.1:8000/health 42 1 <" in shell
    assert subprocess.run(["sh", "-n"], input=shell, text=True, capture_output=True).returncode == 0
    imported = {name.partition(".")[0] for name in re.findall(r"^(?:import|from) (\S+)", program, re.MULTILINE)}
    assert imported <= sys.stdlib_module_names | {"__future__"}


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
        ("a\rExecStartPre=/bin/b", '"a\\x0dExecStartPre=/bin/b"'),
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
                if line[position] == "x":
                    word += chr(int(line[position + 1 : position + 3], 16))
                    position += 2
                else:
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


@pytest.mark.parametrize(
    ("name", "bound"), [("container.service", 1.0), ("container-looked-after.service", 1.0), ("native.service", 2.1)]
)
def test_the_units_are_hardened(name: str, bound: float, tmp_path: Path) -> None:
    """What README.md states: the exposure that `systemd-analyze security` computes, from 0 (none) to 10."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.fail("systemd-analyze is missing: apt-get install systemd", pytrace=False)
    (tmp_path / name).write_text((FIXTURES / name).read_text())
    done = subprocess.run(
        [program, "security", "--offline=true", "--no-pager", str(tmp_path / name)], capture_output=True, text=True
    )
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout[-2000:] + done.stderr
    assert float(found[1]) <= bound


def test_crashes_in_a_row_fall_into_the_start_limit() -> None:
    restart = Restart(max_crashes=10, backoff_max_seconds=30)
    assert units.start_limit_seconds(restart) >= 10 * (30 + units.LONGEST_LOADING_SECONDS)
