"""The frame of the agent: how sources run, how programs are run, and what is sent to a host."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onecat.facts import from_json
from onecat.probe import ProbeOptions
from onecat.probe.agent import core
from onecat.probe.agent.sources import smoke
from onecat.probe.bindings import reachable
from onecat.probe.program import (
    PYTHONS,
    SMOKE_SECONDS,
    agent_argv,
    most_seconds,
    program,
    remote_argv,
    source_index,
)
from tests.processes import runs, within

MACHINE = core.Machine("/", 0.4, [])


def sleeps(machine: object, emit: Any) -> None:
    emit(doing="sleeping")
    time.sleep(60)


def spins(machine: object, emit: Any) -> None:
    while True:
        pass


def works(machine: object, emit: Any) -> None:
    emit(memory={"total": 1})


def observe(machine: core.Machine = MACHINE, **sources: Any) -> Any:
    started = time.monotonic()
    document = core.observe(machine, sources)
    document["seconds"] = time.monotonic() - started
    return document


def test_sources_that_hang_hang_side_by_side_and_the_others_work() -> None:
    document = observe(first=sleeps, second=sleeps, third=spins, fourth=sleeps, last=works)
    assert [(note["source"], note["kind"]) for note in document["notes"]] == [
        (name, "timeout") for name in ("first", "second", "third", "fourth")
    ]
    assert document["memory"] == {"total": 1}
    assert document["seconds"] < 0.4 * 4


def test_a_source_may_take_longer_when_it_says_so() -> None:
    def slow(machine: object, emit: Any) -> None:
        emit(limit=5)
        time.sleep(0.6)
        emit(memory={"total": 2})

    document = observe(slow=slow)
    assert (document["memory"], document["notes"]) == ({"total": 2}, [])


def test_a_limit_is_for_its_source_and_not_for_the_next_one() -> None:
    def patient(machine: object, emit: Any) -> None:
        emit(limit=60)

    document = observe(patient=patient, sleeps=sleeps)
    assert document["notes"][0]["text"] == "no answer within 0.4 s while sleeping"


def test_sources_that_wait_for_nothing_share_one_worker() -> None:
    def tells(machine: object, emit: Any) -> None:
        emit(captures=[os.getpid()])

    document = observe(**{f"source-{number}": tells for number in range(20)})
    assert len(document["captures"]) == 20
    assert len(set(document["captures"])) <= 3, "a busy machine may make a worker look as if it waited"


def test_a_source_may_tell_and_note_what_it_cannot_tell() -> None:
    def partly(machine: object, emit: Any) -> None:
        emit(memory={"total": 1}, note=core.needs_root("swap"))
        raise core.Unknown("absent", "no more")

    document = observe(partly=partly)
    assert document["memory"] == {"total": 1}
    assert document["notes"] == [
        {"source": "partly", "kind": "permission", "text": "swap: needs root (--sudo)"},
        {"source": "partly", "kind": "absent", "text": "no more"},
    ]


def test_large_parts_arrive_whole() -> None:
    def large(machine: object, emit: Any) -> None:
        emit(captures=[{"name": "dmesg", "text": "x" * 1_000_000}])

    assert len(observe(large=large)["captures"][0]["text"]) == 1_000_000


def test_what_a_hung_source_started_is_ended_with_it(tmp_path: Path) -> None:
    started = tmp_path / "pid"

    def starts(machine: core.Machine, emit: Any) -> None:
        machine.run(["sh", "-c", f"echo $$ > {started}; exec sleep 60"], 60)

    observe(starts=starts)
    assert within(5, lambda: not runs(int(started.read_text())))


SLEEPING = """
import sys
sys.path.insert(0, {folder!r})
from onecat.probe.agent import core

def starts(machine, emit):
    machine.run(["sh", "-c", "echo $$ > {started}; exec sleep 60"], 60)

