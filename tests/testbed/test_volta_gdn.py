"""Gated delta nets on compute capability 7.0: which variants of their kernels Triton tries, and what these compute."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.testbed.cache import Cache
from tests.testbed.patched_runtime import PatchedRuntime
from tests.testbed.volta.programs import Programs, ensure_triton

if TYPE_CHECKING:
    from onecat.images import NativeRuntime

HERE = Path(__file__).parent
SHARED_MEMORY = 96 * 1024  # bytes that a block of a V100 may have
# What ptxas leaves a kernel when it gives up allocating registers; then nearly every operand goes through memory.
GIVEN_UP = 32
OURS = {
    "chunk_gated_delta_rule_fwd_kernel_h_blockdim64": 3,
    "chunk_fwd_kernel_o": 2,
    "chunk_scaled_dot_kkt_fwd_kernel": 2,
    "merge_16x16_to_64x64_inverse_kernel": 2,
    "recompute_w_u_fwd_kernel": 2,
}


@pytest.fixture(scope="module")
def answers(engine_runtime: NativeRuntime, patched_runtime: PatchedRuntime, cache: Cache) -> dict[str, Any]:
    """Of volta/gdn_variants.py, and under `numbers` those of volta_kernels/gdn_numbers.py."""
    triton = ensure_triton(engine_runtime.python, cache)
    programs = Programs(engine_runtime.python, triton, kernels=cache.folder("triton-kernels"))
    tool = triton / "triton" / "backends" / "nvidia" / "bin" / "cuobjdump"

    def answer(program: str, **request: str) -> Any:
        return programs.run(str(HERE / program), patched_runtime.packages, request)

    with ThreadPoolExecutor(2) as pool:
        numbers = pool.submit(answer, "volta_kernels/gdn_numbers.py")
        variants = answer("volta/gdn_variants.py", cuobjdump=str(tool))
        return {**variants, "numbers": numbers.result()}


def by_name(counts: dict[str, int]) -> dict[str, int]:
    return {path.rpartition(".")[2]: count for path, count in counts.items()}


@pytest.mark.engine
def test_on_7_0_triton_tries_a_tenth_of_the_variants_and_it_is_said(answers: dict[str, Any]) -> None:
    assert sum(answers["off"]["counts"].values()) == 96
    assert by_name(answers["on"]["counts"]) == by_name(answers["loaded later"]["counts"]) == OURS
    [line] = answers["on"]["log"]
    assert "few variants of the prefill kernels of gated delta nets" in line and "VLLM_VOLTA_GDN=0" in line


@pytest.mark.engine
def test_other_gpus_keep_vllms_lists_and_so_does_7_0_when_told(answers: dict[str, Any]) -> None:
    wanted = answers["wanted"]
    assert [name for name in ("7.0", "7.2", "7.5", "8.0", "9.0") if wanted[name]] == ["7.0", "7.2"]
    assert {choice for choice, answer in wanted.items() if choice.endswith(" 0") and answer} == set()
    assert all(wanted[f"{name} 1"] for name in ("7.0", "7.5", "8.0", "9.0")), "to try them on other GPUs"
    assert answers["off"]["log"] == []


@pytest.mark.engine
def test_a_kernel_that_has_other_tiles_keeps_its_variants_and_it_is_said(answers: dict[str, Any]) -> None:
    assert answers["other tiles"] == {
        "counts": 2,
        "log": ["vllm_volta leaves vLLM's variants of chunk_fwd_kernel_o: it has tiles ['BK'], not ['BK', 'BV']"],
    }


@pytest.mark.engine
def test_stages_change_nothing_on_7_0(answers: dict[str, Any]) -> None:
    assert answers["stages"] == 1


@pytest.mark.engine
def test_what_is_left_assembles_for_7_0_and_fits_its_registers_and_shared_memory(answers: dict[str, Any]) -> None:
    compiled = [each for each in answers["compiled"] if each["kernel"] in OURS]
    assert {name: sum(each["kernel"] == name for each in compiled) for name in OURS} == OURS
    for each in answers["compiled"]:
        assert each["shared_memory"] <= SHARED_MEMORY, each
        assert each["registers"] != GIVEN_UP and each["stack"] <= 2048, each


@pytest.mark.engine
def test_the_kernels_compute_the_gated_delta_rule_as_well_as_with_vllms_variants(answers: dict[str, Any]) -> None:
    theirs, ours = answers["numbers"]["theirs"], answers["numbers"]["ours"]
    assert len(ours) == 2, "two choices of tiles for two kernels"
    for errors in ours:
        assert all(error <= 1.01 * other for error, other in zip(errors, theirs, strict=True)), (errors, theirs)
    output, state = theirs
    assert output <= 5e-4 and state <= 5e-4, "rounding to float16 alone is 2e-4 by norm"
