"""The testbed as fixtures: real services, started when a test first asks for one, gone when the session ends.

docker_daemon, docker_client   a dockerd of our own, and an SDK client of it
base_image, ssh_image          local images (Debian 12; with sshd)
ssh_host, start_ssh_host       containers with a real sshd
nginx                          the path of a real nginx
onecat_home, onecat            the real command with directories of its own
onecat_with_docker             ... with the testbed's Docker daemon
onecat_with_engine             ... with the native engine that is kept between runs
small                          a deployment of the small server, ready to be brought up
run_unprivileged, small_disk, free_port, tiny_model
freezer                        a control group that freezes processes
nvml_library, fake_nvml        an NVML that answers for a described host
engine_home, engine_runtime    a real native vLLM for the CPU
patched_runtime                the same with the Python files of our series
served                         the small model on that vLLM, brought up by `onecat up`: once in a session, to be shared
vllm_archive, vllm_source      the pinned source of the patched engine, as a file and unpacked
cpu_image                      the image that `onecat build --profile cpu` makes
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onecat.paths import Home
from tests.testbed import base_image as base_images
from tests.testbed import command, ports, sources
from tests.testbed import docker_daemon as docker_daemons
from tests.testbed import ssh_host as ssh_hosts
from tests.testbed import systemd_host as systemd_hosts
from tests.testbed.cache import KEPT_SECONDS, Cache, open_cache
from tests.testbed.nvml import library as nvml

if TYPE_CHECKING:
    from onecat.images import NativeRuntime
    from tests.testbed.deployments import SmallDeployment
    from tests.testbed.patched_runtime import PatchedRuntime
    from tests.testbed.served import Served


def pytest_sessionstart() -> None:
    """A polite kill cleans up like Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is a testbed test, and what asks for a dockerd is a test of Docker, unsaid."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.testbed)
            if "docker_daemon" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.docker)


def need_root(what: str) -> None:
    """Fail with the reason where root is missing: a testbed that skips itself proves nothing."""
    if os.geteuid() != 0:
        pytest.fail(f"{what} needs root: run the tests as root, or only the unit tests by `make unit`", pytrace=False)


def need_program(name: str, package: str) -> str:
    """The path of a program of this machine; fails with how to install it."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")
    if path is None:
        pytest.fail(
            f"{name} is missing: `make test` installs it as root, or type: apt-get install {package}", pytrace=False
        )
    return path


@pytest.fixture(scope="session")
def cache() -> Iterator[Cache]:
    """Where costly things are kept between runs."""
    with open_cache() as opened:
        yield opened


@pytest.fixture(scope="session")
def docker_daemon(cache: Cache) -> Iterator[docker_daemons.DockerDaemon]:
    """A dockerd of our own. Its images stay in the cache, unless another run uses that one now."""
    need_root("a dockerd")
    need_program("dockerd", "docker.io")
    with cache.lock_or_none("docker") as is_ours:
        data_root = cache.folder("docker") if is_ours else Path(tempfile.mkdtemp(prefix="onecat-test-data-"))
        try:
            with docker_daemons.running_docker_daemon(data_root) as daemon:
                yield daemon
        finally:
            if not is_ours:
                shutil.rmtree(data_root)


@pytest.fixture(scope="session")
def docker_client(docker_daemon: docker_daemons.DockerDaemon) -> Iterator[Any]:
    """The docker SDK's client of `docker_daemon`. Afterwards its containers, networks and dangling images are gone."""
    import docker

    client = docker.DockerClient(base_url=docker_daemon.host, timeout=600)
    yield client
    for container in client.containers.list(all=True):
        container.remove(force=True, v=True)
    client.networks.prune()
    client.images.prune()
    client.close()


@pytest.fixture(scope="session")
def base_image(docker_client: Any, cache: Cache) -> str:
    """The tag of a local Debian 12 image with Python 3.11; the profiles' base image has a tag of the same image."""
    need_program("debootstrap", "debootstrap")
    return base_images.ensure_base_image(docker_client, cache)


@pytest.fixture(scope="session")
def ssh_image(docker_client: Any, base_image: str) -> str:
    """The tag of a local image that runs sshd."""
    return ssh_hosts.ensure_ssh_image(docker_client)


