"""Doctor and a real Docker daemon: reachable, forbidden, gone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.testbed.command import Onecat, Result


def docker_finding(result: Result) -> dict[str, Any]:
    (host,) = result.json()["hosts"]
    (finding,) = [each for each in host["findings"] if each["check"] == "docker.daemon"]
    return finding


def test_a_daemon_that_answers_passes_with_its_version(onecat_with_docker: Onecat, docker_client: Any) -> None:
    result = onecat_with_docker("doctor", "--profile", "cpu", "--runtime", "container", "--only", "docker.*", "--json")
    finding = docker_finding(result.expect(0))
    assert finding["status"] == "pass"
    assert finding["title"] == f"Docker {docker_client.version()['Version']} answers"
    facts = onecat_with_docker("facts", "--json").expect(0).json()
    info = docker_client.info()
    assert facts["docker"]["root_directory"] == info["DockerRootDir"]
    assert facts["docker"]["storage_driver"] == info["Driver"]
    assert "docker" in {each["purpose"] for each in facts["filesystems"]}


def test_a_socket_that_refuses_the_user_is_told_with_the_group_to_join(onecat_with_docker: Onecat) -> None:
    arguments = ("--profile", "cpu", "--runtime", "container", "--only", "docker.daemon", "--json")
    result = onecat_with_docker("doctor", *arguments, unprivileged=True).expect(1)
    finding = docker_finding(result)
    assert (finding["status"], finding["title"]) == ("fail", "The Docker daemon refuses the user nobody")
    assert finding["fix"][0] == "sudo usermod -aG docker nobody"


def test_without_a_daemon_the_cpu_profile_runs_natively_and_that_is_said(onecat: Onecat) -> None:
    text = onecat("doctor", "--root", "/", "--skip", "disk.*", "--profile", "cpu").expect(0).stdout
    assert "info  No Docker daemon answers: servers can run natively only [docker.daemon]" in text


def test_this_machine_is_told_what_it_can_run(onecat: Onecat) -> None:
    result = onecat("doctor").expect(0)
    assert "This machine can run: cpu (native)" in result.stdout
    assert re.search(
        r"not [a-z0-9, -]*\bv100x2-pcie, [a-z0-9, -]*: No NVIDIA GPU was found", " ".join(result.stdout.split())
    )
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_ports_come_from_onecat_yaml(onecat: Onecat, tmp_path: Path) -> None:
    file = tmp_path / "onecat.yaml"
    file.write_text("name: t\nprofile: cpu\nmodel: {path: m}\nport: 8123\nproxy: {kind: none}\n")
    (tmp_path / "m").mkdir()
    document = onecat("doctor", "--config", file, "--only", "serving.*", "--json").expect(0).json()
    assert document["profile"] == "cpu"
    findings = {each["check"]: each for each in document["hosts"][0]["findings"]}
    assert findings["serving.port"]["subject"] == "port 8123"
    assert findings["serving.proxy-port"]["status"] == "skip"


def test_the_disk_below_a_model_is_looked_at_where_the_model_is_a_directory(onecat: Onecat, tmp_path: Path) -> None:
    def statuses(model: str) -> list[tuple[str, str]]:
        document = onecat("doctor", "--model", model, "--only", "disk.model", "--json").expect(0).json()
        return [(each["status"], each["subject"]) for each in document["hosts"][0]["findings"]]

    assert statuses(str(tmp_path)) in ([("pass", str(tmp_path))], [("info", str(tmp_path))])
    assert statuses("meta-llama/Llama-3.1-8B") == [("skip", "")]


def test_usage_errors_are_told_before_anything_is_observed(onecat: Onecat, tmp_path: Path) -> None:
    assert "names no host" in onecat("doctor", "--host", "-oProxyCommand=id").expect(2).stderr
    assert "no check fits 'gpu.cuont'" in onecat("doctor", "--only", "gpu.cuont").expect(2).stderr
    assert "has no native runtime" in onecat("doctor", "-p", "h200", "--runtime", "native").expect(2).stderr
    assert "does not exist" in onecat("doctor", "--from", tmp_path / "none.json").expect(2).stderr
    assert "perhaps pcie.link-width" in onecat("explain", "pcie.linkwidth").expect(2).stderr
    assert onecat("doctor", "--host", "a b", "--json").expect(2).json()["schema"] == "onecat.error/1"


def test_explain_prints_the_page_of_a_check_and_the_list_of_all(onecat: Onecat) -> None:
    page = onecat("explain", "driver.last-branch").expect(0).stdout
    assert "What it looks at" in page and "the last branch is 580" in page.replace("\n  ", " ")
    index = onecat("explain").expect(0).stdout
    assert "driver.last-branch" in index and "pcie.link-width" in index
    assert len(onecat("explain", "--json").expect(0).json()["checks"]) >= 30
