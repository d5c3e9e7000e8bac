"""Images of engines that come ready: a wheel that a person gives, and vllm-ascend's own image. A real Docker engine
executes their own stages on stand-ins for the base images, without a network."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onecat.config import Profile, load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.images import BuildOptions, Context, PackageOrigins, build_image, render_context
from onecat.images.docker_build import build_stage
from tests.testbed import cuda_stand_ins as stand_ins
from tests.testbed.cache import Cache
from tests.testbed.docker_daemon import DockerDaemon

pytestmark = pytest.mark.testbed
REPOSITORY = "onecat-test/given"


@pytest.fixture(scope="module", autouse=True)
def removed_images(docker_client: Any) -> Iterator[None]:
    yield
    for image in docker_client.images.list():
        for name in image.tags:
            if name.startswith(REPOSITORY):
                docker_client.images.remove(name, force=True)


def changed(profile: Profile, tag: str, base: str, **variables: str) -> Profile:
    image = profile.image
    new = {"tag": f"{REPOSITORY}:{tag}", "base": base, "variables": {**image.variables, **variables}}
    return profile.model_copy(update={"image": image.model_copy(update=new)})


def run(docker_client: Any, image: str, *command: str, **options: Any) -> tuple[int, str]:
    """A command in a container without a network; its exit status and what it printed."""
    container = docker_client.containers.run(image, list(command), network_mode="none", detach=True, **options)
    try:
        return int(container.wait(timeout=60)["StatusCode"]), container.logs().decode()
    finally:
        container.remove(force=True)


def engine_wheel(folder: Path) -> Path:
    """A wheel of a vLLM of a few lines, with an extension that holds machine code for sm_70."""
    folder.mkdir()
    code = folder / "code.fatbin"
    code.write_bytes(stand_ins.fatbin(70, folder))
    source = folder / "code.c"
    source.write_text(f'__asm__(".section .nv_fatbin, \\"a\\"\\n.balign 8\\n.incbin \\"{code}\\"\\n.previous\\n");\n')
    library = folder / "_C.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    files = {
        "vllm/__init__.py": "",
        "vllm/main.py": "import sys\n\n\ndef main():\n    print('stand-in', *sys.argv[1:])\n",
        "vllm/_C.so": library.read_bytes(),
        "vllm-1.3.0.dist-info/entry_points.txt": "[console_scripts]\nvllm = vllm.main:main\n",
    }
    return stand_ins.write_wheel(folder, "vllm", "1.3.0", files, "Requires-Dist: torch\n", "cp312-cp312-linux_x86_64")


def test_a_given_wheel_is_installed_and_another_file_is_not(
    base_image: str, docker_client: Any, docker_daemon: DockerDaemon, cache: Cache, tmp_path: Path
) -> None:
    """The last stage is that of the patched engine's image, and executed there."""
    stand_ins.ensure_cuda_images(docker_client, cache)
    find_links = tmp_path / "find-links"
    find_links.mkdir()
    torch = {"torch/__init__.py": "from torch import _C\n\n__version__ = '2.10.0+cu128'\n"}
    torch["torch/_C.py"] = "def _cuda_getArchFlags():\n    return 'sm_70'\n"
    stand_ins.write_wheel(find_links, "torch", "2.10.0+cu128", torch)
    wheel = engine_wheel(tmp_path / "wheel")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    profile = changed(load_profile("1cat-v100"), "wheel", stand_ins.RUNTIME_TAG, wheel_sha256=sha256)
    options = BuildOptions(PackageOrigins(find_links=find_links, offline=True), wheel=wheel)
    context = render_context(profile, options=options)
    assert context.refusal is None

    def build(stage: str, context: Context = context) -> str:
        tag = f"{REPOSITORY}:{stage}"
        return build_stage(context, stage, tag, docker_daemon.host, print, tmp_path / "log", "classic").image_id

    image = build("environment")
    assert "selftest torch: ok" in (tmp_path / "log").read_text()
    status, said = run(docker_client, image, "python", "/usr/local/lib/onecat/selftest.py", "code", "imports")
    assert (status, "1 extensions hold code for sm_70" in said, "vllm import" in said) == (0, True, True)
    assert run(docker_client, image, "vllm", "serve", "/model") == (0, "stand-in serve /model\n")

    wheel.write_bytes(b"another file")
    with pytest.raises(OnecatError, match="has changed since the build began"):
        build("wheel")
    # By hand, from a rendered context, onecat compares no file with its hash: the stage does.
    with pytest.raises(OnecatError) as raised:
        build("wheel", replace(context, stored=tuple(replace(each, sha256=None) for each in context.stored)))
    assert raised.value.code is ExitCode.ROLLED_BACK
    told = "\n".join(raised.value.details)
    assert hashlib.sha256(b"another file").hexdigest() in told and sha256 in told


def ascend_base(docker_client: Any, version: str) -> str:
    """An image that holds what onecat looks at in the project's own: packages' metadata, CANN's scripts, a server."""
    tag = f"{REPOSITORY}:base-{version}"
    files = {
        "Dockerfile": "FROM onecat-test/base:bookworm\nCOPY root/ /\n",
        "root/usr/local/bin/vllm": '#!/bin/sh\necho "$TOOLKIT $LD_LIBRARY_PATH" "$@"\n',
        "root/usr/local/Ascend/ascend-toolkit/set_env.sh": "export TOOLKIT=9.1.0\n",
    }
    for name, each in (("vllm_ascend", version), ("torch_npu", "2.10.0.post4")):
        path = f"root/usr/local/lib/python3.11/dist-packages/{name}-{each}.dist-info/METADATA"
        files[path] = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {each}\n"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            archive.addfile(info, io.BytesIO(text.encode()))
    stream.seek(0)
    docker_client.images.build(fileobj=stream, custom_context=True, tag=tag, rm=True)
    return tag


def test_the_image_for_ascend_checks_its_base_and_starts_with_canns_variables_and_no_root(
    base_image: str, docker_client: Any, docker_daemon: DockerDaemon, tmp_path: Path
) -> None:
    shipped = load_profile("ascend910b")
    profile = changed(shipped, "ascend", ascend_base(docker_client, shipped.engine.version))
    image = build_image(render_context(profile), docker_daemon.host, print, tmp_path / "log", "classic").image_id
    status, said = run(docker_client, image, "/model", "--port", "8000", user="4711:4711", read_only=True)
    driver = "/usr/local/Ascend/driver/lib64"
    assert (status, said.strip()) == (1, f"9.1.0 {driver}:{driver}/common:{driver}/driver serve /model --port 8000")
    assert docker_client.images.get(image).attrs["Config"]["User"] == "10001:10001"

    other = changed(shipped, "other", ascend_base(docker_client, "0.18.0"))
    with pytest.raises(OnecatError) as raised:
        build_image(render_context(other), docker_daemon.host, print, tmp_path / "log", "classic")
    assert any("vllm-ascend 0.18.0" in line for line in raised.value.details), raised.value.details
