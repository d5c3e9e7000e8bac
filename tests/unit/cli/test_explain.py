"""onecat explain, as a person types it."""

from __future__ import annotations

import json
import subprocess

from tests.unit.cli.in_process import run_onecat


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_onecat("explain", *arguments)


def test_the_page_of_a_check_says_what_is_claimed_elsewhere_and_whether_it_is_so() -> None:
    done = run("pcie.link-width")
    assert (done.returncode, done.stderr) == (0, "")
    headings = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert headings == [
        "pcie.link-width",
        "What it looks at",
        "Why it matters",
        "How to fix",
        "What how-to articles say about it, and whether it is so",
        "Sources",
    ]
    assert "    true: Width is evidence at any time" in done.stdout


def test_an_area_lists_its_checks_and_a_topic_its_claims() -> None:
    assert "pcie.generation" in run("pcie").stdout
    shown = run("nvfp4").stdout
    assert "not true: It is four bits a value (E2M1)" in shown
    assert "checks: model.checkpoint" in shown


def test_all_claims_can_be_listed() -> None:
    document = json.loads(run("--claims", "--json").stdout)
    assert (document["schema"], document["checks"]) == ("onecat.explain/1", [])
    assert len(document["claims"]) > 80
    area = json.loads(run("selinux", "--claims", "--json").stdout)
    assert "selinux-off" in {claim["id"] for claim in area["claims"]}


def test_a_word_in_any_case_means_the_same() -> None:
    assert run("PCIE").stdout == run("pcie").stdout
    assert run("GPU.Xid").stdout == run("gpu.xid").stdout


def test_no_word_at_all_is_no_topic() -> None:
    done = run("")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no check, area or topic is called ''" in done.stderr


def test_an_unknown_word_is_answered_with_the_nearest() -> None:
    for word, near in (("gpu.cuont", "gpu.count"), ("nvpf4", "nvfp4")):
        done = run(word)
        assert (done.returncode, done.stdout) == (2, "")
        assert near in done.stderr
