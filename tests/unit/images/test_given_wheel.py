"""Images of an engine whose wheel a person gives: the hash is a person's too, and nothing is built on another file."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from onecat.config import Profile, load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.images import BuildOptions, PackageOrigins, render_context
from onecat.images.context import Context

ORIGINS = PackageOrigins(torch_index_url="https://torch.example/cu128")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "vllm-1.3.0-cp312-cp312-linux_x86_64.whl"
    path.write_bytes(b"a wheel")
    return path


def pinned(tmp_path: Path, sha256: str) -> Profile:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\nextends: [1cat-v100]\nimage: {{variables: {{wheel_sha256: '{sha256}'}}}}\n")
    return load_profile(str(path))


def refusal(context: Context) -> OnecatError:
    assert context.refusal is not None
    assert context.refusal.code == ExitCode.USAGE
    return context.refusal


def test_the_wheel_whose_hash_was_stated_is_built_on(tmp_path: Path, wheel: Path) -> None:
    sha256 = hashlib.sha256(b"a wheel").hexdigest()
    context = render_context(pinned(tmp_path, sha256.upper()), options=BuildOptions(ORIGINS, wheel=wheel))
    assert context.refusal is None
    assert [(file.name, file.sha256) for file in context.stored] == [(f"wheel/{wheel.name}", sha256)]
    dockerfile = next(file.content for file in context.files if file.name == "Dockerfile").decode()
    assert f"ARG WHEEL_SHA256={sha256}" in dockerfile


def test_another_file_is_refused_with_both_hashes(tmp_path: Path, wheel: Path) -> None:
    error = refusal(render_context(pinned(tmp_path, "ab" * 32), options=BuildOptions(ORIGINS, wheel=wheel)))
    assert hashlib.sha256(b"a wheel").hexdigest() in error.found
    assert "ab" * 32 in str(error.expected)
    assert str(error.where).startswith(f"{tmp_path}/mine.yaml:3:")


def test_without_a_hash_the_lines_that_state_one_are_told(wheel: Path) -> None:
    error = refusal(render_context(load_profile("1cat-v100"), options=BuildOptions(ORIGINS, wheel=wheel)))
    assert "    wheel_sha256: ..." in error.details
    assert "extends: [1cat-v100]" in error.details


def test_without_the_file_it_is_asked_for(tmp_path: Path) -> None:
    error = refusal(render_context(pinned(tmp_path, "ab" * 32), options=BuildOptions(ORIGINS)))
    assert error.found == "the wheel of vllm-1cat 1.3.0 was not given"


def test_a_hash_that_is_none_is_told_at_its_place(tmp_path: Path, wheel: Path) -> None:
    error = refusal(render_context(pinned(tmp_path, "abc"), options=BuildOptions(ORIGINS, wheel=wheel)))
    assert error.found == "image.variables.wheel_sha256 is no SHA-256: abc"
    assert str(error.where).startswith(f"{tmp_path}/mine.yaml:3:")


@pytest.mark.parametrize(("content", "code"), [(b"a wheel", 0), (b"another", 1)])
def test_the_dockerfile_compares_the_wheel_with_its_hash_by_itself(
    tmp_path: Path, wheel: Path, content: bytes, code: int
) -> None:
    """The step of the rendered Dockerfile, run by the shell that Docker would run it by."""
    context = render_context(load_profile("1cat-v100"), options=BuildOptions(ORIGINS, wheel=wheel))
    dockerfile = next(file.content for file in context.files if file.name == "Dockerfile").decode()
    start = dockerfile.index("RUN set -- /wheels")
    step = dockerfile[start + 4 : dockerfile.index("\n\n", start)].replace("/wheels/", f"{tmp_path}/")
    wheel.write_bytes(content)
    environment = {"PATH": "/usr/bin:/bin", "WHEEL_SHA256": hashlib.sha256(b"a wheel").hexdigest()}
    done = subprocess.run(["sh", "-c", step], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert not code or hashlib.sha256(content).hexdigest() in done.stderr


@pytest.mark.parametrize("profile", ["cpu", "h200", "ascend910b"])
def test_a_wheel_is_refused_by_an_image_that_would_not_hold_it(profile: str, wheel: Path) -> None:
    with pytest.raises(OnecatError, match=f"the image of profile {profile} takes no wheel") as raised:
        render_context(load_profile(profile), options=BuildOptions(wheel=wheel))
    assert raised.value.code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vllm-1.3.0-cp312-cp312-linux_x86_64.whl", "is a wheel of vllm 1.3.0"),
        ("vllm_1cat-0.27.1-cp312-cp312-linux_x86_64.whl", "is a wheel of vllm-1cat 0.27.1"),
        ("vllm-0.27.1.dev3-cp312-cp312-linux_x86_64.whl", "is a wheel of vllm 0.27.1.dev3"),
        ("vllm.whl", "is not named as a wheel is"),
    ],
)
def test_a_wheel_of_something_else_does_not_take_the_place_of_compiling(name: str, found: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"a wheel")
    with pytest.raises(OnecatError, match=found) as raised:
        render_context(load_profile("v100x2-pcie"), options=BuildOptions(ORIGINS, wheel=tmp_path / name))
    assert "vllm 0.27.1" in str(raised.value.expected)


@pytest.mark.parametrize("local", ["", "+onecat.sm70", "+mine"])
def test_any_build_of_the_right_version_may_take_the_place_of_compiling(local: str, tmp_path: Path) -> None:
    path = tmp_path / f"vllm-0.27.1{local}-cp312-cp312-linux_x86_64.whl"
    path.write_bytes(b"a wheel")
    context = render_context(load_profile("v100x2-pcie"), options=BuildOptions(ORIGINS, wheel=path))
    assert f"wheel/{path.name}" in [file.name for file in context.stored] and context.source is None


def test_a_wheel_alone_needs_only_the_image_that_it_is_built_on(tmp_path: Path) -> None:
    profile = load_profile("v100x2-pcie")
    assert len(render_context(profile, options=BuildOptions(ORIGINS)).bases) == 2
    alone = render_context(profile, options=BuildOptions(ORIGINS, wheel_only=tmp_path))
    assert alone.bases == (profile.image.variables["build_base"],)
    assert alone.digest == render_context(profile, options=BuildOptions(ORIGINS)).digest
