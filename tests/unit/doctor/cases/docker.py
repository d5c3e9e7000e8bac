"""Docker, the container toolkit and containers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.doctor import Settings
from onecat.facts import ContainerToolkit, EngineEnvironment, Facts, Note, Tools
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, HEALTHY, NOTHING_KNOWN, with_docker
from tests.unit.doctor.host_examples import KNOWN, TOOLKIT, container, docker, known, system, toolkit

NATIVE = Settings(runtime="native")
NO_TOOLKIT = ContainerToolkit(specifications=())
OLD = replace(TOOLKIT, version="1.5.1")
WITHOUT_TOOLKIT = replace(docker(runtimes=("runc",), cdi_devices=()), container_toolkit=NO_TOOLKIT)
ROOTLESS = ("name=seccomp,profile=builtin", "name=rootless")
NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"


def specification(**changes: Any) -> Facts:
    assert TOOLKIT.specifications is not None
    return toolkit(specifications=(replace(TOOLKIT.specifications[0], **changes),))


def without_links(mode: str = "auto") -> Facts:
    assert KNOWN.nvidia is not None
    facts = replace(docker(cgroup_driver="systemd"), nvidia=replace(KNOWN.nvidia, dev_char_links=False))
    return replace(facts, container_toolkit=replace(TOOLKIT, mode=mode))


def without_uvm(container: bool) -> Facts:
    assert KNOWN.nvidia is not None
    return replace(system(container=container), nvidia=replace(KNOWN.nvidia, device_files=("/dev/nvidia0",)))


UNREADABLE = specification(readable=False, devices=(), driver_version=None)

CASES: list[Case] = [
    case("docker.daemon", "pass", "Docker 28.5.1 answers", HEALTHY),
    case("docker.daemon", "pass", "Docker 28.5.1 answers", with_docker(api_version="1.41")),
    case("docker.daemon", "fail", "is not installed", with_docker(state="absent")),
    case("docker.daemon", "fail", "No Docker daemon answers", with_docker(state="unreachable")),
    case("docker.daemon", "fail", "refuses the user operator", with_docker(state="forbidden")),
    case("docker.daemon", "info", "servers can run natively only", with_docker(state="absent"), CPU),
    case("docker.daemon", "info", "no containers", with_docker(state="absent"), None),
    case("docker.daemon", "fail", "is not installed", with_docker(state="absent"), CPU, Settings(runtime="container")),
    case("docker.daemon", "skip", "runs natively", with_docker(state="absent"), CPU, NATIVE),
    case("docker.daemon", "skip", "no Docker facts", NOTHING_KNOWN),
    case(
        "docker.daemon",
        "fail",
        "does not answer",
        replace(HEALTHY, docker=None, notes=(Note("docker", "timeout", "no answer within 10 s"),)),
    ),
    case("docker.version", "pass", "28.5.1 is new enough", KNOWN),
    case("docker.version", "warn", "too old for onecat's containers: API 1.40", with_docker(api_version="1.40")),
    case("docker.version", "warn", "too old for onecat's", docker(server_version="19.03.15", api_version=None)),
    case("docker.version", "fail", "cannot give GPUs", docker(server_version="18.09.7", api_version="1.39")),
    case("docker.version", "warn", "cannot give GPUs", docker(server_version="18.09.7", api_version="1.39"), None),
    case("docker.version", "skip", "is not known", docker(server_version=None, api_version=None)),
    case("docker.version", "skip", "is not installed", with_docker(state="absent")),
    case("docker.storage-driver", "pass", "overlay2", KNOWN),
    case("docker.storage-driver", "warn", "whole copy", docker(storage_driver="vfs")),
    case("docker.storage-driver", "skip", "refuses this user", docker(state="forbidden")),
    case("docker.log-rotation", "pass", "end at 50m", KNOWN),
    case("docker.log-rotation", "pass", "logs to local", docker(logging_driver="local")),
    case("docker.log-rotation", "info", "grow without end", docker(log_options=())),
    case("docker.log-rotation", "skip", "could not be read", docker(log_options=None)),
    case("docker.compose", "pass", "Compose 2.40.0", KNOWN),
    case("docker.compose", "pass", "Compose v2.40.0", docker(compose_version="v2.40.0")),
    case("docker.compose", "warn", "Compose 1.17.1 refuses", docker(compose_version="1.17.1")),
    case(
        "docker.compose",
        "info",
        "podman-compose",
        known(docker=None, tools=Tools(paths=(("podman-compose", "/bin/x"),))),
    ),
    case("docker.compose", "skip", "there is no Compose", HEALTHY),
    # --- the container toolkit
    case("docker.toolkit", "pass", "toolkit 1.17.8 is installed", KNOWN),
    case("docker.toolkit", "pass", "CDI describes", replace(docker(runtimes=("runc",)), container_toolkit=NO_TOOLKIT)),
    case("docker.toolkit", "fail", "containers get no GPU", WITHOUT_TOOLKIT),
    case("docker.toolkit", "info", "containers get no GPU", WITHOUT_TOOLKIT, None),
    case("docker.toolkit", "skip", "is not known", HEALTHY),
    case("docker.toolkit", "skip", "uses no NVIDIA GPU", WITHOUT_TOOLKIT, CPU),
    case("docker.toolkit-version", "pass", "1.17.8", KNOWN),
    case("docker.toolkit-version", "pass", "1.20.0-1", toolkit(version="1.20.0-1")),
    case("docker.toolkit-version", "warn", "1.17.7 lets a crafted image", toolkit(version="1.17.7")),
    case("docker.toolkit-version", "skip", "is not known", HEALTHY),
    case("docker.toolkit-cgroups", "pass", "version 2 are known", KNOWN),
    case("docker.toolkit-cgroups", "fail", "toolkit 1.5.1 does not know", toolkit(version="1.5.1")),
    case("docker.toolkit-cgroups", "pass", "version 1", replace(docker(cgroup_version="1"), container_toolkit=OLD)),
    case("docker.toolkit-cgroups", "skip", "is not known", docker(cgroup_version=None)),
    case("docker.rootless", "pass", "runs as root", KNOWN),
    case("docker.rootless", "pass", "GPUs through CDI", docker(security_options=ROOTLESS)),
    case("docker.rootless", "fail", "cannot give GPUs", docker(security_options=ROOTLESS, cdi_devices=())),
    case(
        "docker.rootless",
        "pass",
        "leaves control groups alone",
        replace(docker(security_options=ROOTLESS, cdi_devices=()), container_toolkit=replace(TOOLKIT, no_cgroups=True)),
    ),
    case(
        "docker.rootless",
        "skip",
        "settings are not known",
        replace(docker(security_options=ROOTLESS, cdi_devices=()), container_toolkit=None),
    ),
    case("docker.cdi", "pass", "fits driver 580.95.05", KNOWN),
    case("docker.cdi", "warn", "was made for driver 535.129.03", specification(driver_version="535.129.03")),
    case("docker.cdi", "info", "cannot be read", UNREADABLE),
    case("docker.cdi", "warn", "cannot be read", replace(UNREADABLE, tools=Tools((("podman", "/usr/bin/podman"),)))),
    case("docker.cdi", "skip", "does not need one", toolkit(specifications=())),
    case("docker.cdi", "skip", "does not need one", specification(path="/etc/cdi/x.yaml", devices=("x.org/a=b",))),
    case("docker.cdi", "skip", "are CDI files", HEALTHY),
    case("docker.device-links", "pass", "itself (cgroupfs)", KNOWN),
    case("docker.device-links", "pass", "/dev/char links", docker(cgroup_driver="systemd")),
    case("docker.device-links", "warn", "lose their GPUs", without_links()),
    case("docker.device-links", "pass", "through CDI", without_links(mode="cdi")),
    case("docker.device-links", "skip", "is not known", HEALTHY),
    case("docker.uvm-device", "pass", "is there", KNOWN),
    case("docker.uvm-device", "info", "not there yet", without_uvm(container=False)),
    case("docker.uvm-device", "fail", "CUDA does not work", without_uvm(container=True)),
    case("docker.uvm-device", "skip", "are not known", HEALTHY),
    # --- containers
    case("docker.shared-memory", "pass", "No container", KNOWN),
    case("docker.shared-memory", "warn", "vllm has GPUs and 64 MiB", container(shm_size=64 << 20)),
    case("docker.shared-memory", "pass", "No container", container(shm_size=64 << 20, image="nvidia/dcgm-exporter:4")),
    case("docker.shared-memory", "pass", "No container", container(shm_size=None, ipc_mode="host")),
    case("docker.shared-memory", "pass", "No container", container(shm_size=64 << 20, gpus=False)),
    case("docker.shared-memory", "pass", "No container", container(shm_size=64 << 20, state="exited")),
    case("docker.shared-memory", "skip", "were not listed", HEALTHY),
    case("docker.container-devices", "pass", "half of a GPU", KNOWN),
    case(
        "docker.container-devices",
        "warn",
        "/dev/nvidia-uvm",
        container(device_paths=("/dev/nvidia0", "/dev/nvidiactl")),
    ),
    case("docker.container-devices", "pass", "", container(device_paths=("/dev/nvidia0",), privileged=True)),
    case("docker.container-devices", "skip", "were not listed", HEALTHY),
    case("docker.privileged", "pass", "No running container", KNOWN),
    case("docker.privileged", "info", "all rights of the host: vllm", container(privileged=True)),
    case("docker.privileged", "skip", "were not listed", HEALTHY),
    # --- the smoke test
    case("docker.smoke", "pass", "calculates right", known(engines=(EngineEnvironment("vllm:0.27.1", gpu_ok=True),))),
    case(
        "docker.smoke",
        "fail",
        "does not work with these GPUs: The image or wheel holds no code",
        known(engines=(EngineEnvironment("vllm:0.27.1", gpu_ok=False, error=f"RuntimeError: {NO_IMAGE}"),)),
    ),
    case("docker.smoke", "fail", "does not work", known(engines=(EngineEnvironment("vllm:0.27.1", gpu_ok=False),))),
    case("docker.smoke", "skip", "--smoke", known(engines=(EngineEnvironment("host", torch_version="2.10.0"),))),
    case(
        "docker.smoke",
        "skip",
        "not on this host",
        known(notes=(Note("smoke", "absent", "the image is not on this host"),)),
    ),
]
