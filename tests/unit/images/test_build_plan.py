"""What a build will do, computed from the context, the engine that builds and what is known about costs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onecat.config import load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.images import BuildOptions, PackageOrigins, render_context
from onecat.images.build_host import BuildHost, local_free_space
from onecat.images.build_plan import (
    BuildPlan,
    check_plan,
    compile_cost,
    jobs_for,
    make_build_plan,
)
from onecat.images.build_plan_text import minutes_range, plan_document, plan_lines, size_range
from onecat.images.dockerfile import instructions
from onecat.knowledge.build_costs import build_costs

GIB = 2**30
HOST = BuildHost("unix:///x", "20.10.24", "/var/lib/docker", 64 * GIB, 16, 500 * GIB)
OPTIONS = BuildOptions(PackageOrigins(torch_index_url="https://torch.example/cu126"))


def planned(
    name: str = "v100x2-pcie", host: BuildHost = HOST, options: BuildOptions = OPTIONS, **changes: Any
) -> BuildPlan:
    profile = load_profile(name)
    context = render_context(profile, options=options)
    return make_build_plan(profile, context, options, host, "buildkit", build_costs(), **changes)


@pytest.mark.parametrize(
    ("memory", "cpus", "jobs"), [(64, 16, 16), (8, 16, 3), (8, 2, 2), (2, 8, 1), (0.5, 8, 1), (1024, 1, 1)]
)
def test_jobs_follow_from_the_build_hosts_processors_and_memory(memory: float, cpus: int, jobs: int) -> None:
    host = replace(HOST, memory_bytes=int(memory * GIB), cpus=cpus)
    plan = planned(host=host)
    assert plan.max_jobs == jobs
    assert "2 GiB per compiler" in plan.why_jobs and f"{cpus} processors" in plan.why_jobs


def test_jobs_that_were_asked_for_are_taken_and_judged() -> None:
    plan = planned(options=replace(OPTIONS, max_jobs=64), host=replace(HOST, memory_bytes=16 * GIB))
    assert (plan.max_jobs, plan.why_jobs) == (64, "as asked")
    assert any("may want 128 GiB and the build host has 16.0 GiB" in each for each in plan.warnings)
    assert not planned(options=replace(OPTIONS, max_jobs=4)).warnings


def test_newer_architectures_cost_more_memory_per_compiler() -> None:
    profile = load_profile("v100x2-pcie")
    context = render_context(profile, options=OPTIONS)
    mixed = profile.model_copy(
        update={"image": profile.image.model_copy(update={"variables": {"arch_list": "7.0 8.0+PTX"}})}
    )
    costs = build_costs()
    volta, newer = (compile_cost(each, context, OPTIONS, costs) for each in (profile, mixed))
    assert volta is not None and newer is not None
    assert volta.units == 50 and newer.units is None and newer.gib_per_job > volta.gib_per_job
    assert jobs_for(newer, HOST)[0] == 11


def test_nothing_is_compiled_where_a_wheel_is_given_or_the_engine_comes_ready(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-0.27.1-cp312-cp312-linux_x86_64.whl"
    wheel.write_bytes(b"x")
    for plan in (planned(options=replace(OPTIONS, wheel=wheel)), planned("h200", options=BuildOptions())):
        assert plan.max_jobs is None and plan.compile is None


def test_compiling_takes_as_long_as_the_files_and_the_jobs_say() -> None:
    two, one = planned(host=replace(HOST, cpus=2)).compile, planned(host=replace(HOST, cpus=1)).compile
    assert two is not None and one is not None and one.units == 50
    assert one.low is not None and one.high is not None and two.high is not None
    assert one.low == pytest.approx(50 * 9 / 60) and one.high == pytest.approx(50 * 60 / 60)
    assert two.high == pytest.approx(one.high / 2)
    many = planned(host=replace(HOST, cpus=256, memory_bytes=2048 * GIB)).compile
    assert many is not None and many.high == pytest.approx(1.0), "one file is compiled by one job"
    asked = planned(host=replace(HOST, cpus=2), options=replace(OPTIONS, max_jobs=64)).compile
    assert asked is not None and asked.high == two.high, "more jobs than processors make nothing faster"


def test_what_is_downloaded_from_where_by_whom() -> None:
    plan = planned()
    found = {(each.kind, each.by) for each in plan.downloads}
    assert {("base image", "the engine"), ("source", "onecat"), ("packages", "build steps")} <= found
    torch = next(each for each in plan.downloads if "torch" in each.what)
    assert torch.origin == "https://torch.example/cu126" and torch.low == 821e6 and torch.high is None
    assert all(each.known_from for each in plan.downloads if each.low is not None)


def test_each_download_says_the_place_that_was_chosen(tmp_path: Path) -> None:
    def origins(**chosen: Any) -> dict[str, str]:
        options = BuildOptions(PackageOrigins(**chosen))
        return {each.what.split(" (")[0]: each.origin for each in planned(options=options).downloads}

    nothing = origins(index_url="https://pypi.example/simple")
    assert nothing["packages of the distribution"] == "the base image's archive or --apt-mirror"
    assert nothing["further sources by git"] == "their upstream repositories or --find-links"
    assert nothing["Python packages"] == nothing["torch for CUDA 12.6"] == "https://pypi.example/simple"
    folder = origins(find_links=tmp_path, apt_mirror="http://apt.example/ubuntu")
    assert folder["packages of the distribution"] == "http://apt.example/ubuntu"
    assert folder["further sources by git"] == f"their upstream repositories or {tmp_path}"
    assert folder["Python packages"] == f"the index of the base image's pip or {tmp_path}"
    assert folder["torch for CUDA 12.6"] == str(tmp_path)
    both = origins(index_url="https://pypi.example/simple", torch_index_url="https://torch.example/cu126")
    assert both["Python packages"] == "https://pypi.example/simple or https://torch.example/cu126"
    assert both["torch for CUDA 12.6"] == "https://torch.example/cu126"


def test_offline_what_is_not_here_is_a_warning() -> None:
    options = replace(OPTIONS, origins=replace(OPTIONS.origins, offline=True))
    plan = planned(options=options)
    assert "--offline: nvidia/cuda:12.6.3-devel-ubuntu24.04 must be here already, and is not" in plan.warnings
    assert "--offline: vllm-0.27.1.tar.gz must be here already, and is not" in plan.warnings
    assert not any("must be here" in each for each in planned().warnings)


def test_what_is_there_is_not_downloaded(tmp_path: Path) -> None:
    context = render_context(load_profile("v100x2-pcie"), options=OPTIONS)
    assert context.source is not None
    archive = tmp_path / context.source.file
    plan = planned(host=replace(HOST, images=dict.fromkeys(context.bases, 5)), stored=[archive])
    assert not {"base image", "source"} & {each.kind for each in plan.downloads}


def test_offline_nothing_is_fetched_by_steps() -> None:
    options = replace(OPTIONS, origins=replace(OPTIONS.origins, offline=True))
    plan = planned(options=options)
    assert not [each for each in plan.downloads if each.by == "build steps"]
    assert not [step for step in plan.steps if step.fetches]


def test_steps_that_need_a_network_are_known() -> None:
    steps = planned().steps
    assert {"toolchain", "environment"} <= {step.stage for step in steps if step.fetches == "Python packages"}
    compiling = [step for step in steps if step.stage == "compile"]
    assert compiling and not any(step.fetches for step in compiling), "the compile step has --no-index"
    assert not any(step.fetches for step in planned("h200", options=BuildOptions()).steps)


def test_a_disk_that_cannot_hold_it_stops_the_build_before_it_begins() -> None:
    plan = planned("h200", host=replace(HOST, free_bytes=20 * GIB), options=BuildOptions())
    assert plan.disk_low >= 22e9, "the base image alone"
    with pytest.raises(OnecatError, match="are free at /var/lib/docker, and at least 22.0 GB are needed") as raised:
        check_plan(plan)
    assert raised.value.code is ExitCode.ROLLED_BACK
    check_plan(planned("h200", host=replace(HOST, free_bytes=None), options=BuildOptions()))


def test_a_disk_smaller_than_the_profile_wants_is_a_warning() -> None:
    plan = planned(host=replace(HOST, free_bytes=10 * GIB))
    assert not plan.problems and any("the profile wants" in each for each in plan.warnings)


def test_an_image_that_is_there_needs_no_words() -> None:
    plan = planned(up_to_date=True)
    assert plan_lines(plan) == ["plan: onecat/vllm-patched:0.27.1-sm70 is up to date; nothing to do"]
    assert not plan.steps and not plan.downloads and not plan.problems


@pytest.mark.parametrize("name", ["v100x2-pcie", "h200", "cpu"])
def test_the_lines_fit_and_the_document_holds_all(name: str) -> None:
    plan = planned(name, last_seconds=7200)
    lines = plan_lines(plan)
    assert all(len(line) <= 80 for line in lines), [line for line in lines if len(line) > 80]
    assert any("2.0 h the last time" in line for line in lines)
    document = plan_document(plan)
    assert document["max_jobs"] == plan.max_jobs and len(document["steps"]) == len(plan.steps)
    assert document["host"]["memory_bytes"] == 64 * GIB


def test_ranges_say_what_is_unknown() -> None:
    assert size_range(None, None) == "size unknown"
    assert size_range(1e9, None) == "at least 1.0 GB" and size_range(1e9, 2e9) == "1.0 GB to 2.0 GB"
    assert size_range(None, 1e9) == size_range(1e9, 1e9) == "1.0 GB"
    assert minutes_range(None, 3) == "unknown" and minutes_range(3, 120) == "3 min to 2.0 h"


def test_the_space_of_a_place_that_is_not_here_is_unknown(tmp_path: Path) -> None:
    assert local_free_space(str(tmp_path / "not-there")) is None
    assert (local_free_space(str(tmp_path)) or 0) > 0


def test_every_number_has_its_source() -> None:
    costs = build_costs()
    for row in (*costs.images, *costs.packages, *costs.compile):
        assert row.source and all(re.match("https://", url) for url in row.source)


def test_a_dockerfile_is_read_as_stages_and_whole_instructions() -> None:
    text = "# x\nARG X=1\nFROM a:1 AS one\nRUN x \\\n # remark\n && y\n\nfrom --platform=linux/amd64 b\nCOPY . .\n"
    found = instructions(text)
    assert [(each.stage, each.line, each.text) for each in found] == [
        ("", 2, "ARG X=1"),
        ("one", 3, "FROM a:1 AS one"),
        ("one", 4, "RUN x && y"),
        ("stage-1", 8, "from --platform=linux/amd64 b"),
        ("stage-1", 9, "COPY . ."),
    ]
    assert [each.is_step for each in found] == [False, False, True, False, True]
