"""What looks like a fault on healthy machines and is none. Texts are our own, in the programs' forms."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from onecat.config import Profile
from onecat.doctor import examine
from onecat.facts import ContainerToolkit, Docker, EngineEnvironment, Facts, OperatingSystem
from onecat.probe.importers import Capture, parse_capture
from onecat.probe.merging import facts_from_parts
from tests.unit.doctor.examples import A100, HEALTHY, NVIDIA, V100, a100, device, v100, with_gpus, with_nvidia


def read(*texts: str) -> Facts:
    """The facts of one host of which these captures are."""
    captures = [Capture(f"capture-{number}", textwrap.dedent(text)) for number, text in enumerate(texts)]
    return facts_from_parts("host", [part for capture in captures for part in parse_capture(capture)])


def statuses(facts: Facts, check: str, profile: Profile | None = V100) -> set[str]:
    return {finding.status for finding in examine(facts, profile, only=[check])}


def alarms(facts: Facts, profile: Profile | None = None) -> dict[str, str]:
    return {finding.check: finding.status for finding in examine(facts, profile) if finding.status in ("fail", "warn")}


IDLE_V100 = """
    ==============NVSMI LOG==============

    Timestamp                                 : Sun Nov 29 12:00:00 2026
    Driver Version                            : 535.274.02
    CUDA Version                              : 12.2

    Attached GPUs                             : 1
    GPU 00000000:3B:00.0
        Product Name                          : Tesla V100-PCIE-32GB
        Persistence Mode                      : Enabled
        MIG Mode
            Current                           : N/A
            Pending                           : N/A
        GPU UUID                              : GPU-00000000-1111-2222-3333-444444444444
        GSP Firmware Version                  : N/A
        GPU Virtualization Mode
            Virtualization Mode               : None
        PCI
            Bus                               : 0x3B
            Bus Id                            : 00000000:3B:00.0
            GPU Link Info
                PCIe Generation
                    Max                       : 3
                    Current                   : 1
                Link Width
                    Max                       : 16x
                    Current                   : 16x
            Replays Since Reset               : 0
        Performance State                     : P8
        Clocks Throttle Reasons
            Idle                              : Active
            Applications Clocks Setting       : Not Active
            SW Power Cap                      : Not Active
            HW Slowdown                       : Not Active
                HW Thermal Slowdown           : Not Active
                HW Power Brake Slowdown       : Not Active
            Sync Boost                        : Not Active
            SW Thermal Slowdown               : Not Active
            Display Clock Setting             : Not Active
        FB Memory Usage
            Total                             : 32768 MiB
            Reserved                          : 262 MiB
            Used                              : 0 MiB
            Free                              : 32505 MiB
        Compute Mode                          : Default
        Utilization
            Gpu                               : 0 %
            Memory                            : 0 %
        Ecc Mode
            Current                           : Enabled
            Pending                           : Enabled
        ECC Errors
            Volatile
                Single Bit
                    Total                     : 0
                Double Bit
                    Total                     : 0
            Aggregate
                Single Bit
                    Total                     : 0
                Double Bit
                    Total                     : 0
        Retired Pages
            Single Bit ECC                    : 0
            Double Bit ECC                    : 0
            Pending Page Blacklist            : No
        Remapped Rows                         : N/A
        Temperature
            GPU Current Temp                  : 31 C
            GPU Shutdown Temp                 : 90 C
            GPU Slowdown Temp                 : 87 C
            Memory Current Temp               : 29 C
        Clocks
            Graphics                          : 135 MHz
            SM                                : 135 MHz
            Memory                            : 877 MHz
        Max Clocks
            Graphics                          : 1380 MHz
            SM                                : 1380 MHz
            Memory                            : 877 MHz
        Processes                             : None
