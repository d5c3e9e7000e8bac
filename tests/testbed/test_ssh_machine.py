"""A host over SSH as a Machine: a real sshd; files, locks, root, forwarding, and what a lost connection leaves."""

from __future__ import annotations

import contextlib
import errno
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat.deploy.prerequisites import check_disk
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import ConnectionLostError, Desk, LockHeldError, SshMachine, SudoPasswords, parse_target
from onecat.hosts.ssh import SshAccess, SshTransport
from onecat.hosts.ssh_config import SshConfiguration
from tests.testbed.ssh_host import USER, SshHost, run_inside

pytestmark = pytest.mark.testbed
PLACE = f"/home/{USER}/files"


class Passwords(SudoPasswords):
    """A person who types this password for sudo."""

    can_ask = True

    def __init__(self, text: str) -> None:
        self._text = text

    def password(self, host: str) -> str | None:
        return self._text


def connect(host: SshHost, user: str = USER, passwords: SudoPasswords | None = None) -> SshMachine:
    folder = host.key.parent / "home"
    (folder / ".ssh").mkdir(parents=True, exist_ok=True)
    (folder / ".ssh" / "config").write_text(
        f"Host gpu1\n  HostName {host.address}\n  Port {host.port}\n  User {user}\n  IdentityFile {host.key}\n"
        f"  UserKnownHostsFile {host.known_hosts}\n  IdentityAgent none\n"
    )
    desk = Desk()
    access = SshAccess(desk, configuration=SshConfiguration.read((folder / ".ssh" / "config",), folder))
    target = parse_target("gpu1")
    transport = SshTransport(access, target, access.settings(target))
    return SshMachine(transport, passwords or SudoPasswords(desk))


@pytest.fixture
def machine(ssh_host: SshHost) -> Iterator[SshMachine]:
    with contextlib.closing(connect(ssh_host)) as connected:
        connected.make_directory(PLACE)
        yield connected
        connected.remove(PLACE)


def sshd_children(container: Any) -> list[str]:
    """The processes of sshd that serve one connection each, and not the one that waits for them."""
    found = run_inside(container, "sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo \" $p\"; done")
    return [line.rpartition("/")[2] for line in found.splitlines() if line.startswith(f"sshd: {USER}")]


def test_files_are_whole_with_modes_owners_and_in_any_size(machine: SshMachine) -> None:
    content = bytes(range(256)) * 700  # several packets
    machine.write(f"{PLACE}/a", content, 0o640)
    assert machine.read(f"{PLACE}/a") == content
    found = machine.status(f"{PLACE}/a")
    assert found is not None
    assert (found.kind, found.mode, found.uid, found.size) == ("file", 0o640, machine.user_id, len(content))
    machine.write(f"{PLACE}/a", b"")
    assert machine.read(f"{PLACE}/a") == b""
    assert machine.names(PLACE) == ("a",), "no temporary file stays"
    machine.append(f"{PLACE}/log", b"one\n")
    machine.append(f"{PLACE}/log", b"two\n")
    assert machine.read(f"{PLACE}/log") == b"one\ntwo\n"
    assert machine.status(f"{PLACE}/log") and machine.entries(PLACE)["log"].mode == 0o600
    machine.make_directory(f"{PLACE}/deep/er/still")
    machine.make_directory(f"{PLACE}/deep/er/still")
    machine.write(f"{PLACE}/deep/er/f", b"x")
    machine.rename(f"{PLACE}/log", f"{PLACE}/a")
    assert machine.read(f"{PLACE}/a") == b"one\ntwo\n"
    machine.run(["ln", "-s", "a", f"{PLACE}/link"])
    machine.run(["ln", "-s", "nowhere", f"{PLACE}/broken"])
    entries = machine.entries(PLACE)
    assert {name: each.kind for name, each in entries.items()} == {
        "a": "file",
        "broken": "link",
        "deep": "directory",
        "link": "file",
    }
    machine.remove(f"{PLACE}/deep")
    machine.remove(f"{PLACE}/nothing")
    assert machine.status(f"{PLACE}/deep") is None
    assert machine.read(f"{PLACE}/nothing") is None
    assert machine.names(f"{PLACE}/nothing") == () and machine.entries(f"{PLACE}/nothing") == {}
    assert machine.free_bytes(f"{PLACE}/not/yet/there") == machine.free_bytes("/home") > 0
    assert len((machine.read("/proc/self/cmdline") or b"").split(b"\0")) > 1


def test_what_the_host_refuses_is_an_error_of_the_system(machine: SshMachine) -> None:
    with pytest.raises(PermissionError):
        machine.write("/etc/onecat", b"x")
    with pytest.raises(PermissionError):
        machine.read("/etc/shadow")
    with pytest.raises(FileNotFoundError):
        machine.write(f"{PLACE}/not/there", b"x")
    machine.write(f"{PLACE}/file", b"")
    with pytest.raises(FileExistsError):
        machine.make_directory(f"{PLACE}/file")
    with pytest.raises(FileExistsError, match="files/file"):
        machine.make_directory(f"{PLACE}/file/below")


