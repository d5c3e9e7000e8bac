"""What gives containers NVIDIA's GPUs: the container toolkit, and descriptions of devices (CDI)."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.packages import family
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key
from onecat.facts import ContainerToolkit, Docker

INSTALL_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
CDI_PAGE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/1.20.1/cdi-support.html"
SECURITY_FLOOR = "1.17.8"
"""The first version without CVE-2025-23266."""
CGROUP_2_FLOOR = "1.8"
GENERATE = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
CONFIGURE = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"


def _cdi_gpus(docker: Docker | None, toolkit: ContainerToolkit | None) -> tuple[str, ...]:
    """The names of NVIDIA GPUs for containers: those that Docker knows, else those in readable specifications."""
    named = docker.cdi_devices if docker else ()
    if not named and toolkit is not None:
        named = tuple(device for each in toolkit.specifications or () for device in each.devices)
    return tuple(name for name in named if name.startswith("nvidia.com/gpu="))


def _containers_run_as_user(context: Context) -> bool:
    """Whether the user himself must be able to read CDI files: for a rootless Docker and for Podman."""
    docker, tools = context.facts.docker, context.facts.tools
    rootless = docker is not None and any("rootless" in option for option in docker.security_options)
    return rootless or (tools is not None and tools.path("podman") is not None)


def _is_installed(context: Context) -> bool | None:
    """Whether the toolkit is there, however that shows; None when it is not known."""
    docker, toolkit, tools = context.facts.docker, context.facts.container_toolkit, context.facts.tools
    programs = ("nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime", "nvidia-container-runtime-hook")
    if toolkit is not None and toolkit.version is not None:
        return True
    if docker is not None and "nvidia" in docker.runtimes:
        return True
    if tools is not None and any(tools.path(name) for name in programs):
        return True
    return None if toolkit is None and (tools is None or tools.path("docker") is None) else False


def _install(context: Context) -> tuple[str, ...]:
    commands = {
        "debian": "sudo apt-get install nvidia-container-toolkit",
        "redhat": "sudo dnf install nvidia-container-toolkit",
        "suse": "sudo zypper install nvidia-container-toolkit",
    }
    known = family(context.facts.operating_system)
    command = (commands[known],) if known else ()
    return (f"add NVIDIA's repository as {INSTALL_GUIDE} shows", *command, CONFIGURE)


@check(
    "docker.toolkit",
    title="Containers can have NVIDIA GPUs",
    why="Docker hands GPUs to containers through NVIDIA's container toolkit or through CDI. Without either it says: "
    "could not "
    'select device driver "" with capabilities: [[gpu]]. A "runtimes" entry in daemon.json is not needed for --gpus.',
    fix=(f"install the NVIDIA container toolkit: {INSTALL_GUIDE}", CONFIGURE),
    source=(INSTALL_GUIDE, "https://github.com/AbdBarho/stable-diffusion-webui-docker/issues/423"),
    requires=(requirements.gpu_containers, requirements.docker_reachable),
)
def docker_toolkit(context: Context) -> Iterator[Verdict]:
    """The toolkit's programs, Docker's runtimes and the CDI devices that Docker knows."""
    docker, toolkit = context.facts.docker, context.facts.container_toolkit
    gpus, installed = _cdi_gpus(docker, toolkit), _is_installed(context)
    if installed:
        version = toolkit.version if toolkit else None
        yield Verdict("pass", f"The NVIDIA container toolkit {version or ''} is installed".replace("  ", " "))
    elif gpus:
        yield Verdict("pass", "CDI describes the GPUs for containers", evidence=(", ".join(gpus),))
    elif installed is None:
        reason = context.why_absent("toolkit", "whether the NVIDIA container toolkit is installed is not known")
        yield Verdict("skip", f"Not checked: {reason}")
    else:
        runtimes = ", ".join(docker.runtimes) if docker else ""
        yield Verdict(
            "fail" if context.wants_gpus and context.runtimes == ("container",) else "info",
            "The NVIDIA container toolkit is not installed: containers get no GPU",
            evidence=(
                "no nvidia-ctk, no nvidia-container-cli, no CDI device",
                f"docker info: runtimes {runtimes}",
            ),
            fix=_install(context),
        )


@check(
    "docker.toolkit-version",
    title="The NVIDIA container toolkit has no known hole",
    why="Up to 1.17.7 a crafted image can run code as root on the host (CVE-2025-23266, CVE-2024-0132).",
    fix=("update the toolkit: sudo apt-get install --only-upgrade nvidia-container-toolkit",),
    source=("https://github.com/CVEProject/cvelistV5/blob/main/cves/2025/23xxx/CVE-2025-23266.json",),
    requires=(requirements.gpus_matter, requirements.container_possible, requirements.container_toolkit),
)
def docker_toolkit_version(context: Context) -> Iterator[Verdict]:
    """The version of nvidia-ctk, or of nvidia-container-cli, against the first without a known hole."""
    toolkit = context.facts.container_toolkit
    assert toolkit is not None and toolkit.version is not None
    update = {
        "debian": "sudo apt-get update && sudo apt-get install --only-upgrade nvidia-container-toolkit",
        "redhat": "sudo dnf upgrade nvidia-container-toolkit",
        "suse": "sudo zypper update nvidia-container-toolkit",
    }
    if not version_key(toolkit.version):
        yield Verdict("skip", f"Not checked: {toolkit.version!r} is no version")
    elif version_key(toolkit.version) >= version_key(SECURITY_FLOOR):
        yield Verdict("pass", f"The NVIDIA container toolkit {toolkit.version} has no hole known here")
    else:
        known = family(context.facts.operating_system)
        command = update[known] if known else "update the package nvidia-container-toolkit"
        yield Verdict(
            "warn",
            f"The NVIDIA container toolkit {toolkit.version} lets a crafted image become root on the host",
            evidence=(f"version {toolkit.version}; the first without CVE-2025-23266 is {SECURITY_FLOOR}",),
            fix=(command,),
        )


@check(
    "docker.toolkit-cgroups",
    title="The NVIDIA container toolkit knows this kernel's control groups",
    why="Before 1.8 the toolkit knows control groups of version 1 only and fails on others with: cgroup subsystem "
    "devices not found.",
    fix=("update the package nvidia-container-toolkit to 1.8 or newer",),
    source=("https://github.com/NVIDIA/nvidia-docker/issues/1447", "https://github.com/pop-os/beta/issues/289"),
    requires=(requirements.gpu_containers, requirements.docker_reachable, requirements.container_toolkit),
)
def docker_toolkit_cgroups(context: Context) -> Iterator[Verdict]:
    """The version of control groups that docker info names, and that of the toolkit."""
    docker, toolkit = context.facts.docker, context.facts.container_toolkit
    assert docker is not None and toolkit is not None and toolkit.version is not None
    if docker.cgroup_version is None or not version_key(toolkit.version):
        yield Verdict("skip", "Not checked: the version of control groups is not known")
    elif docker.cgroup_version == "2" and version_key(toolkit.version) < version_key(CGROUP_2_FLOOR):
        yield Verdict(
            "fail" if context.wants_gpus else "warn",
            f"The NVIDIA container toolkit {toolkit.version} does not know control groups of version 2",
            evidence=(f"docker info: Cgroup Version: 2; toolkit {toolkit.version}",),
            fix=("update the package nvidia-container-toolkit to 1.8 or newer",),
        )
    else:
        yield Verdict("pass", f"Control groups of version {docker.cgroup_version} are known to the toolkit")


@check(
    "docker.rootless",
    title="A rootless Docker can give GPUs to containers",
    why="A daemon without root may not change control groups: the toolkit fails unless it is told to leave them alone, "
    "or the GPUs come through CDI.",
    fix=("sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place", f"or through CDI: {GENERATE}"),
    source=(
        "https://pkg.go.dev/github.com/NVIDIA/nvidia-container-toolkit@v1.15.0/cmd/nvidia-ctk",
        "https://github.com/NVIDIA/nvidia-docker/issues/1615",
    ),
    requires=(requirements.gpu_containers, requirements.docker_reachable),
)
def docker_rootless(context: Context) -> Iterator[Verdict]:
    """Docker's security options, the toolkit's no-cgroups setting and the CDI devices."""
    docker, toolkit = context.facts.docker, context.facts.container_toolkit
    assert docker is not None
    if not docker.security_options:
        yield Verdict("skip", "Not checked: Docker's security options are not known")
    elif not any("rootless" in option for option in docker.security_options):
        yield Verdict("pass", "The Docker daemon runs as root")
    elif docker.cdi_devices and _cdi_gpus(docker, toolkit):
        yield Verdict("pass", "Rootless Docker, with GPUs through CDI")
    elif toolkit is None or toolkit.version is None:
        reason = context.why_absent("toolkit", "the toolkit's settings are not known")
        yield Verdict("skip", f"Not checked: {reason}")
    elif toolkit.no_cgroups:
        yield Verdict("pass", "Rootless Docker, and the toolkit leaves control groups alone")
    else:
        yield Verdict(
            "fail" if context.wants_gpus and context.runtimes == ("container",) else "warn",
            "Rootless Docker cannot give GPUs: the toolkit wants to change control groups",
            evidence=("docker info: rootless", "no-cgroups is not set in /etc/nvidia-container-runtime/config.toml"),
            fix=(
                "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place",
                f"or through CDI: {GENERATE}",
            ),
        )


@check(
    "docker.cdi",
    title="The CDI descriptions of the GPUs fit the driver",
    why="A CDI file names the driver's libraries by version. After an update of the driver an old one mounts files "
    "that are "
    'gone; one that its user cannot read ends in "unresolvable CDI devices".',
    fix=(GENERATE, "or: sudo systemctl restart nvidia-cdi-refresh (toolkit 1.18 and newer)"),
    source=(CDI_PAGE, "https://github.com/NVIDIA/nvidia-container-toolkit/issues/146"),
    requires=(requirements.gpu_containers,),
)
def docker_cdi(context: Context) -> Iterator[Verdict]:
    """Every CDI file of NVIDIA's: whether it can be read, and whose libraries it names."""
    toolkit = context.facts.container_toolkit
    if toolkit is None or toolkit.specifications is None:
        reason = context.why_absent("toolkit", "whether there are CDI files is not known")
        yield Verdict("skip", f"Not checked: {reason}")
        return
    loaded = context.nvidia.kernel_module_version or context.nvidia.driver_version
    ours = [
        each
        for each in toolkit.specifications
        if any(name.startswith("nvidia.com/") for name in each.devices) or (not each.devices and "nvidia" in each.path)
    ]
    if not ours:
        yield Verdict("skip", "Not checked: there is no CDI file of NVIDIA's; --gpus does not need one")
    for each in ours:
        if not each.readable:
            yield Verdict(
                "warn" if _containers_run_as_user(context) else "info",
                f"{each.path} cannot be read by this user",
                each.path,
                (f"{each.path}: permission denied",),
                fix=(f"sudo chmod a+r {each.path}",),
            )
        elif each.driver_version is None or loaded is None:
            yield Verdict("skip", "Not checked: which driver it was made for is not known", each.path)
        elif each.driver_version != loaded:
            yield Verdict(
                "warn",
                f"{each.path} was made for driver {each.driver_version}, loaded is {loaded}",
                each.path,
                (f"it names libraries of {each.driver_version}; the loaded driver is {loaded}",),
                fix=(GENERATE.replace("/etc/cdi/nvidia.yaml", each.path),),
            )
        else:
            yield Verdict("pass", f"{each.path} fits driver {loaded}", each.path, (", ".join(each.devices),))


