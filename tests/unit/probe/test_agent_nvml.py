"""What the agent makes of NVML's answers; the calls themselves are tried in tests/testbed/test_agent_gpus.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.probe.agent.core import Machine
from onecat.probe.agent.sources import nvml_gpu

GPUS = {0: {"pci_address": "0000:07:00.0"}, 1: {"pci_address": "0000:0f:00.0"}}
TO_SECOND = [0, "0000:0f:00.0"]
TO_OTHER = [0, "0000:47:00.0"]
TO_SWITCH = [2, "0000:05:00.0"]
TO_HIDDEN_SWITCH = [2, None]


@pytest.mark.parametrize(
    ("ancestor", "nvlink", "links", "connection"),
    [
        (0, 5, {}, "PIX"),
        (10, 5, {}, "PIX"),
        (20, 5, {}, "PXB"),
        (30, 5, {}, "PHB"),
        (40, 5, {}, "NODE"),
        (50, 5, {}, "SYS"),
        (None, None, {}, None),
        (40, 0, {0: [TO_SECOND, TO_SECOND, TO_OTHER], 1: []}, "NV2"),
        (40, None, {0: [TO_SECOND]}, "NV1"),
        (40, 5, {0: [TO_OTHER] * 4, 1: [TO_OTHER] * 4}, "NODE"),
        (50, 0, {0: [TO_SWITCH] * 18, 1: [TO_SWITCH] * 17}, "NV17"),
        (50, 0, {0: [TO_HIDDEN_SWITCH] * 12, 1: [TO_HIDDEN_SWITCH] * 12}, "NV12"),
        (50, 5, {0: [TO_SWITCH] * 18, 1: [TO_SWITCH] * 18}, "SYS"),
        (50, 0, {0: [TO_SWITCH] * 18}, "SYS"),
    ],
)
def test_a_pair_is_named_as_nvidia_smi_names_it(
    ancestor: int | None, nvlink: int | None, links: dict[int, list[list[object]]], connection: str | None
) -> None:
    pair = {"first": 0, "second": 1, "ancestor": ancestor, "read": 0, "write": 1, "nvlink": nvlink}
    assert nvml_gpu.finished_pair(pair, GPUS, links) == {
        "first": 0,
        "second": 1,
        "connection": connection,
        "peer_read": "ok",
        "peer_write": "chipset not supported",
    }


def process(root: Path, state: str, stack: str | None = None, wchan: str | None = None) -> Machine:
    folder = root / "proc/42"
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"42 (python (3) x) {state} 1 42 42 0 -1\n")
    for name, text in (("stack", stack), ("wchan", wchan)):
        if text is not None:
            (folder / name).write_text(text)
    return Machine(str(root), 1, [])


IN_DRIVER = "[<0>] msleep+0x2d/0x40\n[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n[<0>] do_syscall_64+0x3b/0x90\n"
ON_DISK = "[<0>] folio_wait_bit_common+0x13d/0x350\n[<0>] filemap_fault+0x151/0x9f0\n"


@pytest.mark.parametrize(
    ("state", "stack", "wchan", "function"),
    [
        ("D", IN_DRIVER, "msleep", "os_acquire_rwlock_write"),
        ("D", None, "rwsem_down_write_slowpath", "rwsem_down_write_slowpath"),
        ("S", IN_DRIVER, "msleep", None),
        ("R", None, "0", None),
        ("D", ON_DISK, "folio_wait_bit_common", None),
        ("D", None, "io_schedule", None),
        ("D", None, "0", None),
        ("D", None, None, None),
    ],
)
def test_a_process_is_stuck_when_the_kernel_does_not_let_it_go(
    state: str, stack: str | None, wchan: str | None, function: str | None, tmp_path: Path
) -> None:
    assert nvml_gpu.kernel_function(process(tmp_path, state, stack, wchan), 42) == function


def test_a_process_that_has_gone_is_not_stuck(tmp_path: Path) -> None:
    assert nvml_gpu.stuck_in_kernel(Machine(str(tmp_path), 1, []), [42]) == {}
