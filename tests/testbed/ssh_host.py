"""Hosts to reach over SSH: containers that run a real sshd, each with keys made for it and thrown away."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.testbed.base_image import BASE_TAG

USER = "onecat"
USER_ID = 1000
VISITOR = "visitor"
"""A second user, who logs in by a password only and needs it for sudo, too; running_ssh_host gives it one."""
INNER_PORT = 2222
"""Where sshd listens inside of the container only: reached through it as a jump host."""
NVML_FOLDER = "/opt/nvml"
"""Where a host looks for the NVML library and its description."""
TAG = "onecat-test/ssh:bookworm"
START_SECONDS = 30

DOCKERFILE = f"""\
FROM {BASE_TAG}
RUN apt-get -qq update \\
 && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends openssh-server sudo \\
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \\
 && mkdir -p /run/sshd \\
 && useradd --create-home --uid {USER_ID} --shell /bin/bash {USER} \\
 && useradd --create-home --shell /bin/bash {VISITOR} \\
 && printf '%s\\n' '{USER} ALL=(ALL) NOPASSWD: ALL' '{VISITOR} ALL=(ALL) ALL' > /etc/sudoers.d/onecat \\
 && printf '%s\\n' 'ListenAddress 0.0.0.0:22' 'ListenAddress 127.0.0.1:{INNER_PORT}' \\
    'SetEnv LD_LIBRARY_PATH={NVML_FOLDER} FAKE_NVML_JSON={NVML_FOLDER}/host.json' \\
    'Match User {VISITOR}' '  PubkeyAuthentication no' '  KbdInteractiveAuthentication no' \\
    > /etc/ssh/sshd_config.d/onecat.conf
EXPOSE 22
CMD ["/usr/sbin/sshd", "-D", "-e"]
"""


@dataclass(frozen=True)
class SshHost:
    """One reachable host.

    container: its docker name, for tests that pause or change it. key: the private key that opens it.
    known_hosts: a file with its host key, so checking stays on. host_key: that key, as `TYPE BASE64 COMMENT`.
    """

    container: str
    address: str
    port: int
    user: str
    key: Path
    known_hosts: Path
    host_key: str

    def argv(self, *command: str) -> list[str]:
        """The `ssh` command line that runs a command there, reading no configuration of this machine's user."""
        options = {
            "IdentityFile": str(self.key),
            "UserKnownHostsFile": str(self.known_hosts),
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "10",
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", *flags, "-p", str(self.port), f"{self.user}@{self.address}", *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end."""
        return subprocess.run(self.argv(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def ensure_ssh_image(docker_client: Any) -> str:
    """The base image with OpenSSH's server and a user to log in, built where it is missing. Returns its tag."""
    import docker

    with tempfile.TemporaryDirectory() as context:
        (Path(context) / "Dockerfile").write_text(DOCKERFILE)
        try:
            docker_client.images.build(path=context, tag=TAG, rm=True, network_mode="host")
        except docker.errors.BuildError as error:
            log = "".join(str(line.get("stream", "")) for line in error.build_log)
            raise RuntimeError(f"the image with sshd cannot be built:\n{log[-4000:]}") from error
    return TAG


@contextlib.contextmanager
def running_ssh_host(docker_client: Any, image: str, directory: Path, **options: Any) -> Iterator[SshHost]:
    """A container with sshd and fresh keys in `directory`; gone afterwards.

    `options` go to the docker SDK's `containers.run` (hostname, network, cpu limits, ...).
    """
    directory.mkdir(parents=True, exist_ok=True)
    make_key(directory / "user_key")
    make_key(directory / "host_key")
    container = docker_client.containers.create(image, **options)
    try:
        container.put_archive("/", key_archive(directory))
        container.start()
        container.reload()
        networks = container.attrs["NetworkSettings"]["Networks"].values()
        host = SshHost(
            container=container.name,
            address=next(network["IPAddress"] for network in networks),
            port=22,
            user=USER,
            key=directory / "user_key",
            known_hosts=directory / "known_hosts",
            host_key=(directory / "host_key.pub").read_text(),
        )
        host.known_hosts.write_text(f"{host.address} {host.host_key}")
        _wait_until_it_answers(host, container)
        yield host
    finally:
        container.remove(force=True, v=True)


def make_key(path: Path) -> None:
    """Make a key pair: `path` and `path`.pub."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "onecat test", "-f", str(path)], check=True)


def put_folder(container: Any, folder: Path, place: str) -> None:
    """Copy a folder of this machine into a container, as root's and readable for all; it replaces what was there."""
    run_inside(container, "rm", "-rf", place)

    def as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.mode |= 0o755 if entry.isdir() else 0o444
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, place.lstrip("/"), filter=as_root)
    container.put_archive("/", buffer.getvalue())


def run_inside(container: Any, *argv: str) -> str:
    """Run a program as root in a container; returns its output. Raises RuntimeError when it fails."""
    code, output = container.exec_run(list(argv))
    if code != 0:
        raise RuntimeError(f"{argv[0]}: exit code {code}: {output.decode(errors='replace')}")
    return str(output.decode())


def key_archive(directory: Path) -> bytes:
    """The keys in `directory` as files of a container, in a tar archive."""
    home = f"home/{USER}/.ssh"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo(home)
        folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o700, USER_ID, USER_ID
        archive.addfile(folder)
        for name, source, owner in (
            ("etc/ssh/ssh_host_ed25519_key", "host_key", 0),
            (f"{home}/authorized_keys", "user_key.pub", USER_ID),
        ):
            data = (directory / source).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.uid, entry.gid = len(data), 0o600, owner, owner
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _wait_until_it_answers(host: SshHost, container: Any) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        answer = host.run("true")
        if answer.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"sshd does not answer: {answer.stderr}\n{container.logs(tail=20).decode()}")
        time.sleep(0.2)
