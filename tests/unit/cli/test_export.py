"""`onecat export`, as a person types it; no Docker, GPU or network is there for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onecat.checkpoints import write_tiny_checkpoint
from tests.unit.cli.in_process import run_onecat


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write_tiny_checkpoint(tmp_path / "tiny")
    (tmp_path / "onecat.yaml").write_text(
        "name: demo\nprofile: v100x2-pcie\nmodel: {path: ./tiny}\nsecrets: {api_key: {file: ./key}}\n"
    )
    return tmp_path


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    nothing = {"PATH": "/nonexistent", "HOME": "/nonexistent", "DOCKER_HOST": "unix:///nonexistent"}
    return run_onecat("export", *arguments, directory=directory, environment=nothing)


def test_one_file_is_printed_and_several_are_named(site: Path) -> None:
    manifest = run(site, "kubernetes")
    assert manifest.returncode == 0 and manifest.stdout.startswith("# Written by `onecat export kubernetes`")
    several = run(site, "compose")
    assert several.stdout.splitlines()[0].split()[::2] == ["0644", "compose.yaml"]
    assert "--output DIR" in several.stderr


def test_files_are_written_and_a_second_time_nothing_changes(site: Path) -> None:
    first = run(site, "systemd", "--output", "out")
    assert first.stdout.splitlines() == ["wrote  out/onecat-demo.service", "wrote  out/onecat-demo-ready"]
    assert (site / "out/onecat-demo-ready").stat().st_mode & 0o777 == 0o755
    assert run(site, "systemd", "--output", "out").stdout.splitlines()[0] == "same   out/onecat-demo.service"
    (site / "out/onecat-demo.service").write_text("mine")
    refused = run(site, "systemd", "--output", "out")
    assert refused.returncode == 2 and "was not written by onecat" in refused.stderr
    assert (site / "out/onecat-demo.service").read_text() == "mine"


def test_json_holds_all_files(site: Path) -> None:
    document = json.loads(run(site, "quadlet", "--json", "--output", "out").stdout)
    assert (document["schema"], document["form"], document["deployment"]) == ("onecat.export/1", "quadlet", "demo")
    assert document["files"][0].keys() == {"path", "mode", "text"}
    assert document["written"] == [f"out/{each['path']}" for each in document["files"]]
    assert json.loads(run(site, "nginx", "--json").stdout)["written"] is None


def test_a_model_that_is_elsewhere_needs_its_configuration_only(site: Path) -> None:
    (site / "here").mkdir()
    shutil.move(site / "tiny/config.json", site / "here/config.json")
    shutil.rmtree(site / "tiny")
    missing = run(site, "kubernetes")
    assert missing.returncode == 2
    assert "config.json" in missing.stderr and "--checkpoint" in missing.stderr
    found = run(site, "kubernetes", "--checkpoint", "here")
    assert found.returncode == 0 and f"path: {site}/tiny" in found.stdout


def test_what_the_engine_would_refuse_is_not_exported(site: Path) -> None:
    refused = run(site, "compose", "--set", "tensor-parallel-size=7")
    assert refused.returncode == 1 and "the engine would refuse this" in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("helm",), "there is no form 'helm' to export"),
        (("compose", "--user", "root"), "--user root"),
        (("compose", "--user", "0"), "--user 0 is root"),
        (("compose", "--image", "vllm"), "has no tag"),
    ],
)
def test_wrong_input_is_told(site: Path, arguments: tuple[str, ...], told: str) -> None:
    done = run(site, *arguments)
    assert (done.returncode, done.stdout) == (2, "") and told in done.stderr


def test_without_onecat_yaml_the_next_step_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "compose")
    assert done.returncode == 2 and "onecat.yaml" in done.stderr


def test_a_native_server_needs_to_be_told_where_vllm_is(site: Path) -> None:
    text = (site / "onecat.yaml").read_text().replace("v100x2-pcie", "cpu\nruntime: native")
    (site / "onecat.yaml").write_text(text)
    refused = run(site, "systemd")
    assert refused.returncode == 2 and "--program" in refused.stderr
    unit = run(site, "systemd", "--program", "/opt/vllm/bin/vllm", "--output", "out")
    assert unit.returncode == 0
    text = (site / "out/onecat-demo.service").read_text()
    assert "/usr/bin/python3 -I /usr/local/lib/onecat/health_gate.py" in text and sys.prefix not in text
