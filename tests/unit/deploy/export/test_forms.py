"""What holds for every form of export and every profile."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from onecat.config import list_profiles
from onecat.deploy.export import Options, find_form, forms
from onecat.deploy.export.marking import condition
from onecat.errors import ExitCode, OnecatError
from tests.unit.deploy.export.examples import KEY, exported, request

CONTAINERS = [name for name, form in forms().items() if form.needs_container]


def test_the_forms_are_those_that_are_promised() -> None:
    assert list(forms()) == ["compose", "grafana", "kubernetes", "nginx", "prometheus", "quadlet", "systemd"]
    with pytest.raises(OnecatError) as raised:
        find_form("helm")
    assert raised.value.code == ExitCode.USAGE and "compose" in (raised.value.expected or "")


@pytest.mark.parametrize("form", forms())
@pytest.mark.parametrize("profile", list_profiles())
def test_every_file_says_who_wrote_it_and_holds_nothing_of_this_machine(form: str, profile: str) -> None:
    for file in exported(form, request(profile, secrets=KEY)).values():
        assert condition(file.text) == "ours", file.path
        assert sys.prefix not in file.text and str(Path(__file__).parents[4]) not in file.text, file.path
        assert not re.search(r"image: \S*:latest|Image=\S*:latest", file.text)
        assert file.mode in (0o644, 0o755) and not file.path.startswith("/")


@pytest.mark.parametrize("form", forms())
def test_a_key_is_named_and_never_read(form: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-nobody-may-see-this")
    files = exported(form, request("cpu", secrets={"api_key": {"file": str(tmp_path / "key")}}))
    assert not any("sk-nobody" in each.text or str(tmp_path) in each.text for each in files.values())
    if form not in ("nginx", "prometheus", "grafana"):
        assert any("api_key" in each.text for each in files.values())


@pytest.mark.parametrize("form", [name for name, form in forms().items() if form.first_step is None])
def test_the_top_says_what_to_do_first(form: str) -> None:
    first = next(iter(exported(form, request("v100x2-pcie", secrets=KEY)).values())).text
    assert "What to do first:" in first and "\n# Then" in first


@pytest.mark.parametrize("form", CONTAINERS)
@pytest.mark.parametrize("image", ["vllm", "registry:5000/vllm", "vllm:latest"])
def test_an_image_that_may_be_another_one_tomorrow_is_refused(form: str, image: str) -> None:
    with pytest.raises(OnecatError, match="the tag latest|no tag"):
        exported(form, request("cpu", Options(image=image)))


@pytest.mark.parametrize("form", CONTAINERS)
def test_an_image_by_its_digest_is_taken(form: str) -> None:
    image = "registry:5000/vllm@sha256:" + "0" * 64
    assert any(image in each.text for each in exported(form, request("cpu", Options(image=image))).values())


def test_a_note_cannot_end_its_comment() -> None:
    served = "x\nExecStart=/bin/sh"
    for form in CONTAINERS:
        text = next(iter(exported(form, request("cpu", model={"path": "/m", "served_name": served})).values())).text
        assert not re.search(r"^ExecStart=", text, re.MULTILINE), form


def test_the_help_names_every_form() -> None:
    """It is text, so that --help loads none of them."""
    from onecat.cli.export import FORMS_HELP

    assert sorted(re.findall(r"[a-z]{5,}", FORMS_HELP)) == list(forms())