@pytest.fixture(scope="session")
def ssh_host(
    docker_client: Any, ssh_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ssh_hosts.SshHost]:
    """One host with Python and sshd that all tests share."""
    need_program("ssh", "openssh-client")
    with ssh_hosts.running_ssh_host(docker_client, ssh_image, tmp_path_factory.mktemp("ssh")) as host:
        yield host


@pytest.fixture
def start_ssh_host(docker_client: Any, ssh_image: str, tmp_path: Path) -> Iterator[Callable[..., ssh_hosts.SshHost]]:
    """Starts hosts for one test: `start_ssh_host(name="gpu1", mem_limit="256m")` (options of the docker SDK)."""
    from contextlib import ExitStack

    need_program("ssh", "openssh-client")
    with ExitStack() as hosts:
        started = 0

        def start(**options: Any) -> ssh_hosts.SshHost:
            nonlocal started
            started += 1
            directory = tmp_path / f"ssh-{started}"
            return hosts.enter_context(ssh_hosts.running_ssh_host(docker_client, ssh_image, directory, **options))

        yield start


@pytest.fixture(scope="session")
def systemd_host(
    docker_client: Any,
    docker_daemon: docker_daemons.DockerDaemon,
    base_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[systemd_hosts.SystemdHost]:
    """One host with a real systemd that all tests share; its Docker daemon is the testbed's."""
    image = systemd_hosts.ensure_systemd_image(docker_client)
    program = need_program("docker", "docker.io")
    directory = tmp_path_factory.mktemp("systemd")
    with systemd_hosts.running_systemd_host(docker_client, docker_daemon, image, program, directory) as host:
        yield host


@pytest.fixture(scope="session")
def nginx() -> str:
    """The path of a real nginx."""
    return need_program("nginx", "nginx")


@pytest.fixture
def onecat_home(tmp_path: Path) -> Path:
    """An ONECAT_HOME of one test's own, not yet there."""
    return tmp_path / "onecat-home"


@pytest.fixture
def onecat(onecat_home: Path, cache: Cache) -> command.Onecat:
    """The real command: `onecat("doctor", "--json").expect(0).json()`. It knows no Docker daemon."""
    return command.Onecat(home=onecat_home, cache=cache.folder("onecat"), docker_host="unix:///nonexistent/docker.sock")


@pytest.fixture
def onecat_with_docker(onecat: command.Onecat, docker_daemon: docker_daemons.DockerDaemon) -> command.Onecat:
    """The real command with the testbed's Docker daemon."""
    return command.Onecat(home=onecat.home, cache=onecat.cache, docker_host=docker_daemon.host)


@pytest.fixture(scope="session")
def run_unprivileged() -> Callable[..., command.Result]:
    """Runs a command as the user nobody, who may read everything and write nothing here."""
    need_root("becoming another user")
    return command.run_unprivileged


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Gives ports of 127.0.0.1 that were free a moment ago."""
    return ports.free_port


@pytest.fixture
def small(onecat_home: Path, tiny_model: Path, free_port: Callable[[], int], nginx: str) -> Iterator[SmallDeployment]:
    """A deployment of the small server behind an nginx of its own; whatever a test has started is taken down."""
    from onecat import deploy
    from tests.testbed.deployments import SmallDeployment

    deployment = SmallDeployment(Home(onecat_home, onecat_home / "cache"), tiny_model, free_port(), free_port())
    yield deployment
    for store in deploy.deployments(deployment.machine):
        deploy.down(store)
    assert deployment.processes() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts file systems of a few MiB for one test: `small_disk(8)` is an empty directory on 8 MiB."""
    need_root("mounting a small file system")
    mounted: list[Path] = []

    def mount(mebibytes: int) -> Path:
        point = tmp_path / f"disk-{len(mounted)}"
        point.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "onecat-test", str(point)], check=True)
        mounted.append(point)
        return point

    yield mount
    for point in mounted:
        subprocess.run(["umount", "--lazy", str(point)], check=True)


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A control group whose frozen processes not even SIGKILL ends (version 1 only; version 2 ends them)."""
    need_root("freezing a process")
    base = Path("/sys/fs/cgroup/freezer")
    if not (base / "cgroup.procs").exists():
        pytest.skip("this machine has no freezer of control groups version 1")
    group = base / f"onecat-test-{os.getpid()}"
    group.mkdir()
    yield group
    (group / "freezer.state").write_text("THAWED")
    deadline = time.monotonic() + 5
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    group.rmdir()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint with a tokenizer; read it, do not change it."""
    from onecat.checkpoints import write_tiny_checkpoint

    directory = tmp_path_factory.mktemp("model") / "tiny"
    write_tiny_checkpoint(directory)
    return directory


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The NVML library that needs no GPU, compiled."""
    need_program("gcc", "gcc libc6-dev")
    return nvml.compile_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[nvml.Host], nvml.FakeNvml]:
    """Gives a described host's GPUs to programs that run with its environment: `fake_nvml(load_host("v100x2"))`."""
    return lambda host: nvml.install(nvml_library, tmp_path_factory.mktemp("nvml-host"), host)