core.observe(core.Machine("/", 60, []), {{"starts": starts}})
"""


@pytest.mark.parametrize("how", ["closes the stream", "kills the agent"])
def test_when_the_operator_goes_nothing_goes_on(how: str, tmp_path: Path) -> None:
    started = tmp_path / "pid"
    root = Path(core.__file__).parents[3]
    script = SLEEPING.format(folder=str(root), started=started)
    agent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert within(10, lambda: started.exists() and started.read_text().endswith("\n"))
    assert runs(int(started.read_text()))
    assert agent.stdout is not None
    if how == "kills the agent":
        agent.kill()
    agent.stdout.close()
    assert agent.wait(5) != 0
    assert within(5, lambda: not runs(int(started.read_text())))


def test_a_program_gives_its_status_output_and_messages() -> None:
    assert MACHINE.run(["sh", "-c", "cat; echo out; echo err >&2; exit 3"]) == (3, "out\n", "err\n")
    assert MACHINE.run(["sh", "-c", "echo $LC_ALL; kill -9 $$"]) == (-9, "C\n", "")


def test_a_program_that_is_missing_is_an_absent_fact() -> None:
    with pytest.raises(FileNotFoundError):
        MACHINE.run(["/nowhere/nvidia-smi"])


@pytest.mark.parametrize("script", ["sleep 60", "exec >/dev/null 2>&1; sleep 60", "sleep 60 & trap '' TERM; wait"])
def test_a_program_that_hangs_costs_its_limit(script: str) -> None:
    started = time.monotonic()
    with pytest.raises(core.Unknown, match=r"did not end within 0\.2 s"):
        MACHINE.run(["sh", "-c", script], 0.2)
    assert time.monotonic() - started < 1


def test_a_program_that_prints_without_end_is_cut() -> None:
    _, output, _ = MACHINE.run(["sh", "-c", "head -c 9000000 /dev/zero"], 20)
    assert core.PROGRAM_BYTES <= len(output) < core.PROGRAM_BYTES + 100_000


@pytest.mark.parametrize(
    "arguments", [["--path", "data=relative"], ["--timeout", "soon"], ["--root"], ["--frobnicate"]]
)
def test_options_that_cannot_be_meant_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert core.main(arguments, {}) == 2
    assert capsys.readouterr().err.startswith("onecat-probe: ")


def test_the_index_has_every_source_of_every_module_once() -> None:
    index = source_index()
    modules = {module: importlib.import_module(module) for module in index.values()}
    assert {(name, module) for name, module in index.items()} == {
        (name, module) for module, loaded in modules.items() for name in loaded.SOURCES
    }
    folder = Path(core.__file__).parent / "sources"
    assert sum("\nSOURCES = {" in file.read_text() for file in folder.glob("*.py")) == len(modules)


def test_the_program_is_ascii_and_small() -> None:
    assert program().isascii(), "Python 3.6 reads standard input as ASCII where the locale is C"
    assert len(program()) < 220_000


def test_another_python_version_gets_the_same_agent_as_text(tmp_path: Path) -> None:
    argv = agent_argv(sys.executable, ProbeOptions(str(tmp_path)), "h")
    other = re.sub(rb"^MAGIC = .*", b"MAGIC = b'other'", program(), flags=re.MULTILINE)
    answers = [json.loads(subprocess.run(argv, input=each, capture_output=True).stdout) for each in (program(), other)]
    assert other != program() and answers[0]["sources"] == answers[1]["sources"] != []


def test_what_only_runs_when_asked_for_does_not_run_unasked(tmp_path: Path) -> None:
    argv = agent_argv(sys.executable, ProbeOptions(str(tmp_path)), "h")
    document = json.loads(subprocess.run(argv, input=program(), capture_output=True, check=True).stdout)
    assert "smoke" not in document["sources"] and not [note for note in document["notes"] if note["source"] == "smoke"]
    argv = agent_argv(sys.executable, ProbeOptions(str(tmp_path), smoke_image="example/engine:1"), "h")
    document = json.loads(subprocess.run(argv, input=program(), capture_output=True, check=True).stdout)
    (note,) = [note for note in document["notes"] if note["source"] == "smoke"]
    assert note["kind"] == "absent"


def test_the_operator_waits_longer_than_any_source() -> None:
    assert SMOKE_SECONDS > smoke.LIMIT_SECONDS > smoke.RUN_SECONDS
    assert most_seconds(ProbeOptions(timeout=3)) > 3
    assert most_seconds(ProbeOptions(smoke_image="x")) > SMOKE_SECONDS


def test_what_is_no_text_does_not_spoil_the_answer(tmp_path: Path) -> None:
    environment = {**os.environb, b"NCCL_ODD": b"\xff\xfe", b"NCCL_CAT": "猫".encode()}
    argv = agent_argv(sys.executable, ProbeOptions(), "主机")
    done = subprocess.run(argv, input=program(), capture_output=True, check=True, env=environment)
    facts = from_json(json.loads(done.stdout.decode("utf-8")))
    assert facts.environment is not None
    assert dict(facts.environment).items() >= {"NCCL_ODD": "??", "NCCL_CAT": "猫"}.items()
    assert facts.host == "主机"


ODD = ProbeOptions(timeout=2.5, paths={"data": "/srv/it's here; $(touch x)"}, smoke_image="a/b:c")


@pytest.mark.parametrize("shell", ["sh", "bash", "busybox", "zsh", "csh", "tcsh", "fish"])
def test_one_line_runs_the_agent_from_any_login_shell(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    line = shlex.join(remote_argv(ODD, "gpu 1"))
    assert "\n" not in line
    argv = ["busybox", "sh", "-c", line] if shell == "busybox" else [shell, "-c", line]
    done = subprocess.run(argv, input=program(), capture_output=True, check=True, cwd=tmp_path, timeout=60)
    facts = from_json(json.loads(done.stdout))
    assert facts.host == "gpu 1"
    data = facts.filesystem("data")
    assert data is not None and data.path == "/srv/it's here; $(touch x)"
    assert list(tmp_path.iterdir()) == []


def fake_python(folder: Path, name: str, version: str) -> None:
    file = folder / name
    file.write_text(
        f'#!/bin/sh\n[ "$1" = -V ] && {{ echo "{version}"; exit 0; }}\necho \'{{"ran": "{name}"}}\'; cat >/dev/null\n'
    )
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("versions", "ran"),
    [
        ({"python3": "Python 3.11.2"}, "python3"),
        ({"python3": "Python 3.6.8", "python3.12": "Python 3.12.1"}, "python3"),
        ({"python3": "Python 3.5.3", "python3.9": "Python 3.9.1"}, "python3.9"),
        ({"python": "Python 3.10.0"}, "python"),
    ],
)
def test_the_first_python_that_is_new_enough_runs(versions: dict[str, str], ran: str, tmp_path: Path) -> None:
    for name, version in versions.items():
        fake_python(tmp_path, name, version)
    assert bootstrapped(tmp_path) == f'{{"ran": "{ran}"}}\n'


@pytest.mark.parametrize("versions", [{}, {"python": "Python 2.7.18", "python3": "Python 3.5.10"}])
def test_without_a_new_enough_python_the_shell_collects(versions: dict[str, str], tmp_path: Path) -> None:
    for name, version in versions.items():
        fake_python(tmp_path, name, version)
    text = bootstrapped(tmp_path)
    assert text.startswith("===== onecat: date +%s\n")
    assert "\n===== onecat: end /proc/meminfo 0\n" in text


def test_a_python_without_its_library_leaves_the_work_to_the_shell(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text(
        f'#!/bin/sh\n[ "$1" = -V ] && {{ echo "Python 3.11.2"; exit 0; }}\n'
        f'{{ echo "import sys; del sys.path[:-1]"; cat; }} | exec {sys.executable} "$@"\n'
    )
    broken.chmod(0o755)
    assert bootstrapped(tmp_path).startswith("===== onecat: date +%s\n")


def bootstrapped(folder: Path) -> str:
    """What the remote command prints where these programs, a shell and the basic tools are all there is in PATH."""
    if any(Path(name).exists() for name in PYTHONS if name.startswith("/")):
        pytest.skip("this machine has a Python outside PATH")
    for name in ("sh", "sed", "cat", "sleep"):
        path = shutil.which(name)
        assert path is not None
        (folder / name).symlink_to(path)
    argv = [f"{folder}/sh", "-c", shlex.join(remote_argv(ProbeOptions(timeout=5), "h"))]
    done = subprocess.run(argv, input=program(), capture_output=True, env={"PATH": str(folder)}, timeout=60)
    return done.stdout.decode()


def test_without_sudo_rights_it_is_observed_without_root_and_said(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "sudo").write_text("#!/bin/sh\necho a password is required >&2; exit 1\n")
    for name in ("id", "sudo"):
        (tmp_path / name).chmod(0o755)
    argv = remote_argv(ProbeOptions(sudo=True), "h")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(argv, input=program(), capture_output=True, check=True, env=environment, timeout=60)
    note = from_json(json.loads(done.stdout)).note("sudo")
    assert note is not None and note.kind == "permission"


def test_with_sudo_rights_the_agent_runs_by_sudo(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift; TMPDIR=/ exec "$@"\n')
    for name in ("id", "sudo"):
        (tmp_path / name).chmod(0o755)
    argv = remote_argv(ProbeOptions(sudo=True), "h")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(argv, input=program(), capture_output=True, check=True, env=environment, timeout=60)
    facts = from_json(json.loads(done.stdout))
    temporary = facts.filesystem("tmp")
    assert facts.note("sudo") is None and temporary is not None and temporary.path == "/"


MODULE = '''\
import os
import re

@decorated
def kept(value):
    return helper(value)

def helper(
    value,
):
    """Longer."""
    return LIMIT + value

LIMIT = 3

@decorated
def dropped():
    return other()

class Other:
    pass

def other():
    return Other()

alias = aliased

def aliased():
    return 4

# A remark.
UNREAD = 5
ERROR_ONE = 1
ERROR_TWO = 2
'''


def test_of_a_module_stays_what_its_callers_can_reach() -> None:
    text = reachable(MODULE, ['getattr(module, "kept")(1)', "alias()", 'f"ERROR_{name}"'])
    assert "def helper(\n    value,\n):" in text and "LIMIT = 3" in text and "def aliased" in text
    assert "ERROR_ONE" in text and "ERROR_TWO" in text
    assert not any(word in text for word in ("dropped", "Other", "UNREAD", "remark"))
    assert text.count("@decorated\n") == 1


def test_a_module_that_cannot_be_taken_apart_stays_whole() -> None:
    text = 'def one():\n    """\nat the margin\n    """\n\ndef two():\n    pass\n'
    assert reachable(text, ["two"]) == text


def test_the_bindings_that_are_sent_are_the_installed_ones_in_what_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    folder = Path(core.__file__).parent / "sources"
    callers = [file.read_text() for file in folder.glob("*.py")]
    text = reachable(Path(str(pynvml.__file__)).read_text(), callers)
    (tmp_path / "carried.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    carried = importlib.import_module("carried")
    words = {
        word for caller in callers for word in caller.replace('"', " ").replace(".", " ").replace("(", " ").split()
    }
    used = {word for word in words if word.startswith(("nvml", "NVML", "c_nvml")) and hasattr(pynvml, word)}
    assert "nvmlInit" in used
    assert used <= set(vars(carried))
    with pytest.raises(carried.NVMLError):
        carried.nvmlDeviceGetCount()
