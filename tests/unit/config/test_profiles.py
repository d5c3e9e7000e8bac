"""The profiles that ship, the schemas for editors, and what a wrong profile is told."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from onecat.config import json_schema, list_profiles, load_profile
from onecat.errors import OnecatError
from onecat.resources import resource_directory

SHIPPED = ("a100x2-80g", "cpu", "h200", "v100x2-pcie")


def test_the_profiles_that_ship_are_listed() -> None:
    assert list_profiles() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_each_profile_loads_bears_its_file_name_and_gives_reasons_with_sources(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert all(each.why and each.source for each in (*profile.launch.args, *profile.launch.env))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_schema_for_editors_accepts_each_profile(name: str) -> None:
    document = yaml.safe_load((resource_directory("profiles") / f"{name}.yaml").read_text())
    jsonschema.Draft202012Validator(json_schema("profile")).validate(document)


def test_the_schemas_are_valid_and_refuse_unknown_keys() -> None:
    for kind in ("deployment", "profile"):
        jsonschema.Draft202012Validator.check_schema(json_schema(kind))  # type: ignore[arg-type]
    validator = jsonschema.Draft202012Validator(json_schema("deployment"))
    good = {"name": "chat", "profile": "cpu", "model": {"path": "m"}}
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "prot": 1})
    assert not validator.is_valid({**good, "port": "8000"})


def test_a_volta_profile_never_asks_for_what_the_card_lacks() -> None:
    profile = load_profile("v100x2-pcie")
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


@pytest.mark.parametrize("name", ["a100x2-80g", "h200"])
def test_the_stock_image_is_cuda_13_and_so_is_its_driver(name: str) -> None:
    profile = load_profile(name)
    assert profile.image.base == "vllm/vllm-openai:v0.27.1"
    assert profile.doctor.driver is not None
    assert profile.doctor.driver.minimum == "580.65.06"


def test_an_unknown_profile_is_told_the_list_and_the_nearest_name() -> None:
    with pytest.raises(OnecatError, match="there is no profile `v100x2`") as caught:
        load_profile("v100x2")
    assert caught.value.expected == "one of: a100x2-80g, cpu, h200, v100x2-pcie"
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
    text = (resource_directory("profiles") / "cpu.yaml").read_text()
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
    text = (resource_directory("profiles") / "cpu.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("runtime: native", "runtime: container"))
    assert load_profile(str(path)).launch.runtime == "container"
