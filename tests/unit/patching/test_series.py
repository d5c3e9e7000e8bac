"""The folder of a series: what it says is read whole, and what nobody reads is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from onecat.errors import OnecatError
from onecat.patching import list_series, load_series
from tests.unit.patching.small_series import write_series

ROW = {"file": "0001-x.patch", "purpose": "p", "author": "a", "reference": "r", "drop_when": "d"}


def refusal(directory: Path, rows: Any) -> OnecatError:
    (directory / "series.yaml").write_text(yaml.safe_dump({"patches": rows}), encoding="utf-8")
    with pytest.raises(OnecatError) as raised:
        load_series(f"{directory}/")
    assert str(raised.value.where).endswith("series.yaml")
    return raised.value


def test_every_shipped_series_is_well_formed_and_its_patches_may_be_applied() -> None:
    assert "vllm-0.27.1" in list_series()
    for name in list_series():
        series = load_series(name)
        for patch in series.patches:
            assert patch.changes and patch.purpose and patch.drop_when and patch.reference
            touched = {path for change in patch.changes for path in (change.old, change.new)}
            assert not touched & set(series.added), "an added file is no patched one"
        assert [patch.file for patch in series.patches] == sorted(patch.file for patch in series.patches)


def test_a_folder_by_its_path_is_a_series_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_series(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    assert load_series("./").name == "mine"
    assert load_series(".").directory == tmp_path / "mine"
    monkeypatch.chdir(tmp_path)
    assert load_series("mine").directory == tmp_path / "mine"


def test_a_shipped_series_comes_before_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = list_series()[0]
    write_series(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert load_series(name).directory != tmp_path / name
    assert load_series(f"./{name}").directory == tmp_path / name


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"gaurd": {}}, "unknown field gaurd"),
        ({"guard": {"befor": []}}, "unknown field befor"),
        ({"guard": {"before": [{"file": "x", "contain": ["y"]}]}}, "unknown field contain"),
        ({"guard": {"before": [{"file": "x", "contains": "a text that is no list"}]}}, "not a list of texts"),
        ({"applies_to": {"profile": ["x"]}}, "unknown field profile"),
        ({"applies_to": {"compute_capability": "below 8"}}, "Invalid specifier"),
        ({"file": "../0001-x.patch"}, "is no name as"),
        ({"file": "0002-missing.patch"}, "No such file"),
    ],
)
def test_a_row_that_says_what_nobody_reads_is_refused(tmp_path: Path, row: dict[str, Any], found: str) -> None:
    series = write_series(tmp_path / "mine", patches={})
    (series.directory / "0001-x.patch").write_text("", encoding="utf-8")
    assert found in "\n".join(refusal(series.directory, [{**ROW, **row}]).details)


def test_a_field_that_is_missing_and_a_patch_named_twice_are_told(tmp_path: Path) -> None:
    series = write_series(tmp_path / "mine", patches={})
    (series.directory / "0001-x.patch").write_text("", encoding="utf-8")
    without = {name: value for name, value in ROW.items() if name != "drop_when"}
    assert refusal(series.directory, [without]).details == ("it lacks 'drop_when'",)
    assert "named twice" in refusal(series.directory, [ROW, ROW]).details[0]
    assert refusal(series.directory, None).details