def test_a_full_disk_is_told_as_one_and_the_old_content_stays(start_ssh_host: Callable[..., SshHost]) -> None:
    host = start_ssh_host(tmpfs={"/small": "size=1m,mode=1777"})
    with contextlib.closing(connect(host)) as machine:
        machine.write("/small/a", b"old")
        with pytest.raises(OSError, match="No space left") as raised:
            machine.write("/small/a", b"x" * (2 << 20))
        assert raised.value.errno == errno.ENOSPC
        assert machine.read("/small/a") == b"old"
        assert machine.names("/small") == ("a",)


def test_a_disk_without_room_is_told_before_anything_is_written(start_ssh_host: Callable[..., SshHost]) -> None:
    host = start_ssh_host(tmpfs={f"/home/{USER}/.local": "size=8m,mode=755,uid=1000"})
    with contextlib.closing(connect(host)) as machine:
        with pytest.raises(OnecatError, match="the disk is full: [78] MiB are free") as raised:
            check_disk(machine)
        assert raised.value.where == f"/home/{USER}/.local/share/onecat on gpu1"
        assert machine.names(f"/home/{USER}/.local") == ()


def test_the_data_directory_is_found_by_the_rule_of_this_machine(ssh_host: SshHost, docker_client: Any) -> None:
    with contextlib.closing(connect(ssh_host)) as machine:
        assert machine.data_directory == f"/home/{USER}/.local/share/onecat"
        assert (machine.user_id, machine.group_id, machine.name, machine.is_local) == (1000, 1000, "gpu1", False)


def test_root_has_files_and_programs_too(ssh_host: SshHost) -> None:
    with contextlib.closing(connect(ssh_host)) as machine:
        root = machine.root()
        assert root is not None and root.user_id == 0
        assert root.run(["id", "-u"]).stdout == b"0\n"
        root.write("/etc/onecat-test", b"of root", 0o640, (0, 1000))
        assert machine.read("/etc/onecat-test") == b"of root"
        with pytest.raises(PermissionError):
            machine.write("/etc/onecat-test", b"of nobody")
        found = machine.status("/etc/onecat-test")
        assert found is not None and (found.uid, found.gid, found.mode) == (0, 1000, 0o640)
        root.remove("/etc/onecat-test")
        assert root.root() is root and root.data_directory == machine.data_directory