"""


def test_an_idle_v100_with_an_old_driver_is_healthy() -> None:
    """Generation 1 of 3, 135 MHz, no GSP, no remapped rows and driver 535 are how such a host looks."""
    facts = read(IDLE_V100)
    assert alarms(facts) == {}
    assert alarms(facts, V100) == {"gpu.count": "fail"}
    assert statuses(facts, "pcie.link-width") == {"pass"}
    assert statuses(facts, "gpu.retired-pages") == {"pass"}
    assert statuses(facts, "gpu.row-remapping") == {"skip"}


@pytest.mark.parametrize(
    ("as_printed", "broken", "check"),
    [
        ("Current                   : 16x", "Current                   : 4x", "pcie.link-width"),
        ("Double Bit\n                    Total                     : 0", "Double Bit\n                    Total"
         "                     : 3", "gpu.ecc-errors"),
        ("Pending Page Blacklist            : No", "Pending Page Blacklist            : Yes", "gpu.retired-pages"),
        ("HW Thermal Slowdown           : Not Active", "HW Thermal Slowdown           : Active", "gpu.slowdown"),
        ("GPU Current Temp                  : 31 C", "GPU Current Temp                  : 89 C", "gpu.temperature"),
    ],
)  # fmt: skip
def test_the_same_text_with_one_real_fault_is_not_silent(as_printed: str, broken: str, check: str) -> None:
    assert as_printed in IDLE_V100
    assert set(alarms(read(IDLE_V100.replace(as_printed, broken)))) == {check}


def test_the_link_generation_is_not_judged_while_the_gpu_idles() -> None:
    idle = v100(0, pcie_generation_current=1, performance_state=8, utilization_percent=0)
    assert statuses(with_gpus(idle), "pcie.generation") <= {"info", "skip", "pass"}


def test_no_gsp_firmware_is_said_of_volta() -> None:
    assert not [
        finding
        for finding in examine(read(IDLE_V100), V100)
        if finding.status != "skip" and "gsp" in " ".join([finding.title, *finding.fix]).lower()
    ]


def test_row_remapping_is_not_missed_on_cards_that_retire_pages_nor_the_other_way_round() -> None:
    assert statuses(with_gpus(v100(0), v100(1)), "gpu.row-remapping") == {"skip"}
    ampere = with_gpus(a100(0), a100(1))
    assert statuses(ampere, "gpu.retired-pages", A100) == {"skip"}
    assert statuses(ampere, "gpu.row-remapping", A100) == {"pass"}


def test_a_numa_node_that_the_firmware_does_not_tell_is_no_fault() -> None:
    unknown = with_nvidia(pci_devices=(device(0, numa_node=-1), device(1, numa_node=-1)))
    assert statuses(unknown, "topology.numa") == {"skip"}


def test_gpus_come_by_the_toolkit_without_a_runtime_entry() -> None:
    docker = Docker("reachable", runtimes=("io.containerd.runc.v2", "runc"), default_runtime="runc")
    facts = replace(HEALTHY, docker=docker, container_toolkit=ContainerToolkit(version="1.17.8"))
    assert statuses(facts, "docker.toolkit") == {"pass"}


@pytest.mark.parametrize("version", ["535.54.03", "535.183.01", "535.288.01"])
def test_driver_535_runs_volta(version: str) -> None:
    versions = ("driver_version", "library_version", "cuda_library_version")
    modules = ("kernel_module_version", "kernel_module_file_version")
    facts = with_nvidia(**dict.fromkeys([*versions, *modules], version))
    assert not [check for check in alarms(facts, V100) if check.startswith("driver.")]


def test_a_memory_clock_of_877_mhz_is_the_only_one_that_a_v100_has() -> None:
    assert statuses(with_gpus(v100(0, memory_clock_mhz=877, memory_clock_max_mhz=877)), "gpu.memory-clock") == {"pass"}


TABLE = """
    +---------------------------------------------------------------------------------------+
    | NVIDIA-SMI 535.274.02             Driver Version: 535.274.02   CUDA Version: 12.2     |
    |-----------------------------------------+----------------------+----------------------+
    | GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
    | Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
    |                                         |                      |               MIG M. |
    |=========================================+======================+======================|
    |   0  Tesla V100-PCIE-32GB           On  | 00000000:3B:00.0 Off |                    0 |
    | N/A   31C    P0              24W / 250W |   {used}MiB / 32768MiB |      0%      Default |
    |                                         |                      |                  N/A |
    +-----------------------------------------+----------------------+----------------------+

    +---------------------------------------------------------------------------------------+
    | Processes:                                                                            |
    |  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
    |        ID   ID                                                             Usage      |
    |=======================================================================================|
{processes}    +---------------------------------------------------------------------------------------+
"""
NONE_RUNS = "    |  No running processes found                                                           |\n"


def test_an_empty_process_table_is_not_the_sentence_that_nothing_runs() -> None:
    """Inside a container the table is empty although programs run; only the sentence says that none does."""
    empty = read(TABLE.format(used="    0", processes=""))
    said = read(TABLE.format(used="    0", processes=NONE_RUNS))
    assert empty.nvidia is not None and said.nvidia is not None
    assert (empty.nvidia.gpus[0].process_ids, said.nvidia.gpus[0].process_ids) == (None, ())
    assert statuses(empty, "gpu.stuck-process") == {"skip"}
    assert alarms(empty) == alarms(said) == {}
    held = read(TABLE.format(used="20000", processes=""))
    (finding,) = (each for each in examine(held) if each.status == "warn")
    assert finding.check == "gpu.memory-held"
    assert "No running processes" not in " ".join(finding.evidence)


MIG = """
    +-----------------------------------------------------------------------------------------+
    | NVIDIA-SMI 590.48.01              Driver Version: 590.48.01      CUDA Version: 13.1     |
    +-----------------------------------------+------------------------+----------------------+
    | GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
    | Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
    |                                         |                        |               MIG M. |
    |=========================================+========================+======================|
    |   0  NVIDIA H200                    On  |   00000000:18:00.0 Off |                   On |
    | N/A   33C    P0             95W /  700W |                  [N/A] |     N/A      Default |
    |                                         |                        |              Enabled |
    +-----------------------------------------+------------------------+----------------------+
