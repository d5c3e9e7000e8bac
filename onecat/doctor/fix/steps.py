"""The steps of a fix script, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onecat.doctor.checks.toolkit import SECURITY_FLOOR
from onecat.doctor.fix.situation import Situation
from onecat.doctor.units import version_key

_DRIVER = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/"


@dataclass(frozen=True)
class Step:
    """One thing that a script does unless the machine shows that it is done.

    name: of its template in templates/fix/steps/. checks: whose findings it puts right, named above its commands.
    is_needed: whether it belongs into the script for a host; what the facts do not tell, the script finds out itself.
    """

    name: str
    title: str
    checks: tuple[str, ...]
    is_needed: Callable[[Situation], bool]
    source: tuple[str, ...] = ()


def _needs_docker(situation: Situation) -> bool:
    docker = situation.facts.docker
    return situation.wants_docker and (docker is None or docker.state in ("absent", "unreachable"))


def _wants_gpu_containers(situation: Situation) -> bool:
    return situation.wants_docker and situation.wants_nvidia


def _needs_toolkit(situation: Situation) -> bool:
    toolkit = situation.facts.container_toolkit
    version = toolkit.version if toolkit else None
    is_good = version is not None and version_key(version) >= version_key(SECURITY_FLOOR)
    return _wants_gpu_containers(situation) and not is_good


def _needs_runtime(situation: Situation) -> bool:
    if not _wants_gpu_containers(situation):
        return False
    docker, toolkit = situation.facts.docker, situation.facts.container_toolkit
    is_new = situation.needs_driver or _needs_docker(situation) or _needs_toolkit(situation)
    has_devices = bool(docker and ("nvidia" in docker.runtimes or docker.cdi_devices))
    has_specification = bool(toolkit and toolkit.specifications)
    return is_new or not (has_devices or has_specification) or situation.has("docker.cdi")


def _needs_persistence(situation: Situation) -> bool:
    nvidia = situation.nvidia
    is_off = nvidia.persistence_daemon is False or any(gpu.persistence_mode is False for gpu in nvidia.gpus)
    return situation.wants_nvidia and not situation.is_container and (situation.needs_driver or is_off)


def _needs_fabric_manager(situation: Situation) -> bool:
    # Without a driver nobody can tell what the fabric manager does; on a machine with NVSwitches it is needed.
    is_missing = situation.needs_driver or situation.has("nvlink.fabric-manager")
    return bool(situation.nvidia.nvswitches) and situation.wants_nvidia and is_missing


STEPS: tuple[Step, ...] = (
    Step(
        "nouveau",
        "nouveau leaves the GPUs to NVIDIA's driver",
        ("driver.nouveau",),
        lambda situation: situation.needs_driver,
        (_DRIVER,),
    ),
    Step(
        "driver",
        "The NVIDIA driver, held against upgrades",
        (
            "driver.loaded",
            "driver.minimum",
            "driver.last-branch",
            "driver.kernel-module",
            "driver.gpu-ignored",
            "driver.nvml",
            "gpu.present",
            "gpu.count",
        ),
        lambda situation: situation.needs_driver,
        (_DRIVER + "kernel-modules.html", _DRIVER + "version-locking.html"),
    ),
    Step(
        "secure_boot",
        "Secure Boot lets only signed modules in",
        ("driver.module-refused",),
        lambda situation: situation.needs_driver,
        ("https://wiki.debian.org/SecureBoot", "https://ubuntu.com/blog/how-to-sign-things-for-secure-boot"),
    ),
    Step(
        "reboot",
        "The kernel runs the driver that is installed",
        ("driver.versions",),
        lambda situation: (
            situation.needs_driver
            or (situation.wants_nvidia and not situation.is_container and situation.has("driver.versions"))
        ),
        (_DRIVER,),
    ),
    Step("docker", "Docker", ("docker.daemon",), _needs_docker, ("https://docs.docker.com/engine/install/",)),
    Step(
        "toolkit",
        "The NVIDIA container toolkit",
        ("docker.toolkit", "docker.toolkit-version"),
        _needs_toolkit,
        (_TOOLKIT + "install-guide.html", "https://nvidia.custhelp.com/app/answers/detail/a_id/5659"),
    ),
    Step(
        "runtime",
        "Docker's containers get GPUs",
        ("docker.cdi",),
        _needs_runtime,
        (_TOOLKIT + "install-guide.html", _TOOLKIT + "cdi-support.html"),
    ),
    Step(
        "dev_char_links",
        "Containers keep their GPUs when systemd reloads its units",
        ("docker.device-links",),
        lambda situation: situation.has(
            "docker.device-links",
        ),
        ("https://github.com/NVIDIA/nvidia-docker/issues/1730",),
    ),
    Step(
        "fabric_manager",
        "The fabric manager sets up the NVSwitches",
        ("nvlink.fabric-manager",),
        _needs_fabric_manager,
        ("https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",),
    ),
    Step(
        "persistence",
        "The driver stays loaded while no program uses a GPU",
        ("gpu.persistence",),
        _needs_persistence,
        ("https://docs.nvidia.com/deploy/driver-persistence/",),
    ),
    Step(
        "ascend",
        "The Ascend driver and CANN, by hand",
        ("ascend.npu-smi", "ascend.driver-files", "ascend.devices", "ascend.cann", "ascend.environment-scripts"),
        lambda situation: situation.wants_ascend,
        ("https://docs.vllm.ai/projects/ascend/en/v0.23.0/installation.html",),
    ),
)
