"""Hosts of which everything is known: a healthy one is left in peace, and nothing that can be known breaks a check."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat.config import Profile
from onecat.doctor import Finding, Settings, examine, suitability
from onecat.facts import (
    AppArmor,
    Ascend,
    Clock,
    ContainerToolkit,
    Docker,
    DockerContainer,
    EngineEnvironment,
    Facts,
    KernelEvent,
    Limit,
    Note,
    Npu,
    OperatingSystem,
    SeLinux,
    ServerLog,
    SystemdUnit,
)
from tests.unit.doctor.cases.ascend import HOST
from tests.unit.doctor.cases.ascend import PROFILE as ASCEND
from tests.unit.doctor.cases.confinement import FILE_DENIED, MODULE_DENIED, SMI_DENIED
from tests.unit.doctor.examples import CPU, V100
from tests.unit.doctor.host_examples import KNOWN, docker, known


@pytest.mark.parametrize(
    ("facts", "profile"), [(KNOWN, None), (KNOWN, V100), (KNOWN, CPU), (HOST, None), (HOST, ASCEND)]
)
def test_a_healthy_host_is_left_in_peace(facts: Facts, profile: Profile | None) -> None:
    spoken = [finding for finding in examine(facts, profile) if finding.status in ("fail", "warn")]
    assert spoken == []


def fix_of(facts: Facts, check: str, status: str, profile: Profile | None = None) -> str:
    findings = [finding for finding in examine(facts, profile, only=[check]) if finding.status == status]
    assert len(findings) == 1
    return "\n".join(findings[0].fix)


@pytest.mark.parametrize(
    ("text", "narrow"),
    [
        (SMI_DENIED, "sudo setsebool -P container_use_xserver_devices 1"),
        (SMI_DENIED.replace("xserver_misc_device_t", "dri_device_t"), "sudo setsebool -P container_use_dri_devices 1"),
        (
            SMI_DENIED.replace("nvidia0", "davinci0").replace("xserver_misc", "x"),
            "sudo setsebool -P container_use_devices 1",
        ),
        (SMI_DENIED.replace("xserver_misc_device_t", "device_t"), "sudo restorecon -v /dev/nvidia*"),
        (MODULE_DENIED, "sudo restorecon -Rv /opt/driver/nvidia.ko"),
    ],
)
def test_what_selinux_denies_is_allowed_as_narrowly_as_can_be(text: str, narrow: str) -> None:
    facts = known(selinux=SeLinux("enforcing"), kernel_events=(KernelEvent("selinux-denial", text),))
    fix = fix_of(facts, "selinux.denials", "fail")
    assert narrow in fix
    assert "setenforce" not in fix and "privileged" not in fix


def test_a_policy_without_the_boolean_leaves_the_one_container() -> None:
    selinux = SeLinux("enforcing", booleans=(("container_connect_any", False),))
    facts = known(selinux=selinux, kernel_events=(KernelEvent("selinux-denial", SMI_DENIED),))
    assert "--security-opt label=disable" in fix_of(facts, "selinux.denials", "fail")


@pytest.mark.parametrize(
    ("system", "command"),
    [
        (
            OperatingSystem(id="rocky", id_like=("rhel", "centos", "fedora")),
            "sudo dnf install nvidia-container-toolkit",
        ),
        (
            OperatingSystem(id="linuxmint", id_like=("ubuntu", "debian")),
            "sudo apt-get install nvidia-container-toolkit",
        ),
        (OperatingSystem(id="sles", id_like=("suse",)), "sudo zypper install nvidia-container-toolkit"),
    ],
)
def test_a_fix_is_what_this_distribution_takes(system: OperatingSystem, command: str) -> None:
    facts = replace(
        docker(runtimes=("runc",), cdi_devices=()), container_toolkit=ContainerToolkit(), operating_system=system
    )
    assert command in fix_of(facts, "docker.toolkit", "fail", V100)


TEXT = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "1.17.8",
        "28.5.1",
        "910B4",
        "8.2.RC1",
        "systemd",
        "vllm serve --port 8000",
        "docker run --restart always vllm",
    ]
)
EVENTS = st.builds(
    KernelEvent, kind=st.from_type(KernelEvent).map(lambda each: each.kind), text=TEXT | st.just(SMI_DENIED)
)
ROOMS = {
    "operating_system": st.from_type(OperatingSystem),
    "clock": st.from_type(Clock),
    "limits": st.lists(st.builds(Limit, name=st.sampled_from(["nofile", "memlock"]))).map(tuple),
    "environment": st.lists(
        st.tuples(
            st.sampled_from(["CUDA_VISIBLE_DEVICES", "http_proxy", "NO_PROXY", "LD_LIBRARY_PATH", "NCCL_P2P_DISABLE"]),
            TEXT | st.sampled_from(["GPU-", "MIG-", "0,²", "1", "/stubs", "*"]),
        ),
        max_size=3,
    ).map(tuple),
    "selinux": st.from_type(SeLinux),
    "apparmor": st.from_type(AppArmor),
    "kernel_events": st.lists(EVENTS, max_size=3).map(tuple),
    "docker": st.builds(
        Docker,
        state=st.just("reachable"),
        server_version=TEXT,
        cgroup_version=TEXT,
        containers=st.none()
        | st.lists(st.builds(DockerContainer, name=TEXT, gpus=st.just(True)), max_size=2).map(tuple),
    ),
    "container_toolkit": st.builds(ContainerToolkit, version=st.none() | TEXT),
    "ascend": st.builds(Ascend, npus=st.lists(st.builds(Npu, name=TEXT), max_size=2).map(tuple), cann_version=TEXT),
    "systemd_units": st.lists(
        st.builds(
            SystemdUnit,
            name=TEXT,
            settings=st.lists(st.tuples(st.sampled_from(["ExecStart", "Restart", "KillMode"]), TEXT)).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    "engines": st.lists(st.from_type(EngineEnvironment), max_size=2).map(tuple),
    "notes": st.lists(st.from_type(Note), max_size=2).map(tuple),
}


def faults(findings: tuple[Finding, ...]) -> list[Finding]:
    return [each for each in findings if each.title == "Not checked: onecat has a fault in this check"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.fixed_dictionaries({}, optional=ROOMS), st.sampled_from([None, V100, CPU, ASCEND]))
def test_nothing_that_can_be_known_breaks_a_check(rooms: dict[str, object], profile: Profile | None) -> None:
    assert faults(examine(known(**rooms), profile, Settings(own_names=("vllm",)))) == []


def test_denials_of_files_that_are_no_gpus_are_left_to_others() -> None:
    facts = known(selinux=SeLinux("enforcing"), kernel_events=(KernelEvent("selinux-denial", FILE_DENIED),))
    assert [finding.status for finding in examine(facts, V100, only=["selinux.denials"])] == ["pass"]


def test_what_one_server_or_image_did_says_nothing_of_what_a_host_can_run() -> None:
    failed = known(
        server_logs=(ServerLog("a.log", ("CUDA error: no kernel image is available for execution on the device",)),),
        engines=(EngineEnvironment("vllm:0.27.1", gpu_ok=False),),
    )
    assert {finding.check for finding in examine(failed) if finding.status == "fail"} == {"serving.log", "docker.smoke"}
    assert all(each.runtimes for each in suitability(failed, [CPU, V100]))


def test_what_keeps_gpus_from_working_does_not_keep_a_profile_without_gpus_from_running() -> None:
    denied = known(
        selinux=SeLinux("enforcing"),
        kernel_events=(KernelEvent("selinux-denial", MODULE_DENIED), KernelEvent("selinux-denial", SMI_DENIED)),
    )
    runtimes = {each.profile: each.runtimes for each in suitability(denied, [CPU, V100])}
    assert runtimes == {"cpu": ("native", "container"), "v100x2-pcie": ()}
