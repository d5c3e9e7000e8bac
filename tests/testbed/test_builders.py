"""BuildKit and the classic builder of a real dockerd: the same image, progress, failures explained, work kept."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.images import BuiltImage, Context, build_image, find_image
from onecat.images.buildkit import Buildkit, find_buildkit
from onecat.images.container import take_wheel
from onecat.images.context import ContextFile
from onecat.images.docker_build import BASE_LABEL, CONTEXT_LABEL, STAGE_LABEL, build_stage
from tests.testbed.command import Onecat
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.testbed


def small_context(tag: str, *instructions: str, base: str, files: tuple[ContextFile, ...] = ()) -> Context:
    """A context that builds in a second: the labels of the real ones, other instructions."""
    head = [f"FROM {base} AS first", f"LABEL {STAGE_LABEL}={tag}"]
    dockerfile = ContextFile("Dockerfile", "\n".join([*head, *instructions, ""]).encode())
    return Context("test", tag, base, (base,), (dockerfile, *files))


def buildkit_path(docker_host: str) -> str:
    """PATH with a docker command first that can build with BuildKit: Docker 23 and later need a component for that."""
    path = os.environ["PATH"]
    for folder in path.split(os.pathsep):
        if isinstance(find_buildkit(docker_host, {"PATH": folder}), Buildkit):
            return os.pathsep.join([folder, path])
    pytest.fail("no docker command of this machine builds with BuildKit: apt-get install docker.io", pytrace=False)


@pytest.fixture(params=["classic", "buildkit"])
def choice(request: pytest.FixtureRequest, docker_daemon: DockerDaemon, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both builders, one after the other."""
    if request.param == "buildkit":
        monkeypatch.setenv("PATH", buildkit_path(docker_daemon.host))
    return request.param


@pytest.fixture
def build(docker_daemon: DockerDaemon, tmp_path: Path, choice: Any) -> Callable[..., BuiltImage]:
    """Builds a context: `build(context, report)`; the log is tmp_path/log."""

    def make(context: Context, report: Callable[[str], None] = lambda line: None) -> BuiltImage:
        return build_image(context, docker_daemon.host, report, tmp_path / "log", choice)

    return make


@pytest.fixture
def unique() -> str:
    """A word that no cache of an earlier run knows."""
    return uuid.uuid4().hex


