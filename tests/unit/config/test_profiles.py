"""The profiles that ship, the schemas for editors, and what a wrong profile is told."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from onecat.config import json_schema, list_profiles, load_profile
from onecat.errors import OnecatError
from onecat.images import render_context
from onecat.resources import resource_directory

ROOT = resource_directory("profiles")
ONE_FILE = Path(__file__).parents[2] / "fixtures" / "profiles" / "one-file.yaml"
SHIPPED = (
    "1cat-v100",
    "a100x2-80g",
    "a100x8-pairs",
    "ascend910b",
    "cpu",
    "h100x2",
    "h200",
    "rtx3090x2",
    "t4",
    "v100-16g",
    "v100x2-pcie",
    "v100x2-pcie-longctx",
    "v100x4-sxm2",
)


def test_the_profiles_that_ship_are_listed() -> None:
    assert list_profiles() == SHIPPED


def test_a_profile_is_named_in_commands_as_it_was_given(tmp_path: Path) -> None:
    mine = tmp_path / "my own.yaml"
    mine.write_text("name: mine\nextends: [v100x2-pcie]\n")
    assert load_profile("cpu").reference == "cpu"
    assert load_profile(str(mine)).reference == f"'{mine}'"
    refusal = render_context(load_profile(str(mine))).refusal
    assert refusal is not None and f"onecat build --profile '{mine}' --torch-index-url URL" in refusal.next_steps


@pytest.mark.parametrize("name", SHIPPED)
def test_each_profile_loads_bears_its_file_name_and_gives_reasons_with_sources(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    launch = profile.launch
    rows = (*launch.args, *launch.env, *launch.layouts, *launch.container.devices, *launch.container.mounts)
    assert all(each.why and each.source for each in rows)
    assert launch.layouts or profile.hardware.accelerator == "none"
    assert launch.container.why and profile.notes


@pytest.mark.parametrize("name", SHIPPED)
def test_no_profile_stops_the_statistics_that_canary_top_and_preflight_read(name: str) -> None:
    assert "disable-log-stats" not in {each.arg for each in load_profile(name).launch.args}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_profile_that_is_an_alternative_names_one_for_the_same_hardware(name: str) -> None:
    profile = load_profile(name)
    if profile.alternative is not None:
        assert load_profile(profile.alternative.to).hardware == profile.hardware
        assert load_profile(profile.alternative.to).alternative is None


@pytest.mark.parametrize("name", SHIPPED)
def test_cards_of_compute_capability_7_5_and_more_get_the_official_image(name: str) -> None:
    profile = load_profile(name)
    if profile.hardware.accelerator == "nvidia":
        is_old = profile.hardware.compute_capability == "7.0"
        assert (profile.image.recipe == "vllm-stock") == (not is_old)


def test_the_ascend_profile_pins_engine_and_cann_of_one_row_and_has_no_fp8() -> None:
    from onecat.knowledge.ascend import ascend_chip, ascend_table

    profile = load_profile("ascend910b")
    row = next(each for each in ascend_table().releases if each.engine == profile.engine.version)
    assert (profile.image.variables["cann"], profile.image.variables["torch_npu"]) == (row.cann, row.torch_npu)
    assert not any("fp8" in str(each.value).lower() for each in profile.launch.args)
    chips = [ascend_chip(name) for name in profile.hardware.gpu_names]
    assert all(chip is not None and chip.supported and not chip.fp8 for chip in chips)
    assert [each.path for each in profile.launch.container.mounts] == list(ascend_table().driver_files)
    managing = [each.path for each in profile.launch.container.devices if not each.per_accelerator]
    assert managing == list(ascend_table().device_nodes)


def test_every_card_of_a_profile_is_one_that_the_table_of_cards_knows_alike() -> None:
    from onecat.knowledge.hardware import gpu_model

    for name in SHIPPED:
        hardware = load_profile(name).hardware
        for card in hardware.gpu_names if hardware.accelerator == "nvidia" else ():
            model = gpu_model(card)
            assert model is None or model.compute_capability == hardware.compute_capability, card


@pytest.mark.parametrize("name", SHIPPED)
def test_the_schema_for_editors_accepts_each_profile(name: str) -> None:
    document = yaml.safe_load((ROOT / f"{name}.yaml").read_text())
    jsonschema.Draft202012Validator(json_schema("profile")).validate(document)


@pytest.mark.parametrize("part", sorted(each for each in ROOT.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_the_schema_for_editors_accepts_each_part_and_not_as_a_profile(part: Path) -> None:
    document = yaml.safe_load(part.read_text())
    jsonschema.Draft202012Validator(json_schema("profile-part")).validate(document)
    assert not jsonschema.Draft202012Validator(json_schema("profile")).is_valid(document)


def test_the_schema_for_editors_wants_all_of_a_profile_in_one_file() -> None:
    validator = jsonschema.Draft202012Validator(json_schema("profile"))
    document = yaml.safe_load(ONE_FILE.read_text())
    assert validator.is_valid(document)
    assert not validator.is_valid({key: value for key, value in document.items() if key != "engine"})
    assert not validator.is_valid({**document, "enigne": 1})


def test_the_schemas_are_valid_and_refuse_unknown_keys() -> None:
    for kind in ("deployment", "profile", "profile-part"):
        jsonschema.Draft202012Validator.check_schema(json_schema(kind))  # type: ignore[arg-type]
    validator = jsonschema.Draft202012Validator(json_schema("deployment"))
    good = {"name": "chat", "profile": "cpu", "model": {"path": "m"}}
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "prot": 1})
    assert not validator.is_valid({**good, "port": "8000"})


@pytest.mark.parametrize("name", ["v100x2-pcie", "v100x2-pcie-longctx", "v100x4-sxm2", "v100-16g"])
def test_a_volta_profile_never_asks_for_what_the_card_lacks(name: str) -> None:
    profile = load_profile(name)
    values = {each.arg: each.value for each in profile.launch.args}
    assert values["dtype"] == "float16"
    assert not str(values.get("kv-cache-dtype", "auto")).startswith("fp8")
    assert "enforce-eager" not in values
    assert str(profile.image.variables["cuda"]).startswith("12.6")
    assert profile.doctor.driver is not None
    assert (profile.doctor.driver.minimum, profile.doctor.driver.last_branch) == ("525.60.13", 580)


def test_the_base_images_of_the_volta_build_have_the_python_the_profile_asks_for() -> None:
    image = load_profile("v100x2-pcie").image
    pythons = {"ubuntu22.04": "3.10", "ubuntu24.04": "3.12"}
    for base in (image.base, str(image.variables["build_base"])):
        assert pythons[base.rsplit("-", 1)[1]] == image.variables["python"]


@pytest.mark.parametrize("name", ["a100x2-80g", "a100x8-pairs", "h100x2", "h200", "rtx3090x2", "t4"])
def test_the_stock_image_is_cuda_13_and_so_is_its_driver(name: str) -> None:
    profile = load_profile(name)
    assert profile.image.base == "vllm/vllm-openai:v0.27.1"
    assert profile.doctor.driver is not None
    assert profile.doctor.driver.minimum == "580.65.06"


def test_an_unknown_profile_is_told_the_list_and_the_nearest_name() -> None:
    with pytest.raises(OnecatError, match="there is no profile `v100x2`") as caught:
        load_profile("v100x2")
    assert caught.value.expected == f"one of: {', '.join(SHIPPED)}"
    assert caught.value.next_steps[0] == "did you mean `v100x2-pcie`?"


@pytest.mark.parametrize(
    ("old", "new", "at", "found"),
    [
        pytest.param("n: 0.27.1", "n: 0.27", "0.27\n", "`engine.version` is the number 0.27", id="version-is-a-float"),
        pytest.param("e, container]", "e, docker]", "docker]", '`launch.runtimes.1` is the text "docker"', id="choice"),
        pytest.param(
            "[native, container]", "[container]", "native\n", "the default runtime `native` is not listed", id="default"
        ),
        pytest.param("- arg: dtype", "- arg: port", "port\n", "`port` is set by onecat itself", id="reserved"),
        pytest.param("- arg: dtype", "- arg: enforce-eager", None, "`enforce-eager` is set twice", id="twice"),
        pytest.param(
            "name: vllm-cpu", "name: vllm", "[native, ", "onecat has no native runtime for engine `vllm`", id="native"
        ),
        pytest.param(
            "tor: none", "tor: nvidia", "nvidia\n", "accelerator `nvidia` without GPUs", id="accelerator-without-gpus"
        ),
    ],
)
def test_a_wrong_profile_is_told_at_its_place(tmp_path: Path, old: str, new: str, at: str | None, found: str) -> None:
    text = ONE_FILE.read_text()
    assert text.count(old) == 1
    text = text.replace(old, new)
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(OnecatError) as caught:
        load_profile(str(path))
    assert caught.value.found == found
    if at is not None:
        before = text[: text.index(at)]
        assert caught.value.where == f"{path}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def test_the_default_runtime_is_a_choice_of_the_listed_ones(tmp_path: Path) -> None:
    text = ONE_FILE.read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("runtime: native", "runtime: container"))
    assert load_profile(str(path)).launch.runtime == "container"
