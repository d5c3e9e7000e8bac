"""Profiles in layers: what wins, what is dropped, where each value comes from, and what is told when it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.config import Profile, list_profiles, load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.resources import resource_directory

PARTS = ("hardware", "engines", "workloads")
PLACE_OF_A_KEY = {
    "hardware": {"hardware", "launch", "doctor", "notes", "sources", "extends"},
    "engines": {"engine", "image", "launch", "doctor", "notes", "sources", "extends"},
    "workloads": {"launch", "notes", "sources", "extends"},
}


def written(tmp_path: Path, text: str, name: str = "mine.yaml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def refused(path: str) -> OnecatError:
    with pytest.raises(OnecatError) as caught:
        load_profile(path)
    assert caught.value.code == ExitCode.USAGE
    return caught.value


def argument(profile: Profile, name: str) -> object:
    return {each.arg: each.value for each in profile.launch.args}.get(name)


def test_a_profile_of_ones_own_extends_a_shipped_one_by_name(tmp_path: Path) -> None:
    mine = load_profile(written(tmp_path, "name: mine\nextends: [v100x2-pcie]\ndoctor: {memory_gib: 128}\n"))
    theirs = load_profile("v100x2-pcie")
    assert mine.launch == theirs.launch
    assert (mine.doctor.memory_gib, mine.doctor.driver) == (128, theirs.doctor.driver)
    assert (mine.summary, mine.alternative) == (theirs.summary, None)


def test_later_layers_win_row_by_row_and_the_files_own_values_last(tmp_path: Path) -> None:
    text = (
        "name: mine\nextends: [v100x2-pcie, workloads/long-context]\nlaunch:\n  args:\n"
        "    - {arg: max-num-seqs, value: 2, why: two users}\n"
    )
    mine = load_profile(written(tmp_path, text))
    assert (argument(mine, "max-num-seqs"), argument(mine, "max-num-batched-tokens")) == (2, 2048)
    assert argument(mine, "dtype") == "float16"
    names = [each.arg for each in mine.launch.args]
    assert len(names) == len(set(names))
    row = next(each for each in mine.launch.args if each.arg == "max-num-seqs")
    assert (row.why, row.source) == ("two users", None)


def test_every_value_knows_the_layer_it_came_from(tmp_path: Path) -> None:
    path = written(tmp_path, "name: mine\nextends: [v100x2-pcie]\nengine:\n  version: 0.27.1\n")
    mine = load_profile(path)
    assert mine.origin("engine", "version").where == f"{path}:4:12"
    assert str(mine.origin("engine", "name").where).startswith("profiles/engines/vllm-patched-0.27.1-sm70.yaml:3:")
    assert str(mine.origin("hardware", "count").where).startswith("profiles/hardware/v100x2-pcie.yaml:")
    assert str(mine.origin("hardware", "compute_capability").where).startswith("profiles/hardware/volta.yaml:")
    index = [each.arg for each in mine.launch.args].index("max-model-len")
    assert str(mine.origin("launch", "args", index, "value").where).startswith("profiles/workloads/chat.yaml:")


def test_remarks_of_all_layers_are_kept_once() -> None:
    profile = load_profile("v100x2-pcie")
    assert len(profile.sources) == len(set(profile.sources))
    assert any("Driver 580 is the last branch" in note for note in profile.notes)
    assert any("cannot run on these cards" in note for note in profile.notes)


def test_a_row_of_a_layer_below_is_dropped_with_its_reason(tmp_path: Path) -> None:
    text = "name: mine\nextends: [v100x2-pcie]\ndrop:\n  - {arg: max-model-len, why: ours is short}\n"
    mine = load_profile(written(tmp_path, text))
    assert argument(mine, "max-model-len") is None
    assert [(each.row, each.why) for each in mine.drop] == [(("arg", "max-model-len"), "ours is short")]


def test_what_is_dropped_can_be_set_anew_above(tmp_path: Path) -> None:
    written(tmp_path, "extends: [cpu]\ndrop:\n  - {env: TORCH_COMPILE_DISABLE, why: g++ is here}\n", "base.yaml")
    row = "{name: TORCH_COMPILE_DISABLE, value: '1', why: ours}"
    text = f"name: mine\nextends: [./base.yaml]\nlaunch:\n  env:\n    - {row}\n"
    mine = load_profile(written(tmp_path, text))
    assert [each.why for each in mine.launch.env if each.name == "TORCH_COMPILE_DISABLE"] == ["ours"]


def test_files_of_ones_own_are_layers_too_and_are_named_where_they_are_wrong(tmp_path: Path) -> None:
    base = written(tmp_path, "hardware:\n  count: two\n", "base.yaml")
    mine = written(tmp_path, "name: mine\nextends: [v100x2-pcie, base.yaml]\n")
    error = refused(mine)
    assert (error.where, error.found) == (f"{base}:2:10", '`hardware.count` is the text "two"')
    assert error.details[0] == "  count: two"


def test_an_unknown_key_in_a_layer_is_told_there(tmp_path: Path) -> None:
    base = written(tmp_path, "hardwear: {count: 2}\n", "base.yaml")
    error = refused(written(tmp_path, "name: mine\nextends: [cpu, base.yaml]\n"))
    assert (error.where, error.found) == (f"{base}:1:1", "unknown key `hardwear`")
    assert error.next_steps == ("did you mean `hardware`?",)


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("engines/vllm-stock-0.27.2", "engines/vllm-stock-0.27.1"),
        ("hardware/v100x2", "hardware/v100x2-pcie"),
        ("v100x2-pci", "v100x2-pcie"),
        ("engine/vllm-cpu-0.27.1", "engines/vllm-cpu-0.27.1"),
    ],
)
def test_an_unknown_layer_is_told_with_the_nearest_name(tmp_path: Path, word: str, near: str) -> None:
    path = written(tmp_path, f"name: mine\nextends:\n  - {word}\n")
    error = refused(path)
    assert (error.where, error.found) == (
        f"{path}:3:5",
        f"`extends` names `{word}`, and there is no such profile or part",
    )
    assert error.next_steps == (f"did you mean `{near}`?",)


def test_a_missing_file_is_told_with_the_place_it_was_looked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "name: mine\nextends: [./site/base.yaml]\n")
    error = refused(path)
    assert (error.where, error.expected) == (f"{path}:2:11", str(tmp_path / "site/base.yaml"))


def test_a_circle_is_told_as_the_way_it_goes(tmp_path: Path) -> None:
    written(tmp_path, "extends: [c.yaml]\n", "b.yaml")
    written(tmp_path, "extends: [cpu, mine.yaml]\n", "c.yaml")
    error = refused(written(tmp_path, "name: mine\nextends: [b.yaml]\n"))
    a, b, c = (str(tmp_path / each) for each in ("mine.yaml", "b.yaml", "c.yaml"))
    assert error.found == f"`extends` goes round in a circle: {a} -> {b} -> {c} -> {a}"
    assert error.where == f"{c}:1:16"


def test_a_profile_that_extends_itself_is_a_circle(tmp_path: Path) -> None:
    assert "circle" in refused(written(tmp_path, "name: mine\nextends: [mine.yaml]\n")).found


def test_a_tree_without_an_end_in_sight_is_refused(tmp_path: Path) -> None:
    for number in range(12):
        written(tmp_path, f"extends: [l{number + 1}.yaml]\n", f"l{number}.yaml")
    assert refused(written(tmp_path, "name: mine\nextends: [l0.yaml]\n")).found == "`extends` is nested too deeply"


@pytest.mark.parametrize(
    ("row", "found", "advice"),
    [
        (
            "{arg: max-modl-len, why: x}",
            "there is no arg `max-modl-len` below to drop",
            "did you mean `max-model-len`?",
        ),
        ("{layout: replica, why: x}", "there is no layout `replica` below to drop", "did you mean `replicas`?"),
        ("{mount: /etc, why: x}", "there is no mount `/etc` below to drop", None),
        ("{arg: max-model-len}", "the key `why` is missing in `drop.0`", "add `why` in `drop.0`"),
        ("{why: x}", "a row of `drop` names none or several", None),
        ("{arg: dtype, layout: replicas, why: x}", "a row of `drop` names none or several", None),
    ],
)
def test_a_row_that_cannot_be_dropped_is_told_at_its_place(
    tmp_path: Path, row: str, found: str, advice: str | None
) -> None:
    path = written(tmp_path, f"name: mine\nextends: [v100x2-pcie]\ndrop:\n  - {row}\n")
    error = refused(path)
    assert error.found == found
    assert str(error.where).startswith(f"{path}:4:")
    assert error.next_steps == ((advice,) if advice else ())


def test_a_flag_that_stands_twice_in_one_file_is_told_though_a_layer_below_has_it(tmp_path: Path) -> None:
    row = "    - {arg: dtype, value: float16, why: x}\n"
    error = refused(written(tmp_path, f"name: mine\nextends: [cpu]\nlaunch:\n  args:\n{row}{row}"))
    assert error.found == "`dtype` is set twice"


def test_a_part_is_no_profile_and_says_so() -> None:
    error = refused("hardware/volta")
    assert error.found == "`hardware/volta` is a part that profiles are made of, and no profile"


def test_the_name_is_not_inherited(tmp_path: Path) -> None:
    path = written(tmp_path, "extends: [cpu]\n")
    assert (refused(path).found, refused(path).where) == ("the key `name` is missing", f"{path}:1:1")


@pytest.mark.parametrize("value", ["cpu", "[1]", "{a: b}"])
def test_extends_of_a_wrong_form_is_told(tmp_path: Path, value: str) -> None:
    path = written(tmp_path, f"name: mine\nextends: {value}\n")
    assert f"{path}:2:" in "\n".join([str(refused(path).where), *refused(path).details])


@pytest.mark.parametrize("kind", PARTS)
def test_parts_keep_to_their_own_subject_and_each_is_used(kind: str) -> None:
    import yaml

    root = resource_directory("profiles")
    used = set()
    for file in root.rglob("*.yaml"):
        used |= set(yaml.safe_load(file.read_text()).get("extends", ()))
    for file in (root / kind).glob("*.yaml"):
        assert set(yaml.safe_load(file.read_text())) <= PLACE_OF_A_KEY[kind], file
        # The other release that ascend910b can be put on is named in its notes.
        assert f"{kind}/{file.stem}" in used | {"engines/vllm-ascend-0.18.0"}, file


def test_the_other_release_of_vllm_ascend_goes_on_the_same_hardware(tmp_path: Path) -> None:
    mine = load_profile(written(tmp_path, "name: mine\nextends: [ascend910b, engines/vllm-ascend-0.18.0]\n"))
    assert (mine.engine.version, mine.image.base) == ("0.18.0", "ascend/vllm-ascend:v0.18.0")
    assert mine.image.variables["cann"] == "8.5.1"
    assert mine.launch.container.devices == load_profile("ascend910b").launch.container.devices


@pytest.mark.parametrize("name", list_profiles())
def test_a_profile_written_out_with_all_that_it_inherits_is_the_same_profile(tmp_path: Path, name: str) -> None:
    from onecat.images.bundle_create import profile_text

    profile = load_profile(name)
    again = load_profile(written(tmp_path, profile_text(profile).decode()))
    unlike = {"extends", "drop"}
    assert again.model_dump(exclude=unlike) == profile.model_dump(exclude=unlike)
