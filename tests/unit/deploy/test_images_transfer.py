"""Which layers of an image need not be sent, and an archive without them."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.deploy.images_transfer import layers_there, registry_of, without_layers

LAYERS = st.lists(st.sampled_from("abcd"), max_size=6)


@given(wanted=LAYERS, images=st.lists(LAYERS, max_size=3))
def test_a_layer_is_left_out_only_where_it_lies_on_the_same_ones_and_nowhere_above(
    wanted: list[str], images: list[list[str]]
) -> None:
    left_out = layers_there(wanted, images)
    chains = {tuple(image[: count + 1]) for image in images for count in range(len(image))}
    for place, layer in enumerate(wanted):
        if layer in left_out:
            assert tuple(wanted[: place + 1]) in chains
    if wanted and len(set(wanted)) == len(wanted) and wanted in images:
        assert left_out == set(wanted)


@given(
    files=st.dictionaries(st.sampled_from("abcdef"), st.binary(max_size=3000), min_size=1),
    left_out=st.sets(st.sampled_from("abcdef")),
    size=st.integers(min_value=1, max_value=5000),
)
def test_an_archive_without_layers_holds_all_else(files: dict[str, bytes], left_out: set[str], size: int) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo("blobs/sha256")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in files.items():
            member = tarfile.TarInfo(f"blobs/sha256/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        last = tarfile.TarInfo("manifest.json")
        last.size = 2
        archive.addfile(last, io.BytesIO(b"[]"))
    whole = buffer.getvalue()
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    sent = b"".join(without_layers(pieces, frozenset(f"sha256:{name}" for name in left_out)))
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        found = {each.name: archive.extractfile(each) for each in archive}
        expected = {f"blobs/sha256/{name}": data for name, data in files.items() if name not in left_out}
        assert {name: each.read() for name, each in found.items() if each is not None} == {
            **expected,
            "manifest.json": b"[]",
        }
        assert "blobs/sha256" in found


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("onecat/vllm-cpu:0.27.1", None),
        ("vllm", None),
        ("localhost/vllm:1", "localhost"),
        ("registry.lan:5000/team/vllm:1", "registry.lan:5000"),
        ("images.example/vllm", "images.example"),
    ],
)
def test_the_registry_of_an_image_is_the_one_in_its_name(image: str, registry: str | None) -> None:
    assert registry_of(image) == registry
