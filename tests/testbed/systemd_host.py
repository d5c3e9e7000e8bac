"""A host with a real systemd as its first program: a container on the network of this machine.

Beside systemd it has sshd, sudo, nginx (not started) and Docker's command line, whose daemon is the testbed's: what is
published there is reachable here. `docker.service` is a unit that is active when that daemon answers.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.testbed import ssh_host as ssh_hosts
from tests.testbed.base_image import BASE_TAG
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.ports import free_port

TAG = "onecat-test/systemd:bookworm"
BOOT_SECONDS = 60
REPOSITORY = Path(__file__).parents[2]
DAEMON_FOLDER = "/run/testbed-docker"
# systemd gives a start up after this time unless the unit says otherwise; 90 s by default.
DEFAULT_START_SECONDS = 3

DOCKERFILE = f"""\
FROM {BASE_TAG}
RUN apt-get -qq update \\
 && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \\
    systemd systemd-sysv dbus openssh-server sudo nginx-light \\
 && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \\
 && systemctl disable nginx.service apt-daily.timer apt-daily-upgrade.timer \\
 && useradd --create-home --uid {ssh_hosts.USER_ID} --shell /bin/bash {ssh_hosts.USER} \\
 && printf '%s\\n' '{ssh_hosts.USER} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/onecat
