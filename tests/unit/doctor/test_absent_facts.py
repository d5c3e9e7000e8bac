"""Facts that are not there: what nobody has looked at cannot be right."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat.config import Profile
from onecat.doctor import Check, Finding, all_checks, examine
from onecat.facts import (
    EngineEnvironment,
    Facts,
    Gpu,
    GpuPair,
    KernelEvent,
    LoadMeasurement,
    Note,
    Nvidia,
    OperatingSystem,
    PciBus,
    PciDevice,
)
from onecat.facts.machine import KernelEventKind
from tests.unit.doctor.examples import A100, COMPLETE, CPU, H200, V100
from tests.unit.doctor.test_every_check import CASES

NAMED = Facts(
    host="gpu1",
    nvidia=Nvidia(
        gpus=(Gpu(0, "Tesla V100-PCIE-32GB"), Gpu(1, "Tesla V100-PCIE-32GB")),
        pci_devices=(PciDevice("0000:3b:00.0", "10de", "1db6"),),
    ),
)
"""Two GPUs of which no more is known than that they answer, and their names."""

KNOWN_FROM_NAMES = {
    "driver.loaded",  # NVML shows GPUs
    "gpu.arch-in-image",  # by the table of products, for what the profile's recipe builds
    "gpu.compute-capability",  # by the table of products
    "gpu.count",
    "gpu.fallen-off-bus",  # they answer
    "gpu.model",
    "gpu.present",
    "gpu.reachable",
}
AREAS = ("cuda.", "driver.", "gpu.", "nvlink.", "pcie.", "topology.")


def passed(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.check for finding in findings if finding.status == "pass" and finding.check.startswith(AREAS)}


@pytest.mark.parametrize("profile", [None, V100, CPU], ids=["no profile", "v100", "cpu"])
def test_two_names_let_nothing_pass_that_needs_more(profile: Profile | None) -> None:
    findings = examine(NAMED, profile)
    assert passed(findings) <= KNOWN_FROM_NAMES
    assert {finding.status for finding in findings} <= {"pass", "skip"}


def optional_fields(record: type[Any]) -> list[str]:
    hints = typing.get_type_hints(record)
    return [
        field.name
        for field in dataclasses.fields(record)
        if typing.get_origin(hints[field.name]) in (typing.Union, types.UnionType)
    ]


@pytest.mark.parametrize("name", optional_fields(Gpu))
def test_without_one_fact_of_the_gpus_the_complete_host_still_has_nothing_wrong(name: str) -> None:
    assert COMPLETE.nvidia is not None
    gpus = tuple(replace(gpu, **{name: None}) for gpu in COMPLETE.nvidia.gpus)
    findings = examine(replace(COMPLETE, nvidia=replace(COMPLETE.nvidia, gpus=gpus)), V100)
    wrong = [each for each in findings if each.status in ("fail", "warn") and each.check.startswith(AREAS)]
    # Without an address a GPU cannot be told from the devices on the bus; nothing else may speak up.
    assert wrong == []


@pytest.mark.parametrize("name", optional_fields(Nvidia))
def test_without_one_fact_of_the_driver_the_complete_host_still_has_nothing_wrong(name: str) -> None:
    assert COMPLETE.nvidia is not None
    findings = examine(replace(COMPLETE, nvidia=replace(COMPLETE.nvidia, **{name: None})), V100)
    assert [each for each in findings if each.status in ("fail", "warn") and each.check.startswith(AREAS)] == []


@pytest.mark.parametrize("name", optional_fields(PciDevice))
def test_without_one_fact_of_the_bus_the_complete_host_still_has_nothing_wrong(name: str) -> None:
    assert COMPLETE.nvidia is not None
    devices = tuple(replace(device, **{name: None}) for device in COMPLETE.nvidia.pci_devices)
    findings = examine(replace(COMPLETE, nvidia=replace(COMPLETE.nvidia, pci_devices=devices)), V100)
    assert [each for each in findings if each.status in ("fail", "warn") and each.check.startswith(AREAS)] == []


EVENTS = st.lists(
    st.builds(
        KernelEvent,
        kind=st.sampled_from(typing.get_args(KernelEventKind)),
        text=st.sampled_from(["NVRM: Xid (PCI:0000:3b:00): 154, (Node Reboot Required)", "severity=Corrected"])
        | st.text(),
        address=st.sampled_from([None, "0000:3b:00.0", "0000:3b:00", "0000:AF:00.0", "", "nonsense"]),
        xid=st.none() | st.integers(0, 200),
    ),
    max_size=3,
)
ENGINES = st.lists(st.from_type(EngineEnvironment), max_size=2)
LOADS = st.lists(st.builds(LoadMeasurement, gpu=st.integers(0, 2), link_generation=st.integers(0, 9)), max_size=2)
SHAKEN = (OperatingSystem, PciBus, Nvidia, Gpu, PciDevice, GpuPair)
CHANGES = {
    record: st.fixed_dictionaries(
        {},
        optional={
            field.name: st.from_type(typing.get_type_hints(record)[field.name])
            for field in dataclasses.fields(record)
            if field.name not in ("gpus", "pairs", "pci_devices", "loads")
        },
    )
    for record in SHAKEN
}


@st.composite
def gpu_hosts(draw: st.DrawFn) -> Facts:
    """The complete host with some of its facts replaced by any other of their type, absent ones too."""
    assert COMPLETE.nvidia is not None and COMPLETE.operating_system is not None and COMPLETE.pci is not None

    def shaken(record: Any) -> Any:
        return replace(record, **draw(CHANGES[type(record)]))

    nvidia = COMPLETE.nvidia
    return replace(
        COMPLETE,
        nvidia=replace(
            shaken(nvidia),
            gpus=tuple(map(shaken, nvidia.gpus)),
            pci_devices=tuple(map(shaken, nvidia.pci_devices)),
            pairs=tuple(map(shaken, nvidia.pairs)),
            loads=tuple(draw(LOADS)),
        ),
        operating_system=shaken(COMPLETE.operating_system),
        pci=shaken(COMPLETE.pci),
        kernel_events=tuple(draw(EVENTS)),
        engines=tuple(draw(ENGINES)),
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(gpu_hosts(), st.sampled_from([None, V100, CPU, A100, H200]))
def test_no_facts_of_a_gpu_host_break_a_check(facts: Facts, profile: Profile | None) -> None:
    title = "Not checked: onecat has a fault in this check"
    assert [each for each in examine(facts, profile) if each.title == title] == []


def with_one_fact_less(value: Any) -> Iterator[Any]:
    """A record with one optional fact missing, anywhere in it; of a list of records the first is looked into."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        optional = set(optional_fields(type(value)))
        for field in dataclasses.fields(value):
            known = getattr(value, field.name)
            if field.name in optional and known is not None:
                yield replace(value, **{field.name: None})
            for less in with_one_fact_less(known):
                yield replace(value, **{field.name: less})
    elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
        for less in with_one_fact_less(value[0]):
            yield (less, *value[1:])


