"""How a text of several programs is split."""

from __future__ import annotations

import pytest

from onecat.probe.importers import Capture, nearest_forms, parse_capture
from onecat.probe.importers.sections import heading_command, plain_command, split_sections


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("$ df -h", "df -h"),
        ("# $ nvidia-smi -q", "nvidia-smi -q"),
        ("## topo -m", "topo -m"),
        ("### sudo lspci -vvv", "lspci -vvv"),
        ("root@gpu1:~# dmesg | tail", "dmesg | tail"),
        ("[root@gpu1 ~]# cat /etc/os-release", "/etc/os-release"),
        ("user@host:/srv/x$ /usr/bin/nvidia-smi -L", "nvidia-smi -L"),
        ("(base) user@host:~$ free -m", None),
        ("===== free -m =====", "free -m"),
        ("==> /proc/meminfo <==", "/proc/meminfo"),
        ("--- docker info ---", "docker info"),
        ("# a comment", None),
        ("## Results", None),
        ("==============================", None),
        ("# gpu         pid   type     sm    mem", None),
        ("$ " + "x" * 2000, None),
        ("", None),
    ],
)
def test_lines_that_name_a_command(line: str, command: str | None) -> None:
    assert heading_command(line) == command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("sudo -n dmesg -T", "dmesg -T"),
        ("cat /proc/cpuinfo", "/proc/cpuinfo"),
        ("/usr/sbin/lspci -nn", "lspci -nn"),
        ("rm -rf /", None),
        ("", None),
    ],
)
def test_commands_in_their_plain_spelling(text: str, command: str | None) -> None:
    assert plain_command(text) == command


def test_a_text_without_separators_is_one_section() -> None:
    (section,) = split_sections("a.txt", "one\ntwo\n")
    assert (section.name, section.text, section.command) == ("a.txt", "one\ntwo\n", None)


def test_text_before_the_first_separator_is_kept() -> None:
    sections = split_sections("a.txt", "intro\n$ df -h\nrows\n$ unknown thing\nmore\n$ dmesg\nlines\n")
    assert [(each.name, each.text) for each in sections] == [
        ("a.txt", "intro"),
        ("a.txt: df -h", "rows\n$ unknown thing\nmore"),
        ("a.txt: dmesg", "lines\n"),
    ]


def test_the_collectors_sections_have_their_exit() -> None:
    text = (
        "===== onecat: uname -a\nLinux\n===== onecat: end uname -a 0\nnoise between\n"
        "===== onecat: nvidia-smi -q\n===== onecat: end nvidia-smi -q timeout\n"
        "===== onecat: docker info\n===== onecat: end docker info 127\n"
        "===== onecat: dmesg\ncut off here"
    )
    assert [(each.command, each.text, each.exit_code, each.timed_out) for each in split_sections("c", text)] == [
        ("uname -a", "Linux", 0, False),
        ("nvidia-smi -q", "", None, True),
        ("docker info", "", 127, False),
        ("dmesg", "cut off here", None, False),
    ]


def test_a_failure_that_no_importer_knows_becomes_a_note() -> None:
    text = "===== onecat: df -Pk\ndf: Permission denied\n===== onecat: end df -Pk 1\n"
    assert [part for _, part in parse_capture(Capture("c", text))] == [
        {"notes": [{"source": "filesystems", "kind": "permission", "text": "df -Pk: df: Permission denied"}]}
    ]


def test_a_failing_program_is_no_log_of_a_server() -> None:
    assert parse_capture(Capture("df", "OSError: [Errno 5] Input/output error")) == ()
    ((name, part),) = parse_capture(Capture("vllm.log", "OSError: [Errno 5] Input/output error"))
    assert (name, part["server_logs"][0]["name"]) == ("error text", "vllm.log")


def test_the_nearest_forms_are_those_whose_words_occur() -> None:
    assert nearest_forms("npu.txt", "npu-smi of an ascend 910b") == ["npu-smi info"]
    assert nearest_forms("x", "milk") == []
