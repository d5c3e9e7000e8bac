"""What onecat knows of GPUs: which code runs where, what an Xid means, what a PCIe link carries."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.doctor.cuda_code import Code, capability_of, code_of, split_list
from onecat.knowledge.cuda_builds import image_build, image_builds, torch_build, torch_builds
from onecat.knowledge.hardware import architectures, driver_branches, gpu_model, gpu_models
from onecat.knowledge.pcie import generation_of_speed, pcie_generation, pcie_generations
from onecat.knowledge.xids import Xid, xid_meaning, xids


@pytest.mark.parametrize(
    ("listed", "capability", "runs"),
    [
        ("sm_70", (7, 0), True),
        ("sm_70", (7, 5), True),  # a higher minor of the same major
        ("sm_75", (7, 0), False),
        ("sm_80", (9, 0), False),
        ("compute_70", (9, 0), True),  # PTX is compiled for what comes later
        ("compute_75", (7, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (9, 1), False),  # code for one architecture alone
        ("sm_100f", (10, 3), True),
        ("sm_120", (12, 1), True),
        ("7.5;8.0;12.0+PTX", (12, 1), True),
        ("7.5 8.0 12.0+PTX", (7, 0), False),
        ("7.0+PTX", (12, 0), True),
        ("9.0a", (9, 0), True),
    ],
)
def test_code_runs_on_its_own_major_and_ptx_on_all_that_follow(
    listed: str, capability: tuple[int, int], runs: bool
) -> None:
    assert any(code.runs_on(capability) for code in code_of(split_list(listed))) is runs


def test_entries_of_another_form_are_left_out() -> None:
    assert code_of(["sm_90", "gfx942", "", "native", "All"]) == (Code((9, 0)),)


@given(st.text() | st.from_regex(r"(sm_|compute_)?\d{1,4}(\.\d)?[af]?(\+PTX)?", fullmatch=True))
def test_any_text_can_stand_in_a_list(text: str) -> None:
    for code in code_of(split_list(text)):
        assert code.runs_on(code.capability)


@pytest.mark.parametrize(
    ("text", "number"), [("7.0", (7, 0)), ("12.1", (12, 1)), ("7", None), ("", None), (None, None), ("9.0a", None)]
)
def test_a_compute_capability_is_two_numbers(text: str | None, number: tuple[int, int] | None) -> None:
    assert capability_of(text) == number


@pytest.mark.parametrize(
    ("reference", "known"),
    [
        ("vllm/vllm-openai:v0.27.1", True),
        ("docker.io/vllm/vllm-openai:v0.27.1", True),
        ("vllm/vllm-openai:v0.8.5.post1", True),
        ("vllm/vllm-openai:latest", False),
        ("vllm/vllm-openai", False),
        ("vllm/vllm-openai:v0.10.0", False),  # seen with and without: it has to be looked at
        ("vllm/vllm-openai:v0.27.1-cu129", False),
        ("example.org/vllm-openai:v0.27.1", False),
    ],
)
def test_an_image_is_known_by_a_plain_release_number(reference: str, known: bool) -> None:
    assert (image_build(reference) is not None) is known


@pytest.mark.parametrize(
    ("torch", "cuda", "has_volta"),
    [
        ("2.13.0+cu126", "12.6", True),
        ("2.13.0+cu130", "13.0", False),
        ("2.7.0", "12.8", False),
        ("2.7.0", "12.6", True),
        ("2.10.0+cu128", "12.8", True),
        ("2.11.0+cu128", "12.8", False),
        ("2.10.0a0+b558c986e8.nv25.11", "13.0", None),  # NVIDIA's own build
        ("2.3.0", "12.1", None),
        ("", "", None),
    ],
)
def test_a_wheel_of_pytorch_is_known_by_its_version_and_cuda(torch: str, cuda: str, has_volta: bool | None) -> None:
    build = torch_build(torch, cuda)
    assert (build and "7.0" in build.has or None if has_volta is None else build and "7.0" in build.has) == has_volta


def test_an_xid_means_what_it_means_for_its_architecture() -> None:
    def title(number: int, architecture: str | None, text: str = "") -> str | None:
        meaning = xid_meaning(number, text, architecture)
        return meaning.title if meaning else None

    assert "page" in (title(63, "Volta") or "")
    assert "row" in (title(63, "Ampere") or "")
    assert title(119, "Volta") is None
    assert title(94, "Volta") is None
    assert title(119, None) is not None
    assert title(12345, None) is None


def test_an_xid_154_is_as_bad_as_the_action_that_it_names() -> None:
    def severity(action: str) -> str | None:
        meaning = xid_meaning(154, f"GPU recovery action changed from 0x0 (None) to 0x2 ({action})", "Hopper")
        return meaning.severity if meaning else None

    assert [severity(each) for each in ("Node Reboot Required", "GPU Reset Required", "Drain P2P", "None")] == [
        "fail",
        "fail",
        "warn",
        "info",
    ]


def test_rows_about_xids_are_whole_and_reachable() -> None:
    known = {each.name for each in architectures()}
    seen: list[Xid] = []
    for row in xids():
        assert row.severity in ("fail", "warn", "info") and row.title and row.why and row.fix and row.source
        assert set(row.architectures) <= known
        assert row not in seen
        found = {xid_meaning(row.xid, row.text, name) for name in row.architectures or sorted(known)}
        assert row in found, f"an earlier row hides {row}"
        seen.append(row)


@pytest.mark.parametrize(
    ("speed", "generation"),
    [
        ("8.0 GT/s PCIe", 3),
        ("8GT/s", 3),
        ("2.5 GT/s", 1),
        ("16 GT/s PCIe", 4),
        ("32.0 GT/s PCIe", 5),
        ("Unknown", None),
    ],
)
def test_a_speed_is_a_generation(speed: str, generation: int | None) -> None:
    assert generation_of_speed(speed) == generation


def test_a_link_carries_its_rate_less_the_line_code() -> None:
    third = pcie_generation(3)
    assert third is not None
    assert third.gigabytes_per_second(16) == pytest.approx(15.75, abs=0.01)
    for each in pcie_generations():
        code = 8 / 10 if each.generation < 3 else 128 / 130
        assert each.lane_bytes_per_second == int(float(each.speed.split()[0]) * 1e9 * code / 8)


def test_a_product_is_known_with_and_without_its_maker() -> None:
    assert gpu_model("A100-SXM4-80GB") == gpu_model("NVIDIA A100-SXM4-80GB")
    assert gpu_model("NVIDIA Tesla V100-PCIE-32GB") is None
    assert len({each.name for each in gpu_models()}) == len(gpu_models())


def test_every_row_has_a_source() -> None:
    rows = [*xids(), *pcie_generations(), *driver_branches(), *image_builds(), *torch_builds(), *gpu_models()]
    for row in rows:
        assert dataclasses.is_dataclass(row) and row.source
        assert all(address.startswith("https://") for address in row.source)
