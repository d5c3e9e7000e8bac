"""`onecat build` of the patched engine for CUDA: every stage is executed by a real Docker engine, on stand-ins for what
must be fetched. The self-test in the image runs for real, with the real Triton."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onecat.config import load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.images import (
    BuildOptions,
    Context,
    EngineAccess,
    PackageOrigins,
    build_image,
    build_wheel,
    render_context,
)
from onecat.images.docker_build import STAGE_LABEL, build_stage
from onecat.images.lock_session import LockSession
from onecat.images.wheels import file_sha256
from onecat.paths import Home
from tests.testbed import cuda_stand_ins as stand_ins
from tests.testbed.base_image import machine_mirror
from tests.testbed.cache import Cache
from tests.testbed.docker_daemon import DockerDaemon
from tests.testbed.sources import fetch_vllm_archive, vllm_series

if TYPE_CHECKING:
    from onecat.config.schema import Profile

TAG = "onecat-test/vllm-patched:0.27.1-sm70"


@dataclass(frozen=True)
class Workshop:
    """What the builds of this file share.

    profile: v100x2-pcie, with the small engine. archive: that engine's source. options: everything comes from a folder.
    """

    docker_client: Any
    docker_host: str
    profile: Profile
    archive: Path
    options: BuildOptions
    folder: Path

    def context(self, profile: Profile | None = None, **changes: Any) -> Context:
        """The rendered context, its source fetched; `changes` are fields of the options."""
        context = render_context(profile or self.profile, options=replace(self.options, **changes))
        return context.with_paths({self.archive.name: self.archive})

    def changed(self, **image: Any) -> Profile:
        """The profile with other fields of its image."""
        return self.profile.model_copy(update={"image": self.profile.image.model_copy(update=image)})

    def image(self, context: Context) -> str:
        """Build to the end, without a network."""
        return build_image(context, self.docker_host, print, self.folder / "log", "classic").image_id

    def stage(self, context: Context, stage: str) -> str:
        """Build to the end of a stage."""
        tag = f"{TAG.partition(':')[0]}-{stage}:test"
        return build_stage(context, stage, tag, self.docker_host, print, self.folder / "log", "classic").image_id

    def refused(self, context: Context, stage: str) -> OnecatError:
        """How a build to the end of a stage fails."""
        with pytest.raises(OnecatError) as raised:
            self.stage(context, stage)
        assert raised.value.code is ExitCode.ROLLED_BACK
        assert "\x1b" not in "".join(raised.value.details)
        return raised.value

    def run(self, image: str, *command: str, **options: Any) -> tuple[int, str]:
        """Run a command in a container without a network; its exit status and what it printed."""
        options = {"network_mode": "none", "entrypoint": command[0], "detach": True, **options}
        container = self.docker_client.containers.run(image, list(command[1:]), **options)
        try:
            status = int(container.wait(timeout=120)["StatusCode"])
            return status, container.logs().decode()
        finally:
            container.remove(force=True)


@pytest.fixture(scope="module")
def workshop(
    base_image: str,
    docker_client: Any,
    docker_daemon: DockerDaemon,
    cache: Cache,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workshop]:
    stand_ins.ensure_cuda_images(docker_client, cache)
    profile = load_profile("v100x2-pcie")
    build_base = str(profile.image.variables["build_base"])
    for tag, stand_in in ((profile.image.base, stand_ins.RUNTIME_TAG), (build_base, stand_ins.DEVEL_TAG)):
        docker_client.images.get(stand_in).tag(tag)
    folder = tmp_path_factory.mktemp("cuda")
    find_links = folder / "find-links"
    find_links.mkdir()
    stand_ins.make_find_links(find_links, cache)
    archive = stand_ins.write_series(folder / "vllm-0.27.1")
    image = profile.image.model_copy(update={"patches": str(folder / "vllm-0.27.1"), "tag": TAG})
    options = BuildOptions(PackageOrigins(find_links=find_links, offline=True), max_jobs=3)
    small = profile.model_copy(update={"image": image})
    forget_builds(docker_client)
    yield Workshop(docker_client, docker_daemon.host, small, archive, options, folder)
    forget_builds(docker_client)


def forget_builds(docker_client: Any) -> None:
    """Remove what builds of these tests have left, stages too: a run that was killed leaves layers, which the next one
    would take as they are in place of building them."""
    for each in docker_client.images.list():
        for name in each.tags:
            if name.startswith(TAG.partition(":")[0]):
                docker_client.images.remove(name, force=True)
    docker_client.images.prune(filters={"label": f"{STAGE_LABEL}={TAG}"})


@pytest.fixture(scope="module")
def image(workshop: Workshop) -> str:
    """The image, compiled from source: base, source, externals, toolchain, compile, wheel, environment, runtime."""
    return workshop.image(workshop.context())


def test_the_image_is_built_without_a_network_and_proves_itself(workshop: Workshop, image: str) -> None:
    log = (workshop.folder / "log").read_text()
    for line in (
        "GCC 12.2.0, nvcc 12.6",
        "cutlass v4.4.2: cutlass-4.4.2.tar.gz",
        "selftest torch: ok",
        "selftest code: ok, 3 extensions hold code for sm_70",
        "selftest compilers: ok",
        "selftest imports: ok",
        "selftest operators: ok, 16 operators have CUDA kernels",
        "selftest triton: ok, triton 3.7.1 compiles ",
        "selftest user: ok, user 10001",
    ):
        assert line in log, line


def test_the_image_says_what_it_is(workshop: Workshop, image: str) -> None:
    settings = workshop.docker_client.images.get(image).attrs["Config"]
    labels = settings["Labels"]
    assert labels["io.onecat.profile"] == "v100x2-pcie" and labels["io.onecat.engine-version"] == "0.27.1"
    assert labels["io.onecat.cuda-architectures"] == "7.0" and labels["io.onecat.cuda"] == "12.6.3"
    assert labels["io.onecat.minimum-driver"] == "525.60.13"
    assert labels["io.onecat.patch-series"].startswith("vllm-0.27.1 sha256:")
    assert settings["User"] == "10001:10001" and "8000/tcp" in settings["ExposedPorts"]
    assert settings["Entrypoint"] == ["/usr/local/bin/onecat-entrypoint"]


def test_the_image_holds_what_runs_and_nothing_of_where_it_came_from(workshop: Workshop, image: str) -> None:
    look = (
        "cd /opt/onecat; ls -d /origins /build /wheels /reports bin/pip bin/cmake lib/python3.12/site-packages/cmake;"
        "ls share/onecat; cat share/onecat/*.json; ls -ld /var/cache/onecat"
    )
    _, said = workshop.run(image, "sh", "-c", look)
    assert said.count("No such file or directory") == 7
    assert "pip-20-torch.json" in said and "pip-40-engine.json" in said and '"tag": "v4.4.2"' in said
    assert "drwxrwxrwt" in said
    assert "/origins/packages" not in said, "what pip said is kept without addresses"
    history = json.dumps(workshop.docker_client.images.get(image).history())
    assert "find-links" not in history and "origins" not in history


def test_any_user_starts_the_server_below_a_read_only_root(workshop: Workshop, image: str) -> None:
    client, tmp = workshop.docker_client, {"/tmp": "rw,exec,nosuid,nodev,mode=1777"}
    volume = client.volumes.create()
    container = {"read_only": True, "user": "4711:4711", "tmpfs": tmp, "cap_drop": ["ALL"]}
    script = 'touch "$TRITON_CACHE_DIR/kept" && exec onecat-entrypoint --model "a b"'
    try:
        kept = {volume.name: {"bind": "/var/cache/onecat", "mode": "rw"}}
        status, said = workshop.run(image, "sh", "-c", script, volumes=kept, **container)
        # The engine is not expected to end by itself; the stand-in does, and that is told as the failure it is.
        assert (status, said) == (1, "stand-in serve --model a b\n")
    finally:
        volume.remove()
    server = "printf '#!/bin/sh\necho $TRITON_CACHE_DIR\n' >/tmp/vllm && chmod +x /tmp/vllm"
    show = f"{server} && PATH=/tmp:$PATH onecat-entrypoint"
    assert workshop.run(image, "sh", "-c", show, **container)[1] == "/tmp/cache/triton\n"
    assert workshop.run(image, "sh", "-c", show, **{**container, "read_only": False})[1] == "/var/cache/onecat/triton\n"


SELFTEST = "python /usr/local/lib/onecat/selftest.py"


def test_nvidias_own_tool_sees_the_code_that_the_self_test_sees(workshop: Workshop, image: str) -> None:
    packages = "/opt/onecat/lib/python3.12/site-packages"
    tool = f"{packages}/triton/backends/nvidia/bin/cuobjdump --list-elf {packages}/vllm/_C_stable_libtorch*.so"
    assert "sm_70.cubin" in workshop.run(image, "sh", "-c", tool)[1]


def test_code_for_another_gpu_fails_the_self_test(workshop: Workshop, image: str, tmp_path: Path) -> None:
    exchange = (
        "import pathlib; [path] = pathlib.Path('/opt/onecat/lib/python3.12/site-packages/vllm').glob('_C_st*.so');"
        "old, new = (pathlib.Path('/code', name).read_bytes() for name in ('70', '75')); assert len(old) == len(new);"
        "assert old in path.read_bytes(); path.write_bytes(path.read_bytes().replace(old, new))"
    )
    for architecture in (70, 75):
        (tmp_path / str(architecture)).write_bytes(stand_ins.fatbin(architecture, tmp_path))
    volumes = {str(tmp_path): {"bind": "/code", "mode": "ro"}}
    command = f'python -c "{exchange}" && exec {SELFTEST} code'
    status, said = workshop.run(image, "sh", "-c", command, volumes=volumes, user="0:0")
    assert status == 1
    assert "selftest code: FAILED" in said and "holds sm_75" in said
    assert "expected: sm_70, or PTX of compute_70 or older" in said and "next: build the wheel" in said


def test_missing_headers_and_root_fail_the_self_test(workshop: Workshop, image: str) -> None:
    command = f"rm -r /usr/include/python3.12; exec {SELFTEST} compilers user"
    status, said = workshop.run(image, "sh", "-c", command, user="0:0")
    assert status == 1
    assert "selftest compilers: FAILED" in said and "Python.h: No such file or directory" in said
    assert "-dev package" in said and "the image runs as root" in said


def test_another_source_archive_stops_the_source_stage(workshop: Workshop, tmp_path: Path) -> None:
    other = tmp_path / workshop.archive.name
    other.write_bytes(stand_ins.archive_of({"vllm-0.27.1/setup.py": b"import evil\n"}))
    context = workshop.context()
    # As by hand from a rendered context, where onecat compares no file with its hash.
    stored = [replace(each, sha256=None, path=other) if each.name == other.name else each for each in context.stored]
    refused = workshop.refused(replace(context, stored=tuple(stored)), "source")
    told = "\n".join(refused.details)
    assert "found: another vllm-0.27.1.tar.gz than the one that is pinned" in told and "expected: sha256" in told
    assert str(refused.where).startswith("source")


def test_a_patch_that_does_not_apply_stops_the_source_stage(workshop: Workshop, tmp_path: Path) -> None:
    series = tmp_path / "vllm-0.27.1"
    shutil.copytree(workshop.folder / "vllm-0.27.1", series)
    patch = series / "0001-state.patch"
    patch.write_text(patch.read_text().replace("as released", "as they released it"))
    refused = workshop.refused(workshop.context(workshop.changed(patches=str(series))), "source")
    told = "\n".join(refused.details)
    assert "0001-state.patch does not apply to vllm-0.27.1.tar.gz" in told and "onecat patch verify" in told


def test_the_real_source_takes_the_real_patches(workshop: Workshop, cache: Cache) -> None:
    series = vllm_series().for_profile(workshop.profile)
    profile = workshop.changed(patches="vllm-0.27.1")
    context = workshop.context(profile).with_paths({series.upstream.file: fetch_vllm_archive(cache)})
    stage = workshop.stage(context, "externals")
    guards = [(guard.file, text) for patch in series.patches for guard in patch.after for text in guard.contains]
    files = sorted({file for file, _ in guards} | set(series.added))
    assert guards and files
    ask = (
        "import json, pathlib, sys;"
        "print(json.dumps({file: pathlib.Path('/build/source', file).read_text() for file in sys.argv[1:]}))"
    )
    status, said = workshop.run(stage, "python3.12", "-c", ask, *files)
    assert status == 0, said
    found = json.loads(said)
    assert all(text in found[file] for file, text in guards)
    assert all(found[file].encode() == series.added_content(file) for file in series.added)
    assert "cutlass v4.4.2: cutlass-4.4.2.tar.gz" in (workshop.folder / "log").read_text()


def base_with(workshop: Workshop, program: str, script: str) -> Profile:
    """The profile on a base image in which a program is another."""
    tag = f"{TAG.partition(':')[0]}-base:{program.rpartition('/')[2].replace('+', 'x')}"
    write = f"printf '#!/bin/sh\\n{script}\\n' >{program} && chmod 755 {program}"
    dockerfile = f"FROM {stand_ins.DEVEL_TAG}\nRUN {write}\n"
    workshop.docker_client.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=tag, rm=True)
    return workshop.changed(variables={**workshop.profile.image.variables, "build_base": tag})


@pytest.mark.parametrize(
    ("program", "script", "found", "expected"),
    [
        ("/usr/local/bin/g++-12", "echo 14.1.0", "g++-12 is GCC 14.1.0", "GCC 11.3 to 13.2"),
        ("/usr/local/cuda/bin/nvcc", "echo tools, release 12.8, V12.8.93", "nvcc of CUDA 12.8", "nvcc of CUDA 12.6"),
        ("/usr/local/cuda/bin/nvcc", "exit 1", "there is no nvcc in this image", "CUDA's compiler of release 12.6"),
    ],
    ids=["a GCC that is too new", "an nvcc of another release", "no nvcc"],
)
def test_other_compilers_stop_the_base_stage(
    workshop: Workshop, program: str, script: str, found: str, expected: str
) -> None:
    context = workshop.context(base_with(workshop, program, script))
    refused = workshop.refused(context, "base")
    told = "\n".join(refused.details)
    assert f"found: {found}" in told and f"expected: {expected}" in told and "next: name a" in told
    assert str(refused.where).startswith("base")


def test_a_base_image_that_lacks_packages_is_told_when_no_network_may_be_used(
    workshop: Workshop, base_image: str
) -> None:
    bare = workshop.changed(variables={**workshop.profile.image.variables, "build_base": base_image})
    told = "\n".join(workshop.refused(workshop.context(bare), "base").details)
    assert "the base image lacks g++-12 git make patch python3.12" in told and "--offline" in told


def test_packages_come_from_the_mirror_and_the_systems_sources_stay(workshop: Workshop, base_image: str) -> None:
    mirror = machine_mirror()
    if mirror is None:
        pytest.skip("this machine's apt names no archive of Debian 12 that a container could use as a mirror")
    script = next(file.content for file in workshop.context().files if file.name == "install-packages.sh").decode()
    sources = "deb http://archive.invalid/debian bookworm main"
    command = (
        f"echo '{sources}' >/etc/apt/sources.list; rm -f /etc/apt/sources.list.d/*;"
        "echo 'deb http://cuda.invalid/cuda/repos/ubuntu2404/x86_64/ /' >/etc/apt/sources.list.d/cuda.list;"
        'sh -c "$0" - hello && hello --version; cat /etc/apt/sources.list'
    )
    options = {"network_mode": "host", "environment": {"APT_MIRROR": mirror}}
    status, said = workshop.run(base_image, "sh", "-c", command, script, **options)
    assert status == 0 and "hello (GNU Hello)" in said and said.endswith(f"{sources}\n"), said
    # Those of others, as NVIDIA's images have them, are not asked.
    assert "cuda.invalid" not in said


def test_another_origin_leaves_what_was_compiled_valid(workshop: Workshop, image: str, tmp_path: Path) -> None:
    pip_config = tmp_path / "pip.conf"
    pip_config.write_text("[global]\nindex-url = https://user:s3cret@mirror.invalid/simple\n")
    origins = replace(workshop.options.origins, pip_config=pip_config, apt_mirror=None)
    context = workshop.context(origins=origins)
    assert context.digest == workshop.context().digest
    workshop.stage(context, "wheel")
    compile_step = (workshop.folder / "log").read_text().partition("RUN pip wheel")[2]
    assert compile_step.splitlines()[1].strip() == "---> Using cache"


def test_a_lock_names_what_pip_downloaded_and_the_next_build_checks_it(
    workshop: Workshop, image: str, tmp_path: Path
) -> None:
    home = Home(tmp_path / "data", tmp_path / "cache")
    lock = LockSession(tmp_path / "onecat.lock", workshop.profile, home, "record", "container", workshop.docker_host)
    said: list[str] = []
    lock.after(said.append)
    assert lock.entry is not None
    packages = lock.entry.packages("3.12")
    assert {"torch", "triton"} <= {row.name for row in packages} and "vllm" not in {row.name for row in packages}
    assert workshop.options.origins.find_links is not None
    there = {file_sha256(path) for path in workshop.options.origins.find_links.iterdir()}
    assert all(set(row.sha256) <= there for row in packages)
    assert any(line.startswith("lock: recorded packages.3.12: ") for line in said)

    # The image that is there holds what the lock says: compiling it again would change nothing.
    locked = replace(lock, mode="locked")
    assert locked.before(workshop.options, said.append) == workshop.options
    locked.after(said.append)

    workshop.stage(workshop.context(packages=packages), "toolchain")
    wrong = (replace(packages[0], sha256=("00" * 32,)), *packages[1:])
    refused = workshop.refused(workshop.context(packages=wrong), "toolchain")
    assert "DO NOT MATCH THE HASHES" in " ".join([refused.found, *refused.details])


def test_a_wheel_takes_the_place_of_compiling(workshop: Workshop, image: str, tmp_path: Path) -> None:
    said: list[str] = []
    options = replace(workshop.options, wheel_only=tmp_path / "dist", source=workshop.archive.parent)
    home, engine = Home(tmp_path / "data", tmp_path / "cache"), EngineAccess(workshop.docker_host)
    built, plan = build_wheel(workshop.profile, home, engine, said.append, options, "classic")
    wheel = built.path
    assert (plan.goal, plan.max_jobs) == ("wheel", 3) and [wheel] == list((tmp_path / "dist").iterdir())
    assert wheel.name == "vllm-0.27.1+onecat.sm70-cp312-cp312-linux_x86_64.whl"
    assert f"wheel: sha256 {hashlib.sha256(wheel.read_bytes()).hexdigest()}" in said
    assert not workshop.docker_client.images.list(f"{TAG}-wheel"), "no image is left under a name"
    context = workshop.context(wheel=wheel)
    assert context.source is None and not [file for file in context.files if file.name.startswith("patches/")]
    made = workshop.image(context)
    log = (workshop.folder / "log").read_text()
    assert "AS compile" not in log and "selftest operators: ok" in log
    assert made != image