@pytest.mark.parametrize("check", all_checks(), ids=lambda each: each.id)
def test_no_absent_fact_is_told_as_none_or_breaks_a_check(check: Check) -> None:
    spoken = [case for case in CASES if case.check == check.id and case.expected[0][0] in ("fail", "warn", "info")]
    for case in spoken[:2]:
        quoted = str(case.facts.kernel_events)
        for facts in (case.facts, *with_one_fact_less(case.facts)):
            for finding in examine(facts, case.profile, case.settings, only=[check.id]):
                for text in (finding.title, *finding.evidence, *finding.fix):
                    assert not re.search(r"\bNone\b", text) or text in quoted
                    assert "fault in this check" not in text


def test_what_a_kernel_log_without_its_beginning_does_not_show_may_have_been() -> None:
    note = Note("kernel-log", "absent", "the older part of the kernel log, which its ring buffer no longer holds")
    watched = [check.id for check in all_checks() if check.to_pass]
    whole = {each.check: each.status for each in examine(COMPLETE, V100, only=watched)}
    cut = {each.check: each for each in examine(replace(COMPLETE, notes=(note,)), V100, only=watched)}
    assert set(whole.values()) == {"pass"}
    assert {each.status for each in cut.values()} == {"skip"}
    assert cut["gpu.xid"].title == f"Nothing seen, but not all could be: {note.text}"
    seen = KernelEvent("xid", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "0000:3b:00.0", 79)
    told = examine(replace(COMPLETE, notes=(note,), kernel_events=(seen,)), V100, only=["gpu.xid"])
    assert [each.status for each in told] == ["fail"]