@check(
    "docker.device-links",
    title="Containers keep their GPUs when systemd reloads",
    why="Where systemd manages control groups it sets their device rules anew at each daemon-reload, and looks devices "
    "up in /dev/char. NVIDIA's are not there by themselves: running containers then lose the GPU with: Failed to "
    "initialize NVML: Unknown Error.",
    fix=(
        "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
        "or hand GPUs out through CDI: docker run --device nvidia.com/gpu=all",
        'or "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json',
        "containers that have lost a GPU must be made anew",
    ),
    source=(
        "https://github.com/NVIDIA/nvidia-container-toolkit/issues/251",
        "https://github.com/NVIDIA/nvidia-docker/issues/1730",
    ),
    requires=(requirements.gpu_containers, requirements.docker_reachable),
)
def docker_device_links(context: Context) -> Iterator[Verdict]:
    """Docker's cgroup driver, the toolkit's mode, and the links in /dev/char to the device files of the GPUs."""
    docker, toolkit = context.facts.docker, context.facts.container_toolkit
    assert docker is not None
    if docker.cgroup_driver is None:
        yield Verdict("skip", "Not checked: Docker's cgroup driver is not known")
    elif docker.cgroup_driver != "systemd":
        yield Verdict("pass", f"Docker manages control groups itself ({docker.cgroup_driver})")
    elif toolkit is not None and toolkit.mode == "cdi":
        yield Verdict("pass", "GPUs come through CDI")
    elif context.nvidia.dev_char_links is None:
        yield Verdict("skip", "Not checked: the links in /dev/char are not known")
    elif context.nvidia.dev_char_links:
        yield Verdict("pass", "/dev/char links to the GPUs")
    else:
        yield Verdict(
            "warn",
            "Containers lose their GPUs at the next systemctl daemon-reload",
            evidence=("docker info: Cgroup Driver: systemd", "no /dev/char/195:* links to the device files"),
            fix=(
                "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
                "or hand GPUs out through CDI: docker run --device nvidia.com/gpu=all",
                'or "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json, and restart Docker',
            ),
        )