@pytest.fixture(scope="session")
def engine_home(cache: Cache) -> Home:
    """The directories of the engine that is kept between runs."""
    return Home(data=cache.folder("engine"), cache=cache.folder("onecat"))


@pytest.fixture(scope="session")
def engine_runtime(engine_home: Home) -> NativeRuntime:
    """A native vLLM for the CPU; the first time some minutes, about 1 GB of download and 4.5 GB of disk."""
    from onecat.config import load_profile
    from onecat.images import ensure_runtime
    from onecat.images.native import MARKER

    runtime = ensure_runtime(load_profile("cpu"), engine_home, lambda line: print(line, file=sys.stderr))
    # Each change of the patches makes another one of 2 GB.
    for marker in engine_home.runtimes.glob(f"*/{MARKER}"):
        if marker.parent != runtime.directory and time.time() - marker.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(marker.parent)
    return runtime


@pytest.fixture(scope="session")
def vllm_archive(cache: Cache) -> Path:
    """The archive of the engine's source that the patch series is made for; the first time 39 MB of download."""
    return sources.fetch_vllm_archive(cache)


@pytest.fixture(scope="session")
def vllm_source(vllm_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source as upstream released it; read it, copy what is to be changed."""
    from onecat.patching import unpack

    return unpack(vllm_archive, sources.vllm_series().upstream, tmp_path_factory.mktemp("vllm-source"))


@pytest.fixture
def onecat_with_engine(onecat: command.Onecat, engine_home: Home, engine_runtime: NativeRuntime) -> command.Onecat:
    """The real command with an ONECAT_HOME of its own, but for the native runtimes: those are kept between runs."""
    onecat.home.mkdir()
    (onecat.home / "runtimes").symlink_to(engine_home.runtimes)
    return onecat


@pytest.fixture(scope="session")
def served(
    engine_home: Home, engine_runtime: NativeRuntime, nginx: str, cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """The small model on a real vLLM behind an nginx of its own. One for all tests of a session, for 2 cores carry no
    two: the testbed's tests go one by one (scripts/test.sh), never over pytest-xdist's workers."""
    from onecat.resources import small_model
    from tests.testbed.served import serving

    folder = tmp_path_factory.mktemp("served")
    home = folder / "onecat-home"
    home.mkdir()
    (home / "runtimes").symlink_to(engine_home.runtimes)
    runner = command.Onecat(home=home, cache=cache.folder("onecat"), docker_host="unix:///nonexistent/docker.sock")
    with serving(runner, small_model(), folder) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def cpu_image(base_image: str, docker_daemon: docker_daemons.DockerDaemon, engine_home: Home) -> str:
    """The tag of the image that `onecat build --profile cpu` makes in the testbed's dockerd."""
    build = command.Onecat(home=engine_home.data, cache=engine_home.cache, docker_host=docker_daemon.host)
    arguments = ("build", "--profile", "cpu", "--runtime", "container", "--json")
    document = build(*arguments, timeout=1800).expect(0).json()
    return str(document["tag"])


@pytest.fixture(scope="session")
def patched_runtime(
    engine_runtime: NativeRuntime, vllm_archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> PatchedRuntime:
    """The native vLLM for the CPU with the Python files of our series, and its plugin."""
    from tests.testbed import patched_runtime, sources

    folder = tmp_path_factory.mktemp("patched-runtime") / "packages"
    return patched_runtime.lay_out(engine_runtime, vllm_archive, sources.vllm_series(), folder, patched=True)
