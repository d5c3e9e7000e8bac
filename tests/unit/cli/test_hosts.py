"""The options that name hosts, and what comes of hosts that cannot be reached: no host is needed for it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onecat.cli.hosts import targets_of
from onecat.errors import OnecatError

ONECAT = str(Path(sys.executable).with_name("onecat"))
NOBODY_LISTENS = "127.0.0.1:1"


def run(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home), "ONECAT_HOME": str(home / "onecat"), "COLUMNS": "80"}
    argv = [ONECAT, *arguments]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment)


def document(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_hosts_come_one_by_one_by_commas_and_from_a_file_each_once(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# the rack\ngpu3  # the slow one\n\ngpu1\n")
    targets = targets_of(["gpu1,ops@gpu2", "local"], tmp_path / "hosts")
    assert [target.text for target in targets] == ["gpu1", "ops@gpu2", "local", "gpu3"]


def test_a_file_without_hosts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# none yet\n")
    with pytest.raises(OnecatError, match="names no host"):
        targets_of([], tmp_path / "hosts")


@pytest.mark.parametrize("command", ["doctor", "facts"])
def test_a_word_that_names_no_host_is_a_mistake_of_usage(command: str, tmp_path: Path) -> None:
    done = run(command, "--host", "-oProxyCommand=id", "--json", home=tmp_path)
    assert done.returncode == 2
    assert "names no host" in document(done)["found"]


def test_a_host_that_refuses_is_unreachable_with_the_reason_and_the_others_are_examined(tmp_path: Path) -> None:
    done = run("doctor", "--host", f"{NOBODY_LISTENS},local", "--only", "os.release", "--json", home=tmp_path)
    assert done.returncode == 3
    refused, local = document(done)["hosts"]
    assert (refused["name"], refused["reachable"], refused["findings"]) == (NOBODY_LISTENS, False, [])
    assert "Connection refused" in refused["reason"]
    assert local["reachable"] and local["findings"]


def test_ctrl_c_ends_it_at_once_though_a_host_says_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        name = f"127.0.0.1:{silent.getsockname()[1]}"
        argv = [ONECAT, "doctor", "--host", name, "--connect-timeout", "600"]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        connection, _ = silent.accept()
        with connection:
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            interrupted = time.monotonic()
            output, errors = process.communicate(timeout=30)
    assert time.monotonic() - interrupted < 5
    assert (process.returncode, output) == (130, "")
    assert "onecat: interrupted" in errors and "Traceback" not in errors


def test_facts_of_one_host_are_a_document_and_of_several_a_line_each(tmp_path: Path) -> None:
    one = run("facts", "--json", home=tmp_path)
    assert (one.returncode, document(one)["host"]) == (0, "local")
    several = run("facts", "--host", f"local,{NOBODY_LISTENS}", "--json", home=tmp_path)
    assert several.returncode == 3
    assert [json.loads(line)["host"] for line in several.stdout.splitlines()] == ["local"]
    assert "Connection refused" in several.stderr


def test_a_broken_ssh_configuration_is_told_before_any_host(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host gpu1\n  Port twenty\n")
    done = run("doctor", "--host", "gpu1", "--json", home=tmp_path)
    assert done.returncode == 2
    assert "'twenty' for port" in document(done)["found"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--smoke",), "--smoke needs to know the image"),
        (("--watch", "--format", "junit"), "--watch looks at hosts"),
        (("--only", "gpu.*", "--skip", "*"), "no check is left"),
        (("--from", ""), "'' names no file"),
        (("--watch", "--fix-script", "-"), "--watch looks at hosts"),
        (("--fix-script", "-", "--host", f"local,{NOBODY_LISTENS}"), "a fix script is for one host"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...], found: str, tmp_path: Path) -> None:
    done = run("doctor", *arguments, home=tmp_path)
    assert done.returncode == 2
    assert found in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "found"),
    [(None, "the file of hosts cannot be read: No such file or directory"), (b"\xfd\x00gpu1", "the file is no text")],
)
def test_a_file_of_hosts_that_cannot_be_read_is_named(content: bytes | None, found: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    if content is not None:
        file.write_bytes(content)
    done = run("doctor", "--hosts-file", str(file), "--json", home=tmp_path)
    assert (done.returncode, document(done)["found"], document(done)["where"]) == (2, found, str(file))


def test_checks_are_chosen_one_by_one_or_separated_by_commas(tmp_path: Path) -> None:
    apart = document(run("doctor", "--only", "memory.swap", "--only", "os.kernel", "--json", home=tmp_path))
    joined = document(run("doctor", "--only", "memory.swap,os.kernel", "--json", home=tmp_path))
    chosen = [[each["check"] for each in said["hosts"][0]["findings"]] for said in (apart, joined)]
    assert chosen[0] == chosen[1] and set(chosen[0]) == {"memory.swap", "os.kernel"}


def test_a_script_that_was_to_be_printed_for_a_host_out_of_reach_tells_why_there_is_none(tmp_path: Path) -> None:
    printed = run("doctor", "--host", NOBODY_LISTENS, "--fix-script", "-", home=tmp_path)
    assert (printed.returncode, printed.stdout) == (3, "")
    assert "Connection refused" in printed.stderr
    written = run("doctor", "--host", NOBODY_LISTENS, "--fix-script", str(tmp_path / "fix.sh"), home=tmp_path)
    assert (written.returncode, (tmp_path / "fix.sh").exists()) == (3, False)
    assert "Connection refused" in written.stdout
    assert "was not written" in written.stderr


def test_the_hosts_of_a_configuration_are_examined_unless_others_are_named(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    configuration = tmp_path / "onecat.yaml"
    configuration.write_text(f"name: demo\nprofile: cpu\nmodel:\n  path: {model}\nhosts: ['{NOBODY_LISTENS}']\n")
    done = run("doctor", "--config", str(configuration), "--json", home=tmp_path)
    assert [host["name"] for host in document(done)["hosts"]] == [NOBODY_LISTENS], done.stderr
    other = run("doctor", "--config", str(configuration), "--host", "local", "--json", home=tmp_path)
    assert [host["name"] for host in document(other)["hosts"]] == ["local"]
