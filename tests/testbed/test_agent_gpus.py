"""The agent on GPUs: pynvml and ctypes unchanged, over NVML and CUDA libraries that need no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onecat.facts import Facts, Gpu, GpuPair, LoadMeasurement, NvLink, from_json
from onecat.probe.program import program
from tests.testbed.host_tree import HostTree
from tests.testbed.nvml import library as nvml
from tests.testbed.nvml.library import FakeNvml, Host
from tests.unit.probe.test_agent import pythons

Observe = Callable[..., Facts]


@pytest.fixture
def observe(fake_nvml: Callable[[Host], FakeNvml], tmp_path: Path) -> Observe:
    """Runs the agent on a described host."""

    def run(
        host: Host, *options: str, tree: HostTree | None = None, python: str = sys.executable, **environment: str
    ) -> Facts:
        root = (tree or HostTree()).write(tmp_path / "root")
        argv = [python, "-I", "-S", "-", "--root", str(root), *options]
        variables = {**fake_nvml(host).environment, **environment}
        done = subprocess.run(argv, input=program(), capture_output=True, check=True, env=variables, timeout=60)
        assert done.stderr == b""
        return from_json(json.loads(done.stdout))

    return run


def gpus(facts: Facts) -> dict[int, Gpu]:
    assert facts.nvidia is not None
    return {gpu.index: gpu for gpu in facts.nvidia.gpus}


def loads(facts: Facts) -> list[LoadMeasurement]:
    assert facts.nvidia is not None
    return list(facts.nvidia.loads)


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).parent.parent.name)
def test_everything_that_a_v100_tells_is_read(observe: Observe, python: str) -> None:
    facts = observe(nvml.load_host("v100x2"), python=python)
    gpu = gpus(facts)[0]
    assert (gpu.error, gpu.name, gpu.pci_address) == (None, "Tesla V100-PCIE-32GB", "0000:3b:00.0")
    assert (gpu.bar1_total, gpu.bar1_used) == (34359738368, 2621440)
    assert (gpu.temperature_celsius, gpu.temperature_memory_celsius, gpu.temperature_slowdown_celsius) == (34, 33, 87)
    assert (gpu.power_draw_watts, gpu.power_limit_watts, gpu.power_limit_default_watts) == (26.0, 250.0, 250.0)
    assert (gpu.graphics_clock_mhz, gpu.graphics_clock_max_mhz) == (135, 1380)
    assert (gpu.graphics_clock_application_mhz, gpu.graphics_clock_application_default_mhz) == (1230, 1230)
    assert (gpu.memory_clock_mhz, gpu.memory_clock_max_mhz, gpu.memory_clock_application_mhz) == (877, 877, 877)
    assert (gpu.ecc_enabled, gpu.ecc_enabled_pending, gpu.ecc_corrected_aggregate) == (True, True, 0)
    assert (gpu.retired_pages, gpu.retired_pages_pending, gpu.event_reasons) == (0, False, 1)
    assert (gpu.virtualization_mode, gpu.compute_mode, gpu.persistence_mode) == ("none", "default", True)
    assert (gpu.process_ids, gpu.processes) == ((), ())
    # What Volta does not have is not known, and no error.
    assert (gpu.gsp_firmware_version, gpu.mig_enabled, gpu.remapped_rows_pending, gpu.fabric_state) == (None,) * 4
    assert gpu.nvlinks is None
    assert facts.nvidia is not None
    assert facts.nvidia.pairs == (GpuPair(0, 1, "SYS", "ok", "ok"),)
    assert (facts.nvidia.library_version, facts.nvidia.cuda_library_version) == ("580.95.05", "580.95.05")
    assert facts.note("nvml") is None


def test_nvlinks_to_switches_and_the_fabric_are_read(observe: Observe) -> None:
    facts = observe(nvml.load_host("h100x8"))
    assert list(gpus(facts)) == list(range(8))
    gpu = gpus(facts)[7]
    assert (gpu.fabric_state, gpu.fabric_status) == ("completed", "success")
    assert gpu.nvlinks is not None and len(gpu.nvlinks) == 18
    assert gpu.nvlinks[17] == NvLink(17, True, 26.562, 0, 0)
    assert facts.nvidia is not None and len(facts.nvidia.pairs) == 28
    assert {pair.connection for pair in facts.nvidia.pairs} == {"NV18"}


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        (0, 0, (None, None)),
        (1, 0, ("not started", None)),
        (2, 0, ("in progress", None)),
        (3, 0, ("completed", "success")),
        (3, 10, ("completed", "timeout")),
    ],
)
def test_the_fabric_tells_its_state_under_the_new_and_the_old_name(
    observe: Observe, state: int, status: int, expected: tuple[str | None, str | None]
) -> None:
    def old(host: Host) -> None:
        host["devices"][0]["errors"] = {"nvmlDeviceGetGpuFabricInfoV": 13}

    found = gpus(observe(nvml.changed("h100x8", nvml.fabric(state, status), old)))
    assert [(found[index].fabric_state, found[index].fabric_status) for index in (0, 1)] == [expected] * 2


def test_links_between_two_gpus_are_counted_and_broken_ones_are_not(observe: Observe) -> None:
    def break_one(host: Host) -> None:
        for device in host["devices"]:
            device["nvlinks"][2]["active"] = False
        host["devices"][0]["nvlinks"][0].update(replay_errors=3, crc_errors=9)

    facts = observe(nvml.changed("a100x2", break_one))
    links = gpus(facts)[0].nvlinks
    assert links is not None
    assert links[0] == NvLink(0, True, 25.0, 3, 9)
    assert links[2] == NvLink(2, False)
    assert facts.nvidia is not None and facts.nvidia.pairs == (GpuPair(0, 1, "NV3", "ok", "ok"),)


def test_rows_pages_and_mig_are_read(observe: Observe) -> None:
    rows = observe(nvml.changed("a100x2", nvml.rows_remapped(0, pending=True), nvml.rows_remapped(1, failure=True)))
    told = [
        (each.remapped_rows_correctable, each.remapped_rows_uncorrectable, each.remapped_rows_pending)
        for each in gpus(rows).values()
    ]
    assert told == [(0, 1, True), (0, 1, False)]
    assert [each.remapped_rows_failure for each in gpus(rows).values()] == [False, True]


def test_pages_that_wait_for_a_restart_are_read(observe: Observe) -> None:
    gpu = gpus(observe(nvml.changed("v100x2", nvml.pages_retired(1))))[1]
    assert (gpu.retired_pages, gpu.retired_pages_pending, gpu.ecc_uncorrected_aggregate) == (3, True, 1)


def test_a_divided_gpu_tells_its_parts(observe: Observe) -> None:
    gpu = gpus(observe(nvml.changed("h100x8", nvml.divided(3, 5))))[3]
    assert (gpu.mig_enabled, gpu.mig_devices) == (True, 5)


def test_programs_on_a_gpu_have_names_and_memory(observe: Observe) -> None:
    def used(host: Host) -> None:
        host["devices"][0]["processes"] = [{"pid": 4242, "memory": 8 << 30}]
        host["devices"][0]["graphics_processes"] = [{"pid": 900, "memory": 4 << 20}, {"pid": 5151}]

    found = gpus(observe(nvml.changed("v100x2", used), tree=HostTree(processes=((4242, "python3"), (900, "Xorg")))))[0]
    assert found.processes is not None
    assert [(each.pid, each.name, each.memory) for each in found.processes] == [
        (900, "Xorg", 4 << 20),
        (4242, "python3", 8 << 30),
        (5151, None, None),
    ]
    assert found.process_ids == (900, 4242, 5151)


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetNvLinkState"])
def test_one_gpu_of_eight_that_hangs_keeps_no_other_from_being_told(observe: Observe, function: str) -> None:
    started = time.monotonic()
    facts = observe(nvml.changed("h100x8", nvml.hanging(2, function), nvml.lost(5)), "--timeout", "1")
    assert time.monotonic() - started < 4
    found = gpus(facts)
    assert sorted(found) == list(range(8))
    assert [index for index, gpu in found.items() if gpu.error is None] == [0, 1, 3, 4, 6, 7]
    assert found[7].nvlinks is not None and len(found[7].nvlinks) == 18
    assert found[5].error == "GPU is lost"
    doing = "nvmlDeviceGetHandleByIndex" if function.startswith("nvmlDeviceGetHandle") else function
    assert found[2].error == f"no answer within 1 s while in {doing} of GPU 2"
    note = facts.note("nvml")
    assert note is not None
    assert (note.kind, note.text) == ("timeout", found[2].error)
    assert facts.nvidia is not None and facts.nvidia.driver_version == "580.95.05"
    assert len(facts.nvidia.pairs) == 15


def test_what_a_hanging_gpu_said_before_is_kept(observe: Observe) -> None:
    found = gpus(observe(nvml.changed("v100x2", nvml.hanging(0, "nvmlDeviceGetTemperature")), "--timeout", "1"))
    assert (found[0].name, found[0].pci_address) == ("Tesla V100-PCIE-32GB", "0000:3b:00.0")
    assert (found[0].error, found[1].error) == ("no answer within 1 s while in nvmlDeviceGetTemperature of GPU 0", None)


def test_a_library_that_hangs_at_its_start_costs_its_own_time_only(observe: Observe) -> None:
    def hang(host: Host) -> None:
        host["hang"] = ["nvmlInit"]

    facts = observe(nvml.changed("v100x2", hang), "--timeout", "1")
    note = facts.note("nvml")
    assert note is not None
    assert (note.kind, note.text) == ("timeout", "no answer within 1 s while in nvmlInit")
    assert facts.memory is not None and gpus(facts) == {}


def test_a_library_that_crashes_on_one_gpu_costs_that_gpu(observe: Observe) -> None:
    def crash(host: Host) -> None:
        host["devices"][1]["crash"] = ["nvmlDeviceGetRemappedRows"]

    facts = observe(nvml.changed("a100x2", crash))
    error = "died of signal 6 while in nvmlDeviceGetRemappedRows of GPU 1"
    assert [(gpu.name, gpu.error) for gpu in gpus(facts).values()] == [
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA A100-SXM4-40GB", error),
    ]
    note = facts.note("nvml")
    assert note is not None and (note.kind, note.text) == ("error", error)


def test_a_program_that_the_kernel_does_not_let_go_is_told(observe: Observe) -> None:
    def used(host: Host) -> None:
        host["devices"][0]["processes"] = [{"pid": 4242, "memory": 8 << 30}]

    stack = "[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n[<0>] nvidia_ioctl+0x6d/0x840 [nvidia]\n"
    state = (("proc/4242/stat", "4242 (python3) D 1 4242\n"), ("proc/4242/stack", stack))
    tree = HostTree(processes=((4242, "python3"),), other_files=state)
    (process,) = gpus(observe(nvml.changed("v100x2", used), tree=tree))[0].processes or ()
    assert (process.name, process.stuck_in) == ("python3", "os_acquire_rwlock_write")


def test_a_driver_that_refuses_says_why(observe: Observe) -> None:
    def mismatch(host: Host) -> None:
        host["errors"] = {"nvmlInit": 18}

    facts = observe(nvml.changed("v100x2", mismatch))
    assert facts.nvidia is not None
    assert (facts.nvidia.nvml_error, facts.nvidia.gpus) == ("Driver/library version mismatch", ())


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).parent.parent.name)
def test_load_is_measured_gpu_after_gpu(observe: Observe, python: str) -> None:
    def slow(host: Host) -> None:
        host["devices"][0]["copies"]["megabytes_per_second"] = 4000
        host["devices"][1]["copies"]["megabytes_per_second"] = 2000
        host["devices"][1]["under_load"]["pcie"].update(width=4, replay_counter=17)
        host["devices"][1]["under_load"]["event_reasons"] = 0x40

    # Neither hides a GPU from this.
    hidden = {"CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    facts = observe(nvml.changed("v100x2", slow), "--load", python=python, **hidden)
    first, second = loads(facts)
    assert (first.gpu, first.link_generation, first.link_width, first.replays) == (0, 3, 16, 0)
    assert (second.gpu, second.link_generation, second.link_width, second.event_reasons) == (1, 3, 4, 0x40)
    # A busy machine copies more slowly, never faster.
    assert first.gigabytes_per_second is not None and 2.4 < first.gigabytes_per_second < 4.05
    assert second.gigabytes_per_second is not None and 1.2 < second.gigabytes_per_second < 2.05
    assert first.seconds is not None and first.seconds >= 1
    # The other facts are those of the idle GPU.
    assert (gpus(facts)[0].pcie_generation_current, facts.note("load")) == (1, None)


def test_a_driver_that_the_loader_does_not_know_is_found_where_it_lies(
    fake_nvml: Callable[[Host], FakeNvml], tmp_path: Path
) -> None:
    """As on NixOS and on nodes of managed Kubernetes; the place is given, since a test has none of those folders."""
    installed = fake_nvml(nvml.load_host("v100x2"))
    script = f"""if True:
        import json
        from onecat.probe.agent import core
        from onecat.probe.agent.sources import load, nvml
        nvml.OTHER_DIRECTORIES = ("/nowhere", {str(installed.directory)!r})
        machine = core.Machine({str(HostTree().write(tmp_path / "root"))!r}, 2, [])
        document = core.observe(machine, {{"nvml": nvml.nvml}})
        core.merge(document, core.observe(machine, {{"load": load.load}}))
        print(json.dumps({{"schema": core.SCHEMA, "host": "local", **document}}))
    """
    variables = {"FAKE_NVML_JSON": str(installed.description)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=variables)
    facts = from_json(json.loads(done.stdout))
    assert [gpu.name for gpu in gpus(facts).values()] == ["Tesla V100-PCIE-32GB"] * 2
    assert [each.link_generation for each in loads(facts)] == [3, 3]


def test_without_being_asked_nothing_is_put_under_load(observe: Observe) -> None:
    facts = observe(nvml.load_host("v100x2"))
    assert loads(facts) == []
    assert "load" not in facts.sources


def test_load_disturbs_no_work(observe: Observe) -> None:
    def busy(host: Host) -> None:
        two = host["devices"]
        two[0]["graphics_processes"] = [{"pid": 900, "memory": 4 << 20}]
        two[1]["memory"]["used"] = 20 << 30

    first, second = loads(observe(nvml.changed("v100x2", busy), "--load", tree=HostTree(processes=((900, "Xorg"),))))
    assert (first.skipped, first.gigabytes_per_second) == ("in use by Xorg 900", None)
    assert second.skipped == "20480 MiB of it are in use by programs that are not shown here"


def test_load_skips_a_divided_gpu_and_tells_of_a_lost_one(observe: Observe) -> None:
    def two(host: Host) -> None:
        del host["devices"][2:]

    first, second = loads(observe(nvml.changed("h100x8", two, nvml.divided(0, 7), nvml.lost(1)), "--load"))
    assert (first.skipped, second.error) == ("it is divided by MIG", "GPU is lost")


def test_an_error_of_cuda_and_a_hang_cost_one_measurement_each(observe: Observe) -> None:
    def broken(host: Host) -> None:
        host["devices"][0]["hang"] = ["cuMemAlloc_v2"]
        host["devices"][1]["errors"] = {"cuDevicePrimaryCtxRetain": 802}

    facts = observe(nvml.changed("v100x2", broken), "--load", "--timeout", "0.5")
    first, second = loads(facts)
    assert first.error == "no answer within 2 s while in cuMemAlloc of GPU 0"
    assert second.error == "cuDevicePrimaryCtxRetain: CUDA_ERROR_SYSTEM_NOT_READY"
    note = facts.note("load")
    assert note is not None and (note.kind, note.text) == ("timeout", first.error)
    assert len(gpus(facts)) == 2


def test_nothing_is_left_running(observe: Observe, tmp_path: Path) -> None:
    observe(nvml.changed("h100x8", nvml.hanging(2, "nvmlDeviceGetTemperature")), "--timeout", "0.5")
    assert [place for place in Path("/proc").glob("[0-9]*/cmdline") if is_about(tmp_path, place)] == []


def is_about(folder: Path, place: Path) -> bool:
    try:
        return str(folder) in place.read_text()
    except OSError:
        return False