def command_lines() -> list[list[bytes]]:
    """The arguments of all processes of this machine, those in containers included."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().split(b"\0"))
    return found


def sleeps(mark: str) -> bool:
    return any(line[:2] == [b"sleep", mark.encode()] for line in command_lines())


def containers(docker_client: Any) -> set[str]:
    return {each.id for each in docker_client.containers.list(all=True)}


def test_a_small_build_reports_each_step_and_is_found_again(
    docker_client: Any,
    docker_daemon: DockerDaemon,
    base_image: str,
    unique: str,
    tmp_path: Path,
    choice: Any,
    build: Callable[..., BuiltImage],
) -> None:
    context = small_context(f"onecat-test/small-{choice}:1", f"RUN echo {unique}", base=base_image)
    assert find_image(context, docker_daemon.host) is None
    said: list[str] = []
    image = build(context, said.append)
    try:
        assert any("step" in line and f"RUN echo {unique}"[:40] in line for line in said)
        assert f"image: log {tmp_path / 'log'}" in said
        assert f"\n{unique}" in (tmp_path / "log").read_text() or f" {unique}" in (tmp_path / "log").read_text()
        assert image.builder == choice and image.log == tmp_path / "log"
        assert [step.cached for step in image.steps if unique in step.instruction] == [False]
        labels = docker_client.images.get(context.tag).labels
        assert labels[CONTEXT_LABEL] == context.digest and labels[STAGE_LABEL] == context.tag
        assert labels[BASE_LABEL] == docker_client.images.get(base_image).id
        found = find_image(context, docker_daemon.host)
        assert found is not None and (found.image_id, found.built) == (image.image_id, False)
        assert find_image(small_context(context.tag, "RUN true", base=base_image), docker_daemon.host) is None
    finally:
        docker_client.images.remove(context.tag)


def test_both_builders_make_the_same_image(
    docker_client: Any, docker_daemon: DockerDaemon, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", buildkit_path(docker_daemon.host))
    instructions = ("COPY data /data", 'ENV A="b c"', "USER 10001:10001", 'ENTRYPOINT ["/bin/true"]')
    context = small_context(
        "onecat-test/same:1", *instructions, base=base_image, files=(ContextFile("data", b"x", 0o755),)
    )
    seen = []
    for choice in ("classic", "buildkit"):
        build_image(context, docker_daemon.host, lambda line: None, tmp_path / "log", choice)  # type: ignore[arg-type]
        settings = docker_client.images.get(context.tag).attrs["Config"]
        seen.append({name: settings[name] for name in ("Labels", "Env", "User", "Entrypoint")})
        docker_client.images.remove(context.tag)
    assert seen[0] == seen[1]


def test_a_failed_step_is_explained_and_the_steps_before_it_are_kept(
    docker_client: Any, base_image: str, unique: str, tmp_path: Path, choice: Any, build: Callable[..., BuiltImage]
) -> None:
    before = containers(docker_client)
    tag, works = f"onecat-test/broken-{choice}:1", f"RUN echo {unique} > /made"
    killed = "RUN echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1"
    context = replace(small_context(tag, works, killed, base=base_image), arguments={"MAX_JOBS": "8"})
    with pytest.raises(OnecatError, match="killed a compiler for want of memory; 8 compiler processes") as raised:
        build(context)
    assert raised.value.code is ExitCode.ROLLED_BACK
    assert "g++: fatal error: Killed signal terminated program cc1plus" in raised.value.details
    assert raised.value.next_steps[0] == "onecat build --profile test --max-jobs 4"
    assert str(tmp_path / "log") in str(raised.value.where)
    assert containers(docker_client) == before
    image = build(small_context(tag, works, "RUN true", base=base_image))
    docker_client.images.remove(tag)
    assert [step.cached for step in image.steps if unique in step.instruction] == [True]


def test_an_unknown_failure_shows_its_last_words(
    base_image: str, choice: Any, build: Callable[..., BuiltImage]
) -> None:
    """What a step looks for is no evidence: only what it printed counts."""
    looks = "RUN echo it broke; grep 'No space left on device' /dev/null; exit 3"
    with pytest.raises(OnecatError, match="could not be built: RUN echo it broke") as raised:
        build(small_context(f"onecat-test/unknown-{choice}:1", looks, base=base_image))
    assert raised.value.code is ExitCode.ROLLED_BACK and "it broke" in raised.value.details


def test_what_a_recipes_script_says_is_what_the_user_is_told(
    base_image: str, choice: Any, build: Callable[..., BuiltImage]
) -> None:
    says = "RUN for l in 'found: no nvcc' 'expected: one' 'next: install it'; do echo \"onecat: $l\" >&2; done; exit 1"
    with pytest.raises(OnecatError, match="could not be built: no nvcc") as raised:
        build(small_context(f"onecat-test/words-{choice}:1", says, base=base_image))
    assert (raised.value.expected, raised.value.next_steps) == ("one", ("install it",))


def test_an_interrupted_build_ends_its_step_and_goes_on_from_there(
    docker_client: Any, base_image: str, unique: str, tmp_path: Path, choice: Any, build: Callable[..., BuiltImage]
) -> None:
    before = containers(docker_client)
    mark = f"30{os.getpid()}{len(choice)}"
    tag, works = f"onecat-test/interrupted-{choice}:1", f"RUN echo {unique} > /made"
    said: list[str] = []

    def interrupt(line: str) -> None:
        said.append(line)
        if "RUN sleep" in line:
            wait_until(lambda: sleeps(mark), seconds=30)
            time.sleep(0.5)  # people do not interrupt a step while it starts
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(small_context(tag, works, f"RUN sleep {mark}", base=base_image), interrupt)
    wait_until(lambda: not sleeps(mark), seconds=15)
    assert "interrupted" in said[-1] and "stay in the engine's cache" in said[-1]
    assert containers(docker_client) == before
    image = build(small_context(tag, works, "RUN true", base=base_image))
    docker_client.images.remove(tag)
    assert [step.cached for step in image.steps if unique in step.instruction] == [True]


BUILD_IN_A_PROCESS = """\
import sys
from pathlib import Path
from onecat.images import build_image
from tests.testbed.test_builders import small_context
base, host, log, choice, tag, *instructions = sys.argv[1:]
build_image(small_context(tag, *instructions, base=base), host, lambda line: None, Path(log), choice)
"""


def test_a_build_whose_onecat_was_killed_goes_on_where_it_was(
    docker_client: Any,
    docker_daemon: DockerDaemon,
    base_image: str,
    unique: str,
    tmp_path: Path,
    choice: Any,
    build: Callable[..., BuiltImage],
) -> None:
    mark = f"40{os.getpid()}{len(choice)}"
    tag, works = f"onecat-test/killed-{choice}:1", f"RUN echo {unique} > /made"
    words = [base_image, docker_daemon.host, str(tmp_path / "log"), choice, tag, works, f"RUN sleep {mark}"]
    process = subprocess.Popen([sys.executable, "-c", BUILD_IN_A_PROCESS, *words], cwd=Path(__file__).parents[2])
    wait_until(lambda: sleeps(mark), seconds=30)
    process.kill()
    process.wait()
    wait_until(lambda: not sleeps(mark), seconds=30)
    image = build(small_context(tag, works, "RUN true", base=base_image))
    docker_client.images.remove(tag)
    assert [step.cached for step in image.steps if unique in step.instruction] == [True]


def test_several_stages_leave_one_image(
    docker_client: Any, base_image: str, choice: Any, build: Callable[..., BuiltImage]
) -> None:
    tag = f"onecat-test/stages-{choice}:1"
    lines = ("RUN touch /made", f"FROM {base_image}", f"LABEL {STAGE_LABEL}={tag}", "COPY --from=0 /made /made")
    build(small_context(tag, *lines, base=base_image))
    try:
        assert not docker_client.images.list(filters={"dangling": True, "label": f"{STAGE_LABEL}={tag}"})
    finally:
        docker_client.images.remove(tag)


def test_an_earlier_image_of_the_tag_stays_when_its_stages_go(
    docker_client: Any, base_image: str, choice: Any, build: Callable[..., BuiltImage]
) -> None:
    """A release may still run from it."""
    tag = f"onecat-test/earlier-{choice}:1"
    first, second = (build(small_context(tag, f"RUN echo {number} > /made", base=base_image)) for number in (1, 2))
    assert docker_client.images.get(first.image_id).tags == []
    for image in (second, first):
        docker_client.images.remove(image.image_id)


def test_a_proxys_password_reaches_the_step_and_is_shown_nowhere(
    docker_client: Any, base_image: str, tmp_path: Path, choice: Any, build: Callable[..., BuiltImage]
) -> None:
    secret = f"http://user:pass{os.getpid()}@proxy.example:3128"
    tag = f"onecat-test/argument-{choice}:1"
    context = small_context(tag, f'RUN test "${{https_proxy#*@}}" = proxy.example:3128; : {tmp_path}', base=base_image)
    seen: list[bool] = []

    def look(line: str) -> None:
        if "RUN test" in line:
            seen.append(any(secret.encode() in b" ".join(words) for words in command_lines()))

    build(replace(context, arguments={"https_proxy": secret}), look)
    try:
        assert seen and not any(seen)
        assert secret not in json.dumps(docker_client.api.history(tag))
        assert secret not in (tmp_path / "log").read_text()
    finally:
        docker_client.images.remove(tag)


def test_the_wheel_is_taken_out_of_its_stage(
    docker_client: Any, docker_daemon: DockerDaemon, base_image: str, tmp_path: Path, choice: Any
) -> None:
    name = "engine-1.0-py3-none-any.whl"
    lines = (f"RUN mkdir /wheels && echo content > /wheels/{name}", f"FROM {base_image} AS last", "RUN false")
    context = small_context("onecat-test/wheel:1", *lines, base=base_image)
    tag = f"onecat-test/wheel-{choice}:stage"
    build_stage(context, "first", tag, docker_daemon.host, lambda line: None, tmp_path / "log", choice)
    before = containers(docker_client)
    try:
        assert take_wheel(docker_client.api, tag, tmp_path / "dist") == tmp_path / "dist" / name
    finally:
        docker_client.images.remove(tag)
    assert (tmp_path / "dist" / name).read_text() == "content\n"
    assert [path.name for path in (tmp_path / "dist").iterdir()] == [name]
    assert containers(docker_client) == before


def test_a_log_that_cannot_be_written_is_not_blamed_on_the_engine(
    docker_daemon: DockerDaemon, base_image: str, choice: Any
) -> None:
    context = small_context(f"onecat-test/log-{choice}:1", "RUN true", base=base_image)
    with pytest.raises(OnecatError, match="^the disk is full$") as raised:
        build_image(context, docker_daemon.host, lambda line: None, Path("/dev/full"), choice)
    assert raised.value.where == "/dev" and raised.value.code is ExitCode.NEEDS_PERSON


def test_offline_no_registry_is_asked_for_a_base_image(docker_daemon: DockerDaemon, tmp_path: Path) -> None:
    context = small_context("onecat-test/offline:1", base="onecat-test/nowhere:1")
    said: list[str] = []
    with pytest.raises(OnecatError, match="base image onecat-test/nowhere:1 is not on the Docker engine") as raised:
        build_image(context, docker_daemon.host, said.append, tmp_path / "log", offline=True)
    assert raised.value.code is ExitCode.UNREACHABLE and "no registry was asked" in raised.value.details[0]
    assert not any("pulling" in line for line in said)


PROFILE = """\
name: small
summary: The stock recipe on a base image of this machine
hardware: {{accelerator: none}}
engine: {{name: vllm, version: 0.27.1}}
image: {{recipe: vllm-stock, base: "{base}", tag: "onecat-test/planned:1"}}
launch: {{runtime: container, runtimes: [container]}}
doctor: {{}}
sources: ["https://docs.docker.com/build/"]
"""


@pytest.fixture
def small_profile(base_image: str, tmp_path: Path) -> Path:
    profile = tmp_path / "small.yaml"
    profile.write_text(PROFILE.format(base=base_image))
    return profile


def test_the_command_plans_builds_and_remembers(
    docker_client: Any, onecat_with_docker: Onecat, docker_daemon: DockerDaemon, small_profile: Path
) -> None:
    build = ("build", "--profile", small_profile, "--json")
    path = {"PATH": buildkit_path(docker_daemon.host)}
    planned = onecat_with_docker(*build, "--plan", environment=path).expect(0).json()
    plan = planned["plan"]
    assert planned["schema"] == "onecat.build/1" and planned["result"] == "plan"
    assert plan["builder"] == "buildkit" and plan["up_to_date"] is False and plan["last_seconds"] is None
    told = docker_client.info()
    assert (plan["host"]["memory_bytes"], plan["host"]["cpus"]) == (told["MemTotal"], told["NCPU"])
    assert plan["host"]["data_root"] == told["DockerRootDir"]
    assert 0 < plan["host"]["free_bytes"] < shutil.disk_usage(told["DockerRootDir"]).total
    assert not docker_client.images.list("onecat-test/planned")
    try:
        built = onecat_with_docker(*build, environment=path).expect(0)
        assert built.stderr.index("plan: image onecat-test/planned:1") < built.stderr.index("image: building")
        document = built.json()
        assert document["builder"] == "buildkit" and document["built"] is True
        assert document["steps"] and Path(document["log"]).is_file()
        assert onecat_with_docker(*build, "--builder", "classic").expect(0).json()["built"] is False
        docker_client.images.remove("onecat-test/planned:1")
        again = onecat_with_docker(*build, "--plan", environment=path).expect(0).json()["plan"]
        assert again["up_to_date"] is False and again["last_seconds"] > 0
    finally:
        for image in docker_client.images.list("onecat-test/planned"):
            docker_client.images.remove(image.id, force=True)


def test_buildkit_that_is_asked_for_and_absent_is_told(onecat_with_docker: Onecat, small_profile: Path) -> None:
    refused = onecat_with_docker(
        "build", "--profile", small_profile, "--builder", "buildkit", environment={"PATH": "/nonexistent"}
    ).expect(2)
    assert "BuildKit cannot be used: there is no docker command" in refused.stderr
    assert "--builder classic" in refused.stderr
