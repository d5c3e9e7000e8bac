"""The docker command that builds, and how its ability is found out."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.errors import OnecatError
from onecat.images.build_request import BuildRequest
from onecat.images.buildkit import Buildkit, build_argv, engine_environment, find_buildkit, lines
from onecat.images.context import Context, ContextFile
from onecat.images.docker_build import choose_builder, without_command
from onecat.images.stored_file import StoredFile

CONTEXT = Context("test", "onecat/x:1", "base:1", ("base:1",), (ContextFile("Dockerfile", b"FROM base:1\n"),))
REQUEST = BuildRequest(CONTEXT, "onecat/x:1", {"b": "2", "a": "1"}, {"https_proxy": "http://user:secret@p:1"})
DOCKER = """\
#!/bin/sh
case "$1" in
version) echo "{version}" ;;
buildx) exit {buildx} ;;
esac
"""


def docker(folder: Path, version: str, buildx: int = 0) -> dict[str, str]:
    """An environment whose docker command answers like one of that version."""
    command = folder / "docker"
    command.write_text(DOCKER.format(version=version, buildx=buildx))
    command.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_the_command_names_arguments_and_shows_no_value() -> None:
    assert build_argv(Buildkit("/usr/bin/docker", "20.10.24", buildx=False), REQUEST) == [
        *("/usr/bin/docker", "build", "--progress", "plain", "--tag", "onecat/x:1", "--network", "none"),
        *("--label", "a=1", "--label", "b=2", "--build-arg", "https_proxy", "-"),
    ]


def test_with_buildx_the_engines_own_builder_makes_an_image_of_the_engine() -> None:
    """Another builder would keep what it made to itself."""
    argv = build_argv(Buildkit("docker", "28.2.2", buildx=True), BuildRequest(CONTEXT, "t:1", target="wheel"))
    assert argv[:6] == ["docker", "buildx", "build", "--builder", "default", "--load"]
    assert argv[argv.index("--target") + 1] == "wheel"


def test_the_environment_is_about_this_engine_alone() -> None:
    given = {"DOCKER_CONTEXT": "other", "BUILDX_BUILDER": "far", "DOCKER_TLS_VERIFY": "1", "PATH": "/bin"}
    assert engine_environment("unix:///x", given) == {
        "PATH": "/bin",
        "DOCKER_HOST": "unix:///x",
        "DOCKER_BUILDKIT": "1",
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    }
    own = {"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs"}
    assert own.items() <= engine_environment("tcp://h:2376", own).items()


def test_a_file_that_has_changed_reaches_no_builder_whole_and_is_told(tmp_path: Path) -> None:
    package, received = tmp_path / "a.whl", tmp_path / "received"
    package.write_bytes(b"x" * 3_000_000)
    taken = StoredFile("origins/a.whl", hashlib.sha256(package.read_bytes()).hexdigest(), 3_000_000, package)
    context = replace(CONTEXT, stored=(taken,))
    environment = docker(tmp_path, "20.10.24")
    (tmp_path / "docker").write_text(f"#!/bin/sh\nexec cat >{received}\n")
    buildkit = Buildkit(str(tmp_path / "docker"), "20.10.24", buildx=False)
    list(lines(buildkit, "unix:///x", BuildRequest(context, "t:1"), print, environment))
    with tarfile.open(received) as archive:
        assert archive.getnames() == ["Dockerfile", "origins/a.whl"]
    package.write_bytes(b"x" * 2_999_999 + b"y")
    with pytest.raises(OnecatError, match=r"origins/a\.whl has changed since the build began"):
        list(lines(buildkit, "unix:///x", BuildRequest(context, "t:1"), print, environment))
    assert received.stat().st_size < 3_000_000


@pytest.mark.parametrize(
    ("version", "buildx", "expected"),
    [("20.10.24+dfsg1", 1, False), ("19.03.5", 1, False), ("23.0.0", 0, True), ("28.2.2", 0, True)],
)
def test_a_docker_command_with_buildkit_is_known(tmp_path: Path, version: str, buildx: int, expected: bool) -> None:
    found = find_buildkit("unix:///x", docker(tmp_path, version, buildx))
    assert found == Buildkit(str(tmp_path / "docker"), version, expected)


@pytest.mark.parametrize(
    ("version", "why"),
    [("28.2.2", "docker 28.2.2 has no buildx component"), ("podman", "does not tell its version")],
)
def test_a_docker_command_without_it_says_why(tmp_path: Path, version: str, why: str) -> None:
    found = find_buildkit("unix:///x", docker(tmp_path, version, 1))
    assert isinstance(found, str) and found.endswith(why)


def test_no_docker_command_is_no_reason_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    builder = choose_builder("auto", "unix:///x")
    assert (builder.name, builder.why) == ("classic", "no BuildKit: there is no docker command")
    with pytest.raises(OnecatError, match="BuildKit cannot be used") as raised:
        choose_builder("buildkit", "unix:///x")
    assert any("--builder classic" in step for step in raised.value.next_steps)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (
            "executor failed running [/bin/sh -c grep 'Killed' x]: exit code: 3",
            "executor failed running ...: exit code: 3",
        ),
        (
            "The command '/bin/sh -c echo \"No space left on device\"' returned a non-zero code: 1",
            "The command ... returned a non-zero code: 1",
        ),
        (
            'failed to solve: process "/bin/sh -c test a = b" did not complete successfully: exit code: 2',
            "failed to solve: process ... did not complete successfully: exit code: 2",
        ),
        ("pull access denied for x", "pull access denied for x"),
    ],
)
def test_the_steps_own_text_is_no_evidence(said: str, kept: str) -> None:
    assert without_command(said) == kept
