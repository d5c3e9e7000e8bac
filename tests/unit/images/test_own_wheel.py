"""onecat packs itself: the same wheel each time, with all its data, and the packages that its lock pins."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from onecat import __version__
from onecat.errors import ExitCode, OnecatError
from onecat.images.metadata_wheel import metadata_wheel
from onecat.images.own_wheel import (
    PinnedRequirement,
    fetch_pinned,
    own_requirements,
    own_wheel,
    parse_requirements,
    requirements_text,
    target_tags,
)
from onecat.images.wheels import WheelStore

REPOSITORY = Path(__file__).parents[3]


def test_it_is_the_same_each_time_and_holds_all_data() -> None:
    name, content = own_wheel()
    assert (name, content) == own_wheel() and name == f"onecat-{__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(io.BytesIO(content)).namelist())
    for folder in ("profiles", "templates", "patches", "models"):
        shipped = {path for path in (REPOSITORY / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"}
        assert {f"onecat/{path.relative_to(REPOSITORY).as_posix()}" for path in shipped} <= names
    assert "onecat/requirements/core.lock" in names and "onecat/requirements/dev.lock" not in names
    assert not [each for each in names if "__pycache__" in each or each.startswith("tests/")]


def test_pip_installs_it_and_it_packs_itself_again(tmp_path: Path) -> None:
    name, content = own_wheel()
    (tmp_path / name).write_bytes(content)
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*install, "--target", str(target), str(tmp_path / name)], check=True, capture_output=True)
    program = f"import sys; sys.path.insert(0, {str(target)!r}); from onecat.images.own_wheel import own_wheel as o; "
    program += "import hashlib, onecat; print(onecat.__file__); print(hashlib.sha256(o()[1]).hexdigest())"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    where, digest = done.stdout.split()
    assert Path(where).is_relative_to(target) and digest == hashlib.sha256(content).hexdigest()


def test_the_lock_is_read_with_markers_and_all_hashes() -> None:
    text = "# made by\na-b==1.0 ; python_full_version < '3.11' \\\n    --hash=sha256:" + "ab" * 32
    text += (
        " \\\n    --hash=sha256:"
        + "cd" * 32
        + "\n    # via x\nwin==2 ; sys_platform == 'win32' --hash=sha256:"
        + "ef" * 32
    )
    old, windows = parse_requirements(text)
    assert (old.project, old.version, old.sha256) == ("a-b", "1.0", ("ab" * 32, "cd" * 32))
    assert old.needed_on("3.10") and not old.needed_on("3.11") and not windows.needed_on("3.11")


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_each_python_needs_one_version_of_each_package(python: str) -> None:
    projects = [row.project for row in own_requirements() if row.needed_on(python)]
    assert len(projects) == len(set(projects)) > 40 and "numpy" in projects
    assert all(row.sha256 for row in own_requirements())


def test_the_requirements_file_names_onecat_with_its_hash() -> None:
    text = requirements_text(
        parse_requirements("a==1 --hash=sha256:" + "ab" * 32), "onecat-0.1.0-py3-none-any.whl", "cd"
    )
    assert text == f"a==1 --hash=sha256:{'ab' * 32}\nonecat==0.1.0 --hash=sha256:cd\n"


def test_wheels_come_from_a_folder_by_hash_and_another_file_of_that_name_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheel = metadata_wheel("tiny", "1.0", "x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "tiny-1.0-py3-none-any.whl").write_bytes(wheel)
    (folder / "no wheel.whl").write_bytes(b"")
    store = WheelStore(tmp_path / "store", (folder,), tmp_path / "recorded.json")

    def fetch(sha256: str) -> tuple[Path, ...]:
        rows = parse_requirements(f"tiny==1.0 --hash=sha256:{sha256}")
        return fetch_pinned(rows, "3.11", "2.31", store, tmp_path / "log", lambda line: None, "a test")

    assert fetch(hashlib.sha256(wheel).hexdigest()) == (folder / "tiny-1.0-py3-none-any.whl",)
    with pytest.raises(OnecatError, match="nobody supplies tiny 1.0") as raised:
        fetch("00" * 32)
    assert raised.value.code is ExitCode.UNREACHABLE and not list(store.directory.iterdir())


def test_tags_are_those_of_the_target_and_not_of_this_machine() -> None:
    tags = {str(tag) for tag in target_tags("3.13", "x86_64", "2.31")}
    assert {"cp313-cp313-manylinux_2_28_x86_64", "cp39-abi3-manylinux2014_x86_64", "py3-none-any"} <= tags
    assert "cp313-cp313-manylinux_2_34_x86_64" not in tags and "cp312-cp312-manylinux2014_x86_64" not in tags
    assert isinstance(parse_requirements("a==1 --hash=sha256:" + "00" * 32)[0], PinnedRequirement)
