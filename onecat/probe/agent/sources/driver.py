"""The NVIDIA driver as its files show it: kernel module, libraries, device files, services and CUDA toolkits."""

# ruff: noqa: PTH112, PTH120
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os

from onecat.probe.agent.core import Late
from onecat.probe.agent.sources import files

re = Late("re")

FABRIC_MANAGER, SWITCH_FILE = "nv-fabricmanager", "/dev/nvidia-nvswitchctl"
LINUX_NAME_LENGTH = 15
"""How much of a program's name /proc keeps."""


def driver(machine, emit):
    module = kernel_module(machine)
    devices = device_files(machine)
    libraries = files.find_library(machine.path, "libnvidia-ml.so.1"), files.find_library(machine.path, "libcuda.so.1")
    facts = {
        "nouveau_loaded": machine.exists("/sys/module/nouveau")
        or "\nnouveau " in "\n" + (machine.read_or_none("/proc/modules") or ""),
        "kernel_module_version": module[0],
        "kernel_module_open": module[1],
        "device_files": devices,
        "dev_char_links": dev_char_links(machine, devices),
    }
    versions = [files.version_of(found) for found in libraries]
    if versions[0]:
        facts["library_version"] = versions[0]
    facts["cuda_library_version"] = versions[1]
    facts["compat_libraries"] = compat_libraries(libraries[1])
    facts["toolkits"] = toolkits(machine)
    emit(nvidia=facts)
    if module[0] or devices or any(libraries):
        facts = {"persistence_daemon": persistence_daemon(machine)}
        facts["kernel_module_file_version"] = kernel_module_file_version(machine)
        emit(nvidia=facts)
        installed = machine.find_program(FABRIC_MANAGER)
        if installed or SWITCH_FILE in devices:
            emit(doing=f"running {FABRIC_MANAGER} --version")
            emit(nvidia={"fabric_manager": fabric_manager(machine, installed)})


def kernel_module(machine):
    """Version of the loaded module and whether it is the open one, None for what is not known."""
    text = machine.read_or_none("/proc/driver/nvidia/version")
    if not text:
        return machine.read_or_none("/sys/module/nvidia/version"), None
    first = text.splitlines()[0]
    match = re.search(r"\b(\d+\.\d+(?:\.\d+)*)\b", first)
    return match.group(1) if match else None, "Open Kernel Module" in first


def kernel_module_file_version(machine):
    """Of the module that the next boot loads: what DKMS has built for this kernel, else what the module's file says."""
    kernel = machine.read_or_none("/proc/sys/kernel/osrelease")
    if not kernel:
        return None
    for package in machine.list("/var/lib/dkms"):
        if package.startswith("nvidia"):
            built = machine.list("/var/lib/dkms/" + package)
            built = [each for each in built if machine.exists(f"/var/lib/dkms/{package}/{each}/{kernel}")]
            if built:
                return built[-1]
    folders = [
        "updates/dkms",
        "updates",
        "extra",
        "extra/nvidia",
        "kernel/drivers/video",
        "kernel/drivers/video/nvidia",
    ]
    folders += [
        "kernel/" + each for each in machine.list(f"/lib/modules/{kernel}/kernel") if each.startswith("nvidia-")
    ]
    for folder in folders:
        path = f"/lib/modules/{kernel}/{folder}/nvidia.ko"
        if machine.exists(path):
            return files.module_version(machine.path(path))
    return None


def device_files(machine):
    """The names of /dev/nvidia*, folders left out."""
    names = ["/dev/" + name for name in machine.list("/dev") if name.startswith("nvidia")]
    return [name for name in names if not os.path.isdir(machine.path(name))]


def dev_char_links(machine, devices):
    """Whether /dev/char links to the GPUs' device files, None without those.

    systemd makes the device rules of containers from these links and takes the GPUs away at a daemon-reload when they
    are missing: https://github.com/NVIDIA/nvidia-container-toolkit/issues/1227.
    """
    numbers = [re.match(r"/dev/nvidia(\d+|ctl)$", name) for name in devices]
    minors = ["255" if number.group(1) == "ctl" else number.group(1) for number in numbers if number]
    if not minors:
        return None
    return all(os.path.lexists(machine.path("/dev/char/195:" + minor)) for minor in minors)


def persistence_daemon(machine):
    """Whether nvidia-persistenced runs."""
    return machine.exists("/var/run/nvidia-persistenced/socket") or is_running(machine, "nvidia-persistenced")


def is_running(machine, program):
    name = program[:LINUX_NAME_LENGTH]
    numbers = (each for each in machine.list("/proc") if each.isdigit())
    return any(machine.read_or_none(f"/proc/{number}/comm") == name for number in numbers)


def compat_libraries(found):
    """Those libraries of CUDA compatibility packages that the loader sees before the driver's own."""
    names = []
    for path, _ in found:
        if not re.search(r"/compat(?:/|$)|/cuda-compat", os.path.dirname(path)):
            break
        names.append(path)
    return names


def toolkits(machine):
    """Path and version of each CUDA toolkit, each once."""
    found = {}  # type: dict[str, tuple[str, str]]
    for name in sorted(machine.list("/usr/local"), key=len, reverse=True):
        path = "/usr/local/" + name
        if name.startswith("cuda") and re.match(r"cuda(-[\d.]+)?$", name) and machine.exists(path + "/bin/nvcc"):
            version = toolkit_version(machine, path)
            if version:
                found.setdefault(os.path.realpath(machine.path(path)), (path, version))
    # A distribution's own package keeps nvcc apart from the rest.
    header = machine.read_or_none("/usr/include/cuda.h") if machine.exists("/usr/bin/nvcc") else None
    match = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", header) if header else None
    if match:
        found["/usr"] = ("/usr", f"{int(match.group(1)) // 1000}.{int(match.group(1)) % 1000 // 10}")
    return sorted(found.values())


def toolkit_version(machine, path):
    text = machine.read_or_none(path + "/version.json") or machine.read_or_none(path + "/version.txt") or ""
    match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"', text) or re.search(
        r"CUDA Version ([\d.]+)", text
    )
    match = match or re.search(r"cuda-([\d.]+)$", path)
    return match.group(1) if match else None


def fabric_manager(machine, installed):
    """The service that sets up NVSwitches, which also runs from a container; its version as it prints it."""
    version = None
    if installed and machine.is_running:
        _, output, messages = machine.run([installed, "--version"])
        match = re.search(r"(\d+\.\d+(?:\.\d+)*)", output + messages)
        version = match.group(1) if match else None
    return {"version": version, "running": is_running(machine, FABRIC_MANAGER)}


SOURCES = {"driver": driver}
