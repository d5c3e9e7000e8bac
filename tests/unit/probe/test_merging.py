"""How parts become one document."""

from __future__ import annotations

from typing import Any

import pytest

from onecat.facts import SCHEMA, Facts, from_json, to_json
from onecat.probe.merging import facts_from_document, facts_from_parts, merge_parts


def gpus(*parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = merge_parts([{"nvidia": {"gpus": part}} for part in parts])["nvidia"]["gpus"]
    return merged


def test_what_an_earlier_part_says_stays_and_a_later_one_fills_what_is_absent() -> None:
    first = {"memory": {"total": 1, "available": None}, "user": "a"}
    second = {"memory": {"total": 2, "available": 3, "swap_total": 4}, "user": "b", "is_root": False}
    assert merge_parts([first, second]) == {
        "memory": {"total": 1, "available": 3, "swap_total": 4},
        "user": "a",
        "is_root": False,
    }


def test_parts_stay_as_they_are() -> None:
    part = {"nvidia": {"gpus": [{"pci_address": "0000:01:00.0"}]}}
    merge_parts([part, part])
    assert part == {"nvidia": {"gpus": [{"pci_address": "0000:01:00.0"}]}}


def test_gpus_are_the_same_by_address_then_uuid_then_index() -> None:
    assert gpus(
        [{"index": 0, "uuid": "GPU-a", "name": "A"}, {"index": 1, "uuid": "GPU-b", "name": "B"}],
        [{"index": 0, "pci_address": "0000:01:00.0"}, {"uuid": "GPU-b", "pci_address": "0000:02:00.0"}],
        [{"pci_address": "0000:02:00.0", "memory_total": 5}, {"pci_address": "0000:01:00.0", "memory_total": 4}],
    ) == [
        {"index": 0, "uuid": "GPU-a", "name": "A", "pci_address": "0000:01:00.0", "memory_total": 4},
        {"index": 1, "uuid": "GPU-b", "name": "B", "pci_address": "0000:02:00.0", "memory_total": 5},
    ]


def test_gpus_of_different_addresses_are_two_even_with_one_index() -> None:
    two = gpus(
        [{"index": 0, "name": "A", "pci_address": "0000:01:00.0"}], [{"index": 0, "pci_address": "0000:02:00.0"}]
    )
    assert [gpu["pci_address"] for gpu in two] == ["0000:01:00.0", "0000:02:00.0"]


def test_gpus_without_an_index_get_the_free_ones_by_address() -> None:
    merged = gpus([{"pci_address": "0000:af:00.0"}, {"pci_address": "0000:3b:00.0"}, {"index": 0, "name": "A"}])
    assert [(gpu["index"], gpu.get("pci_address")) for gpu in merged] == [
        (0, None),
        (1, "0000:3b:00.0"),
        (2, "0000:af:00.0"),
    ]


def test_a_cut_name_gives_way_to_the_whole_one() -> None:
    assert gpus([{"index": 0, "name": "Tesla V100-PCIE..."}], [{"index": 0, "name": "Tesla V100-PCIE-32GB"}]) == [
        {"index": 0, "name": "Tesla V100-PCIE-32GB"}
    ]


def test_processes_belong_to_one_moment() -> None:
    (gpu,) = gpus([{"index": 0, "processes": [], "process_ids": []}], [{"index": 0, "processes": [{"pid": 1}]}])
    assert (gpu["processes"], gpu["process_ids"]) == ([], [])


def test_kernel_events_add_up_in_one_log_and_not_over_two_readings_of_it() -> None:
    event = {"kind": "xid", "xid": 79, "address": "0000:3b:00.0", "text": "first", "count": 2, "seconds": 5.0}
    other = {**event, "xid": 31}
    merged = merge_parts(
        [
            {"kernel_events": [event]},
            {"kernel_events": [{**event, "count": 1}, {**event, "seconds": 9.0, "text": "x"}, other]},
        ]
    )
    assert merged["kernel_events"] == [{**event, "count": 3, "seconds": 9.0}, other]


def test_corrected_and_fatal_bus_errors_stay_apart() -> None:
    base = {"kind": "pcie-error", "address": "0000:3b:00.0"}
    events = [{**base, "text": f"PCIe Bus Error: severity={word}"} for word in ("Corrected", "Uncorrected (Fatal)")]
    assert merge_parts([{"kernel_events": [each]} for each in events])["kernel_events"] == events


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (
            {"nvidia": {"pairs": [{"first": 0, "second": 1, "connection": "SYS"}]}},
            {"nvidia": {"pairs": [{"first": 0, "second": 1, "peer_read": "ok"}]}},
            {"nvidia": {"pairs": [{"first": 0, "second": 1, "connection": "SYS", "peer_read": "ok"}]}},
        ),
        (
            {"environment": [["A", "1"]]},
            {"environment": [["A", "2"], ["B", "3"]]},
            {"environment": [["A", "1"], ["B", "3"]]},
        ),
        (
            {"docker": {"state": "reachable", "runtimes": ["runc"]}},
            {"docker": {"state": "absent", "runtimes": ["nvidia", "runc"]}},
            {"docker": {"state": "reachable", "runtimes": ["runc", "nvidia"]}},
        ),
        ({"kernel_events": []}, {"user": "a"}, {"kernel_events": [], "user": "a"}),
    ],
)
def test_lists_are_joined_by_what_their_members_are(
    first: dict[str, Any], second: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert merge_parts([first, second]) == expected


def test_what_lspci_adds_goes_to_the_ports_that_sysfs_knows() -> None:
    device = {"address": "0000:3b:00.0", "vendor_id": "10de", "device_id": "1db6"}
    sysfs = {**device, "path": [{"address": "0000:3a:00.0", "link_width_max": 8}]}
    lspci = {**device, "path": [{"address": "0000:3a:00.0", "acs": []}, {"address": "0000:00:01.0"}]}
    (merged,) = merge_parts([{"nvidia": {"pci_devices": [each]}} for each in (sysfs, lspci)])["nvidia"]["pci_devices"]
    assert merged["path"] == [{"address": "0000:3a:00.0", "link_width_max": 8, "acs": []}]


def test_records_that_lack_what_they_need_are_left_out() -> None:
    facts = facts_from_parts("h", [("df", {"filesystems": [{"purpose": "root", "path": "/", "inodes_available": 3}]})])
    assert facts.filesystems == ()
    facts = facts_from_parts("h", [("version", {"docker": {"client_version": "24.0"}})])
    assert facts.docker is None


def test_captures_in_a_document_are_read_and_leave_it() -> None:
    document: dict[str, Any] = {
        **to_json(Facts("gpu1", user="a", sources=("nvml",))),
        "captures": [
            {"name": "dmesg", "text": "[ 1.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, fell\n"},
            {"name": "strange", "text": "nothing of note"},
            "rubbish",
            {"name": "no text"},
        ],
    }
    facts = facts_from_document(document)
    assert (facts.host, facts.user, facts.sources) == ("gpu1", "a", ("nvml", "kernel log"))
    assert facts.kernel_events is not None and [each.xid for each in facts.kernel_events] == [79]
    assert from_json(to_json(facts)) == facts


def test_a_document_without_captures_is_read_as_it_is() -> None:
    facts = Facts("h", kernel_events=())
    assert facts_from_document(to_json(facts)) == facts


@pytest.mark.parametrize(
    "document", [{}, {"schema": SCHEMA}, {"schema": SCHEMA, "host": 1}, {"schema": "x", "host": "h"}]
)
def test_a_document_of_another_form_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="facts|schema"):
        facts_from_document({**document, "captures": []})