"""


def test_the_memory_of_a_gpu_in_instances_is_not_known_and_not_none() -> None:
    facts = read(MIG)
    assert alarms(facts) == {}
    assert statuses(facts, "gpu.mig", None) == {"info"}
    assert statuses(facts, "gpu.memory-held", None) == {"skip"}


def test_values_that_were_masked_before_sharing_are_not_known() -> None:
    masked = IDLE_V100.replace("GPU-00000000-1111-2222-3333-444444444444", "GPU-XXXXXXXX-XXXX-XXXX-XXXX-XXXXXXXXXXXX")
    masked = masked.replace("535.274.02", "<redacted>").replace("31 C", "[REDACTED]").replace("32768 MiB", "***")
    facts = read(masked)
    assert alarms(facts) == {}
    assert statuses(facts, "driver.minimum") == {"skip"}


WSL = """
    Collecting environment information...
    PyTorch version: 2.10.0+cu128
    CUDA used to build PyTorch: 12.8
    OS: Ubuntu 24.04.2 LTS (x86_64)
    Python platform: Linux-6.6.87.2-microsoft-standard-WSL2-x86_64-with-glibc2.39
    Is CUDA available: True
    CUDA runtime version: 12.8.93
    GPU models and configuration: GPU 0: Tesla V100-PCIE-32GB
    Nvidia driver version: Could not collect
    HIP runtime version: N/A
"""


def test_what_could_not_be_collected_under_wsl_is_not_known() -> None:
    facts = read(WSL)
    assert alarms(facts) == {}
    assert facts.nvidia is not None and facts.nvidia.driver_version is None
    for check in ("driver.minimum", "driver.versions", "driver.last-branch", "driver.end-of-life"):
        assert statuses(facts, check) == {"skip"}, check


def test_a_gpu_in_wsl_has_no_kernel_module() -> None:
    system = OperatingSystem(id="ubuntu", version_id="24.04", architecture="x86_64", virtualization="wsl")
    nvidia = replace(NVIDIA, kernel_module_version=None, kernel_module_open=None, pci_devices=())
    assert not {check for check in alarms(replace(HEALTHY, operating_system=system, nvidia=nvidia), V100)}


def test_another_nvcc_than_pytorchs_is_no_fault_of_a_host_that_compiles_nothing() -> None:
    engine = EngineEnvironment(
        "host", torch_version="2.10.0+cu126", torch_cuda_version="12.6", compiler_version="11.5.119"
    )
    assert alarms(replace(HEALTHY, engines=(engine,)), V100) == {}


def test_a_bus_listing_alone_does_not_say_that_the_driver_is_missing() -> None:
    facts = read(
        """
        3b:00.0 3D controller [0302]: NVIDIA Corporation GV100GL [Tesla V100 PCIe 32GB] [10de:1db6] (rev a1)
        af:00.0 3D controller [0302]: NVIDIA Corporation GV100GL [Tesla V100 PCIe 32GB] [10de:1db6] (rev a1)
        """
    )
    assert facts.nvidia is not None and len(facts.nvidia.pci_devices) == 2
    for profile in (None, V100):
        assert alarms(facts, profile) == {}
    assert statuses(facts, "driver.loaded") == statuses(facts, "gpu.present") == {"skip"}


def test_a_kernel_log_without_faults_says_nothing() -> None:
    facts = read(
        """
        [    0.000000] Linux version 5.15.0-124-generic (buildd@host) (gcc version 11.4.0)
        [    0.000000] Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro
        [    2.104112] pci 0000:3b:00.0: BAR 7: no space for [io  size 0x1000]
        [    2.104118] pci 0000:3b:00.0: BAR 7: failed to assign [io  size 0x1000]
        [    4.201003] pcieport 0000:3a:00.0: AER: enabled with IRQ 34
        [    9.700441] nvidia: module license 'NVIDIA' taints kernel.
        [    9.811000] nvidia-nvlink: Nvlink Core is being initialized, major device number 234
        [    9.900123] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025
        [   10.004000] [drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:3b:00.0 on minor 1
        [   14.500000] audit: type=1400 audit(1.2:3): apparmor="STATUS" operation="profile_load" name="docker-default"
        """
    )
    assert facts.kernel_events == ()
    assert alarms(facts) == {}