@check(
    "docker.uvm-device",
    title="CUDA's memory device is there",
    why="nvidia-smi works without /dev/nvidia-uvm, CUDA does not: torch.cuda.is_available() is False then.",
    fix=("sudo nvidia-modprobe -u -c=0", "in a container: start it with --gpus all, or --device /dev/nvidia-uvm"),
    source=(
        "https://github.com/NVIDIA/nvidia-docker/issues/1085",
        "https://github.com/NVIDIA/nvidia-docker/issues/396",
    ),
    requires=(requirements.nvidia_hardware,),
)
def docker_uvm_device(context: Context) -> Iterator[Verdict]:
    """/dev/nvidia-uvm beside the device files of the GPUs. On a host CUDA makes it when it is first used."""
    files = context.nvidia.device_files
    if not files:
        yield Verdict("skip", "Not checked: the device files of the GPUs are not known")
    elif "/dev/nvidia-uvm" in files:
        yield Verdict("pass", "/dev/nvidia-uvm is there")
    elif context.is_container:
        yield Verdict(
            "fail",
            "This container has GPUs without /dev/nvidia-uvm: CUDA does not work in it",
            evidence=(", ".join(files),),
            fix=("start the container anew with --gpus all, or with --device /dev/nvidia-uvm as well",),
        )
    else:
        yield Verdict(
            "info",
            "/dev/nvidia-uvm is not there yet: CUDA makes it at its first use",
            evidence=(", ".join(files),),
            fix=("should CUDA find no device: sudo nvidia-modprobe -u -c=0",),
        )