def test_root_by_a_password_which_stands_in_no_process_list(
    start_ssh_host: Callable[..., SshHost], docker_client: Any
) -> None:
    host = start_ssh_host()
    container = docker_client.containers.get(host.container)
    run_inside(container, "sh", "-c", f"echo '{USER}:Sesame-7' | chpasswd; sed -i s/NOPASSWD:// /etc/sudoers.d/onecat")
    with contextlib.closing(connect(host)) as machine:
        assert machine.root() is None, "nobody is there to be asked"
    with contextlib.closing(connect(host, passwords=Passwords("wrong"))) as machine:
        assert machine.root() is None
    with contextlib.closing(connect(host, passwords=Passwords("Sesame-7"))) as machine:
        root = machine.root()
        assert root is not None
        root.write("/root/file", b"of root")
        assert root.read("/root/file") == b"of root"
        lines = run_inside(container, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert "sftp-server" in lines and "Sesame-7" not in lines


def test_one_holds_a_lock_and_it_is_free_when_given_up(machine: SshMachine, ssh_host: SshHost) -> None:
    path = f"{PLACE}/lock"
    with contextlib.closing(connect(ssh_host)) as other:
        with machine.lock(path, "the first"):
            assert machine.read(path) == b"the first"
            with pytest.raises(LockHeldError) as raised, other.lock(path, "the second"):
                pass
            assert raised.value.holder == "the first"
        with other.lock(path, "the second"):
            assert machine.read(path) == b"the second"
        assert machine.read(path) == b""


def test_the_lock_of_an_operator_on_that_host_holds_us_off_and_the_other_way_round(
    machine: SshMachine, ssh_host: SshHost
) -> None:
    path = f"{PLACE}/lock"
    program = f"""
import fcntl, sys
stream = open({path!r}, "a+")
try:
    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(9)
stream.write("somebody there")
stream.flush()
print("held", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        ssh_host.argv("python3", "-c", shlex.quote(program)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as there:
        assert there.stdin and there.stdout
        assert there.stdout.readline() == b"held\n"
        with pytest.raises(LockHeldError, match="lock"), machine.lock(path, "us"):
            pass
        there.stdin.close()
    with machine.lock(path, "us"):
        assert ssh_host.run("flock", "-n", path, "true").returncode == 1


@pytest.mark.parametrize("missing", ["/usr/bin/flock", "/usr/bin/timeout"])
def test_python_holds_the_lock_where_flock_is_missing(
    start_ssh_host: Callable[..., SshHost], docker_client: Any, missing: str
) -> None:
    host = start_ssh_host()
    container = docker_client.containers.get(host.container)
    run_inside(container, "rm", missing)
    with contextlib.closing(connect(host)) as machine, contextlib.closing(connect(host)) as other:
        with machine.lock("/tmp/lock", "the first"), pytest.raises(LockHeldError):
            other.lock("/tmp/lock", "the second").__enter__()
        with other.lock("/tmp/lock", "the second"):
            pass
        if missing == "/usr/bin/flock":
            run_inside(container, "sh", "-c", "rm /usr/bin/python3*")
            with pytest.raises(OnecatError, match="neither flock and timeout nor python3"):
                machine.lock("/tmp/lock", "the first").__enter__()


def test_a_cut_connection_frees_the_lock_at_once_and_everything_afterwards_is_refused(
    ssh_host: SshHost, docker_client: Any
) -> None:
    container = docker_client.containers.get(ssh_host.container)
    machine, other = connect(ssh_host), connect(ssh_host)
    with contextlib.closing(machine), contextlib.closing(other):
        other.run(["true"])
        kept = set(sshd_children(container))
        with pytest.raises(ConnectionLostError) as raised, machine.lock("/tmp/cut-lock", "the first"):
            run_inside(container, "kill", "-9", *(set(sshd_children(container)) - kept))
            with other.lock("/tmp/cut-lock", "the second"):
                machine.write("/tmp/after", b"x")
        assert raised.value.code == ExitCode.UNREACHABLE
        for again in (lambda: machine.run(["true"]), lambda: machine.read("/etc/hostname")):
            with pytest.raises(ConnectionLostError, match="the connection was lost"):
                again()


def test_a_lock_whose_holder_says_nothing_any_more_is_free_within_its_bound(ssh_host: SshHost, tmp_path: Path) -> None:
    """The operator's machine goes to sleep, or its network away: no end of the connection reaches sshd."""
    program = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from onecat.hosts import remote_lock
from tests.testbed.test_ssh_machine import SshHost, connect
remote_lock.SILENT_SECONDS, remote_lock.BEAT_SECONDS = 3, 1
host = SshHost("", {ssh_host.address!r}, 22, "", Path({str(ssh_host.key)!r}), Path({str(ssh_host.known_hosts)!r}), "")
with connect(host).lock("/tmp/sleeping-lock", "asleep"):
    print("held", flush=True)
    time.sleep(100)
"""
    with (
        contextlib.closing(connect(ssh_host)) as machine,
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as sleeper,
    ):
        try:
            assert sleeper.stdout and sleeper.stdout.readline() == b"held\n"
            sleeper.send_signal(19)  # SIGSTOP
            with pytest.raises(LockHeldError) as raised, machine.lock("/tmp/sleeping-lock", "awake"):
                pass
            assert raised.value.holder == "asleep"
            began = time.monotonic()
            while time.monotonic() - began < 60:
                with contextlib.suppress(LockHeldError), machine.lock("/tmp/sleeping-lock", "awake"):
                    break
                time.sleep(0.5)
            assert time.monotonic() - began < 18  # 3 s of silence, not 20
        finally:
            sleeper.kill()


def test_servers_of_the_host_are_reached_through_the_connection(ssh_host: SshHost, docker_client: Any) -> None:
    container = docker_client.containers.get(ssh_host.container)
    container.exec_run(
        ["python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", "/etc", "8123"], detach=True
    )
    with contextlib.closing(connect(ssh_host)) as machine:
        url = machine.reach("http://127.0.0.1:8123")
        limit = time.monotonic() + 10
        while True:
            try:
                assert httpx.get(f"{url}/hostname", trust_env=False).text == machine.read("/etc/hostname").decode()  # type: ignore[union-attr]
                break
            except httpx.HTTPError:
                assert time.monotonic() < limit
                time.sleep(0.1)
        assert machine.reach("http://127.0.0.1:8123") == url
        with pytest.raises(httpx.HTTPError):
            httpx.get(machine.reach("http://127.0.0.1:8124"), trust_env=False)


def test_sshd_that_forbids_forwarding_is_told_with_the_setting(
    start_ssh_host: Callable[..., SshHost], docker_client: Any
) -> None:
    host = start_ssh_host()
    container = docker_client.containers.get(host.container)
    run_inside(container, "sh", "-c", "sed -i '1i AllowTcpForwarding no' /etc/ssh/sshd_config && kill -HUP 1")
    time.sleep(2)
    with contextlib.closing(connect(host)) as machine:
        with pytest.raises(OnecatError, match="forbids TCP forwarding") as raised:
            machine.reach("http://127.0.0.1:8000")
        assert "AllowTcpForwarding local" in raised.value.next_steps[0]
        assert machine.run(["true"]).exit_code == 0
