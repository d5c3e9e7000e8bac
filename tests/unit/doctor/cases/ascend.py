"""Huawei Ascend NPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.config import Profile, load_profile
from onecat.config.schema import LaunchArgument
from onecat.doctor import Settings, Status
from onecat.facts import Ascend, Facts, Note, Npu, OperatingSystem
from onecat.knowledge.ascend import ascend_table
from tests.unit.doctor.cases.form import DEFAULTS, Case
from tests.unit.doctor.examples import CPU, GIB, HEALTHY, NOTHING_KNOWN, V100, with_hardware

FILES = (
    *ascend_table().device_nodes,
    *ascend_table().driver_files,
    *(names[0] for names in ascend_table().environment_scripts),
    "/dev/davinci0",
    "/dev/davinci1",
)
NPU = Npu(0, "910B4", health="OK", hbm_total=32 * GIB, hbm_used=3 * GIB, process_ids=())
ASCEND = Ascend(
    npu_smi_version="25.0.rc1",
    driver_version="25.0.rc1",
    cann_version="8.2.RC1",
    pci_devices=("0000:01:00.0", "0000:02:00.0"),
    files=FILES,
    npus=(NPU, replace(NPU, index=1)),
)
HOST = Facts(
    host="npu1",
    collected_at="2026-11-29T12:00:00Z",
    operating_system=OperatingSystem(id="openEuler", version_id="22.03", architecture="aarch64"),
    ascend=ASCEND,
)


def on(profile: Profile, version: str, *arguments: tuple[str, str]) -> Profile:
    """A profile for Ascend with another release, or with flags that the shipped one does not have."""
    ascend = with_hardware(profile, accelerator="ascend")
    engine = ascend.engine.model_copy(update={"name": "vllm-ascend", "version": version})
    args = tuple(LaunchArgument(arg=name, value=value, why="a test", source=None) for name, value in arguments)
    return ascend.model_copy(update={"engine": engine, "launch": ascend.launch.model_copy(update={"args": args})})


SHIPPED = load_profile("ascend910b")
PROFILE = on(CPU, "0.9.1")
FP8 = on(CPU, "0.9.1", ("quantization", "fp8"))
NATIVE = Settings(runtime="native")
CONTAINER = Settings(runtime="container")


def ascend(**changes: Any) -> Facts:
    return replace(HOST, ascend=replace(ASCEND, **changes))


def npu(**changes: Any) -> Facts:
    return ascend(npus=(replace(NPU, **changes),))


def without(*paths: str) -> Facts:
    return ascend(files=tuple(path for path in FILES if path not in paths))


HUNG = replace(
    HOST,
    ascend=Ascend(pci_devices=("0000:01:00.0",), files=FILES),
    notes=(Note("ascend", "timeout", "no answer within 8 s while running npu-smi info"),),
)
HUNG_WITH_TWO = replace(HUNG, ascend=Ascend(pci_devices=("0000:01:00.0", "0000:02:00.0"), files=FILES))
NO_DRIVER = ascend(npus=(), npu_smi_version=None, files=())


def case(
    check: str, status: Status, title: str, facts: Facts, profile: Profile | None = None, settings: Settings = DEFAULTS
) -> Case:
    """One finding, judged for no profile unless one is given."""
    return Case(check, ((status, title),), facts, profile, settings)


CASES: list[Case] = [
    case("ascend.npu-smi", "pass", "2 NPUs (npu-smi 25.0.rc1)", HOST),
    case("ascend.npu-smi", "fail", "driver is not installed", NO_DRIVER),
    case("ascend.npu-smi", "fail", "shows no NPU", ascend(npus=())),
    case("ascend.npu-smi", "fail", "hangs", HUNG),
    case("ascend.npu-smi", "skip", "there is no Ascend NPU", HEALTHY),
    case("ascend.npu-smi", "skip", "no Ascend facts", NOTHING_KNOWN, PROFILE),
    case("ascend.npu-smi", "skip", "uses no Ascend NPU", NO_DRIVER, V100),
    case("ascend.present", "pass", "2 NPUs, 1 needed", HOST, SHIPPED),
    case("ascend.present", "pass", "2 NPUs, 1 needed", HUNG_WITH_TWO, SHIPPED),
    case("ascend.present", "fail", "No Ascend NPU was found", replace(HOST, ascend=Ascend(files=())), SHIPPED),
    case("ascend.present", "fail", "2 NPUs found, 8 needed", HOST, with_hardware(SHIPPED, count=8)),
    case("ascend.present", "skip", "no Ascend facts", NOTHING_KNOWN, SHIPPED),
    case("ascend.present", "skip", "no profile was chosen", HOST),
    case("ascend.present", "skip", "uses no Ascend NPU", HOST, V100),
    case("ascend.chip", "pass", "910B4 is Atlas A2", HOST),
    case("ascend.chip", "fail", "does not run on 910ProB", npu(name="910ProB")),
    case("ascend.chip", "skip", "Ascend910 says too little", npu(name="Ascend910")),
    case("ascend.chip", "skip", "are not known", ascend(npus=())),
    case("ascend.devices", "pass", "2 davinci devices", HOST),
    case("ascend.devices", "fail", "/dev/hisi_hdc is missing", without("/dev/hisi_hdc")),
    case("ascend.devices", "fail", "/dev/davinci0 is missing", without("/dev/davinci0", "/dev/davinci1")),
    case("ascend.devices", "warn", "1 davinci device for 2 NPUs", without("/dev/davinci1")),
    case("ascend.devices", "skip", "not known", ascend(files=None)),
    case("ascend.driver-files", "pass", "driver 25.0.rc1", HOST),
    case("ascend.driver-files", "warn", "/usr/local/dcmi", without("/usr/local/dcmi"), None),
    case("ascend.driver-files", "fail", "/usr/local/dcmi", without("/usr/local/dcmi"), PROFILE, CONTAINER),
    case("ascend.driver-files", "skip", "not known", ascend(files=None)),
    case("ascend.cann", "pass", "fits vllm-ascend 0.9.1", HOST, PROFILE, NATIVE),
    case("ascend.cann", "pass", "fits vllm-ascend 0.9.1", HOST, None),
    case("ascend.cann", "warn", "was built with CANN 8.2.RC1", ascend(cann_version="8.0.0"), PROFILE, NATIVE),
    case("ascend.cann", "info", "no release", ascend(cann_version="6.3.RC1"), None),
    case("ascend.cann", "skip", "brings its own", HOST, PROFILE, CONTAINER),
    case("ascend.cann", "skip", "no CANN was found", ascend(cann_version=None), None),
    case("ascend.cann", "skip", "0.8.4 needs is not known", HOST, on(CPU, "0.8.4"), NATIVE),
    case("ascend.environment-scripts", "pass", "are installed", HOST, PROFILE, NATIVE),
    case("ascend.environment-scripts", "fail", "not found", without(FILES[-3]), PROFILE, NATIVE),
    case("ascend.environment-scripts", "skip", "in a container", HOST, PROFILE, CONTAINER),
    case("ascend.health", "pass", "Healthy", npu()),
    case("ascend.health", "warn", "reports: Warning", npu(health="Warning")),
    case("ascend.health", "fail", "reports: Critical", npu(health="Critical")),
    case("ascend.health", "skip", "not known", npu(health=None)),
    case("ascend.memory", "pass", "29 GiB are free", npu()),
    case("ascend.memory", "warn", "held by 1 program", npu(hbm_used=28 * GIB, process_ids=(4711,))),
    case("ascend.memory", "skip", "not known", npu(hbm_used=None)),
    case("ascend.fp8", "fail", "910B4 does not calculate in FP8", HOST, FP8),
    case("ascend.fp8", "pass", "950PR", npu(name="950PR"), FP8),
    case("ascend.fp8", "skip", "nothing in the profile asks", HOST, PROFILE),
    case("ascend.fp8", "skip", "which NPUs", npu(name="Ascend910"), FP8),
    case("ascend.architecture", "pass", "built for aarch64", HOST),
    case(
        "ascend.architecture",
        "fail",
        "not built for riscv64",
        replace(HOST, operating_system=OperatingSystem(architecture="riscv64")),
    ),
    case("ascend.architecture", "skip", "is not known", replace(HOST, operating_system=None)),
]
