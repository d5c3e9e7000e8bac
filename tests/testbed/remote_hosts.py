"""Hosts to deploy on over SSH: a real sshd and nginx on the network of this machine, with a Docker daemon of tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onecat.hosts import Desk, SshMachine, SudoPasswords, parse_target
from onecat.hosts.ssh import SshAccess, SshTransport
from onecat.hosts.ssh_config import SshConfiguration
from tests.testbed import ssh_host as ssh_hosts
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.ssh_host import SshHost, run_inside


@dataclass(frozen=True)
class RemoteHost:
    """One host. container: of the docker SDK. home: where onecat's data lie there; shared: has the same path there,
    here and for the host's Docker daemon. name: the word for `hosts:`."""

    name: str
    container: Any
    ssh: SshHost
    shared: Path

    @property
    def home(self) -> Path:
        return self.shared / f"onecat-{self.name}"

    def configuration(self) -> str:
        """What stands in ~/.ssh/config for it."""
        return (
            f"Host {self.name}\n  HostName {self.ssh.address}\n  Port {self.ssh.port}\n  User {self.ssh.user}\n"
            f"  IdentityFile {self.ssh.key}\n  UserKnownHostsFile {self.ssh.known_hosts}\n  IdentityAgent none\n"
        )

    def connect(self, kind: type[SshMachine] = SshMachine, **options: Any) -> SshMachine:
        """A connection of its own."""
        folder = self.ssh.key.parent / "operator"
        (folder / ".ssh").mkdir(parents=True, exist_ok=True)
        (folder / ".ssh" / "config").write_text(self.configuration())
        desk = Desk()
        access = SshAccess(desk, configuration=SshConfiguration.read((folder / ".ssh" / "config",), folder))
        target = parse_target(self.name)
        transport = SshTransport(access, target, access.settings(target))
        return kind(transport, SudoPasswords(desk), **options)

    def processes(self, words: str) -> list[int]:
        """The processes there whose command line holds these words."""
        lines = run_inside(
            self.container, "sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo \" $p\"; done"
        )
        found = [line.rpartition("/proc/") for line in lines.splitlines() if "for p in" not in line]
        return [int(number) for line, _, number in found if words in line]

    def cut(self) -> None:
        """End all connections without a word to the programs at either end: sshd's children die."""
        for pid in self.processes(f"sshd: {self.ssh.user}"):
            self.container.exec_run(["kill", "-9", str(pid)])


@contextlib.contextmanager
def running_remote_host(
    docker_client: Any,
    daemon: DockerDaemon,
    image: str,
    directory: Path,
    port: int,
    *,
    name: str = "gpu1",
    address: str = "127.0.0.1",
    docker_program: str,
    shared: Path | None = None,
) -> Iterator[RemoteHost]:
    """A host of the systemd image without systemd: sshd alone, at an address and port of this machine.

    Parameters:
        docker_client: of the daemon that runs the host. daemon: the one that the host has as its own.
        shared: a folder that several hosts have in common.
    """
    shared = shared or directory / "shared"
    shared.mkdir(parents=True, exist_ok=True)
    directory.mkdir(parents=True, exist_ok=True)
    shared.chmod(0o777)
    for key in ("user_key", "host_key"):
        ssh_hosts.make_key(directory / key)
    settings = ["-o", f"ListenAddress={address}:{port}", "-o", f"SetEnv=ONECAT_HOME={shared}/onecat-{name}"]
    container = docker_client.containers.create(
        image,
        ["/usr/sbin/sshd", "-D", "-e", *settings],
        network_mode="host",
        init=True,
        tmpfs={"/run/sshd": "mode=755"},
        volumes=[
            f"{daemon.socket}:/var/run/docker.sock",
            f"{Path(docker_program).resolve()}:/usr/bin/docker:ro",
            f"{shared}:{shared}",
        ],
    )
    try:
        container.put_archive("/", ssh_hosts.key_archive(directory))
        container.start()
        group = run_inside(container, "stat", "--format", "%g", "/var/run/docker.sock").strip()
        if group != "0":
            run_inside(container, "groupadd", "--non-unique", "--gid", group, "engine")
        run_inside(container, "usermod", "--append", "--groups", "root" if group == "0" else "engine", ssh_hosts.USER)
        ssh = SshHost(
            container=container.name,
            address=address,
            port=port,
            user=ssh_hosts.USER,
            key=directory / "user_key",
            known_hosts=directory / "known_hosts",
            host_key=(directory / "host_key.pub").read_text(),
        )
        ssh.known_hosts.write_text(f"[{address}]:{port} {ssh.host_key}")
        ssh_hosts._wait_until_it_answers(ssh, container)
        yield RemoteHost(name, container, ssh, shared)
    finally:
        container.remove(force=True, v=True)