COPY files /
STOPSIGNAL SIGRTMIN+3
CMD ["/sbin/init"]
"""
FILES = {
    "etc/systemd/system.conf.d/onecat.conf": f"[Manager]\nDefaultTimeoutStartSec={DEFAULT_START_SECONDS}\n",
    "etc/tmpfiles.d/docker.conf": f"L /run/docker.sock - - - - {DAEMON_FOLDER}/docker.sock\n",
    "etc/systemd/system/docker.service": (
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/docker version\n"
    ),
}


@dataclass(frozen=True)
class Completed:
    """A program that ran on the host to its end."""

    code: int
    stdout: str
    stderr: str

    def expect(self, code: int) -> Completed:
        """This result; fails the test with everything printed when the exit code is another one."""
        assert self.code == code, f"exit code {self.code}, expected {code}\n{self.stdout[-6000:]}{self.stderr[-6000:]}"
        return self


@dataclass(frozen=True)
class SystemdHost:
    """One host with systemd.

    container: of the docker SDK. ssh: how to reach it over SSH, as the user onecat, who may use sudo without password.
    shared: a folder that has the same path there, here and for the Docker daemon; the user's home lies in it.
    """

    container: Any
    ssh: ssh_hosts.SshHost
    shared: Path

    def run(
        self, *argv: str | Path, environment: Mapping[str, str] | None = None, timeout: float = 120, user: str = "root"
    ) -> Completed:
        """Run a program there to its end; one that takes longer than `timeout` seconds is ended with code 124."""
        words = ["timeout", "--kill-after", "5", f"{timeout:g}", *map(str, argv)]
        code, (stdout, stderr) = self.container.exec_run(
            words, environment=dict(environment or {}), user=user, demux=True
        )
        return Completed(code, (stdout or b"").decode("utf-8", "replace"), (stderr or b"").decode("utf-8", "replace"))

    def python(
        self, *argv: str | Path, environment: Mapping[str, str] | None = None, timeout: float = 120
    ) -> Completed:
        """Run this checkout there, as root, with the interpreter and the packages of these tests."""
        variables = {
            "PYTHONPATH": ":".join([str(REPOSITORY), *(path for path in sys.path if path.endswith("site-packages"))]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "80",
            "LC_ALL": "C.UTF-8",
            **(environment or {}),
        }
        return self.run(Path(sys.executable).resolve(), *argv, environment=variables, timeout=timeout)

    def onecat(self, *arguments: str | Path, home: Path, timeout: float = 120) -> Completed:
        """Run `onecat ARGUMENTS` there, as root, with this ONECAT_HOME."""
        program = "from onecat.cli.main import main; main()"
        return self.python("-c", program, *arguments, environment={"ONECAT_HOME": str(home)}, timeout=timeout)

    def reboot(self) -> None:
        """Shut down as systemd does it, and start again."""
        self.container.restart(timeout=60)
        self.wait_until_up()

    def wait_until_up(self) -> None:
        """Wait for the end of the start, whether every unit is well or not."""
        deadline = time.monotonic() + BOOT_SECONDS
        while True:
            state = self.run("systemctl", "is-system-running", "--wait").stdout.strip()
            if state in ("running", "degraded"):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"systemd did not come up: {state}\n{self.container.logs(tail=20).decode()}")
            time.sleep(0.2)


def ensure_systemd_image(docker_client: Any) -> str:
    """The base image with systemd, sshd, sudo and nginx, built where it is missing. Returns its tag."""
    import docker

    with tempfile.TemporaryDirectory() as context:
        Path(context, "Dockerfile").write_text(DOCKERFILE)
        for name, text in FILES.items():
            path = Path(context, "files", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        try:
            docker_client.images.build(path=context, tag=TAG, rm=True, network_mode="host")
        except docker.errors.BuildError as error:
            log = "".join(str(line.get("stream", "")) for line in error.build_log)
            raise RuntimeError(f"the image with systemd cannot be built:\n{log[-4000:]}") from error
    return TAG


@contextlib.contextmanager
def running_systemd_host(
    docker_client: Any, daemon: DockerDaemon, image: str, docker_program: str, directory: Path
) -> Iterator[SystemdHost]:
    """A container with systemd, fresh keys and its sshd on a free port of 127.0.0.1; gone afterwards.

    Parameters:
        docker_program: Docker's command line on this machine. directory: for keys and the shared folder.
    """
    shared = directory / "shared"
    shared.mkdir(parents=True)
    for name in ("user_key", "host_key"):
        ssh_hosts.make_key(directory / name)
    port = free_port()
    Path(daemon.directory).chmod(0o711)  # the host's users reach the socket in it, if its group lets them
    container = docker_client.api.create_container(image, **_options(docker_client, daemon, docker_program, shared))
    container = docker_client.containers.get(container["Id"])
    try:
        container.put_archive("/", ssh_hosts.key_archive(directory))
        container.put_archive("/", _sshd_settings(port))
        container.start()
        ssh = ssh_hosts.SshHost(
            container=container.name,
            address="127.0.0.1",
            port=port,
            user=ssh_hosts.USER,
            key=directory / "user_key",
            known_hosts=directory / "known_hosts",
            host_key=(directory / "host_key.pub").read_text(),
        )
        ssh.known_hosts.write_text(f"[{ssh.address}]:{port} {ssh.host_key}")
        host = SystemdHost(container, ssh, shared)
        host.wait_until_up()
        group = daemon.socket.stat().st_gid
        host.run("groupadd", "--non-unique", "--gid", str(group), "docker").expect(0)
        # The daemon mounts what lies below the user's home.
        home = str(shared / "home")
        host.run("cp", "--archive", f"/home/{ssh_hosts.USER}", home).expect(0)
        host.run("usermod", "--append", "--groups", "docker", "--home", home, ssh_hosts.USER).expect(0)
        yield host
    finally:
        container.remove(force=True, v=True)


def _options(docker_client: Any, daemon: DockerDaemon, docker_program: str, shared: Path) -> dict[str, Any]:
    """What a container needs so that systemd may run in it, without being privileged.

    It shares the control groups of this machine; SYS_ADMIN lets systemd build the sandboxes of its services.
    """
    # systemd's own hierarchy of control groups v1, else the only one of version 2.
    systemds = Path("/sys/fs/cgroup/systemd")
    groups = {str(systemds): "rw", "/sys/fs/cgroup": "ro"} if systemds.exists() else {"/sys/fs/cgroup": "rw"}
    # The interpreter of the tests and this checkout, where they lie here.
    read_only = {Path(sys.base_prefix), Path(sys.prefix), REPOSITORY} - {Path("/usr"), Path("/usr/local")}
    binds = {
        **{path: {"bind": path, "mode": mode} for path, mode in groups.items()},
        **{str(path): {"bind": str(path), "mode": "ro"} for path in read_only},
        str(Path(docker_program).resolve()): {"bind": "/usr/bin/docker", "mode": "ro"},
        str(shared): {"bind": str(shared), "mode": "rw"},
    }
    host_config = docker_client.api.create_host_config(
        binds=binds,
        cap_add=["SYS_ADMIN"],
        security_opt=["seccomp=unconfined"],
        tmpfs={"/run": "", "/run/lock": "", "/tmp": "mode=1777"},  # noqa: S108 - inside the container
        network_mode="host",
    )
    # Not the daemon's mounts below its folder: held here, it could not take them away.
    folder = {"Type": "bind", "Source": daemon.directory, "Target": DAEMON_FOLDER}
    host_config |= {"CgroupnsMode": "host", "Mounts": [{**folder, "BindOptions": {"NonRecursive": True}}]}
    return {"environment": {"container": "docker"}, "host_config": host_config, "hostname": None}


def _sshd_settings(port: int) -> bytes:
    text = f"ListenAddress 127.0.0.1:{port}\n".encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("etc/ssh/sshd_config.d/onecat.conf")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()
