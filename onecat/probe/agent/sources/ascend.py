"""Huawei Ascend NPUs."""

# os.path spares every host the import of pathlib; one broken source must not cost the others.
# ruff: noqa: PTH100, PTH110, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208, BLE001
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import os

from onecat.probe.agent.core import Late

re = Late("re")

ROOT = "/usr/local/Ascend"
FILES = (
    "/dev/davinci_manager",
    "/dev/devmm_svm",
    "/dev/hisi_hdc",
    "/etc/ascend_install.info",
    "/usr/local/bin/npu-smi",
    "/usr/local/dcmi",
    ROOT + "/driver/lib64",
    ROOT + "/driver/version.info",
    ROOT + "/ascend-toolkit/set_env.sh",
    ROOT + "/cann/set_env.sh",
    ROOT + "/nnal/atb/set_env.sh",
)
"""What serving needs of a host: https://github.com/vllm-project/vllm-ascend/blob/main/docs/source/installation.md"""
SMI_SECONDS = 8
VENDOR = "19e5"


def ascend(machine, emit):
    devices = accelerators(machine)
    nodes = ["/dev/" + name for name in machine.list("/dev") if name.startswith("davinci") and name[7:].isdigit()]
    program = machine.find_program("npu-smi")
    files = [path for path in FILES if machine.exists(path)]
    emit(ascend={"pci_devices": devices, "files": files + nodes})
    if not (devices or files or nodes or program):
        return
    emit(
        ascend={
            "driver_version": setting(machine, ROOT + "/driver/version.info", "version"),
            "firmware_version": setting(machine, ROOT + "/firmware/version.info", "version"),
            "cann_version": cann_version(machine),
        }
    )
    if program is not None and machine.is_running:
        emit(doing="running npu-smi info")
        _, output, messages = machine.run([program, "info"], SMI_SECONDS)
        emit(captures=[{"name": "npu-smi info", "text": output + messages}])


def accelerators(machine):
    """Addresses of Huawei's processing accelerators; its network cards and disks have the same vendor."""
    listing = machine.read_or_none("/proc/bus/pci/devices")
    if listing is not None and "\t" + VENDOR not in listing:
        return []
    base = "/sys/bus/pci/devices/"
    return [
        address
        for address in machine.list(base)
        if machine.read_or_none(base + address + "/vendor") == "0x" + VENDOR
        and (machine.read_or_none(base + address + "/class") or "").startswith("0x12")
    ]


def setting(machine, path, name):
    match = re.search(
        r"^" + name + r"\s*=\s*\[?([^\s\]]+)", machine.read_or_none(path) or "", re.MULTILINE | re.IGNORECASE
    )
    return match.group(1) if match else None


def cann_version(machine):
    for folder in (ROOT + "/ascend-toolkit/latest", ROOT + "/cann", ROOT + "/latest"):
        for name in machine.list(folder):
            if name.endswith("-linux"):
                found = setting(machine, folder + "/" + name + "/ascend_toolkit_install.info", "version")
                if found:
                    return found
    real = os.path.basename(os.path.realpath(machine.path(ROOT + "/ascend-toolkit/latest")))
    return real if re.match(r"\d+\.\d", real) else None


SOURCES = {"ascend": ascend}
