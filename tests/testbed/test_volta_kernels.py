"""vllm_volta in the engine's interpreter: its numbers, and what is chosen because of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onecat.checkpoints import write_tiny_checkpoint
from tests.testbed import quantised_checkpoints
from tests.testbed.cache import Cache
from tests.testbed.patched_runtime import PatchedRuntime, lay_out
from tests.testbed.sources import vllm_series
from tests.testbed.volta.programs import Programs, ensure_triton
from tests.testbed.volta_kernels import checks, panel_checks

if TYPE_CHECKING:
    from onecat.images import NativeRuntime

PROGRAMS = Path(__file__).parent / "volta_kernels"
CHECKS = [*checks.CHECKS, *panel_checks.CHECKS]
# vLLM's own kernels for FP8 on the CPU, so that the checks reach ours.
OTHERS = (
    "PerTensorTorchFP8ScaledMMLinearKernel",
    "ChannelWiseTorchFP8ScaledMMLinearKernel",
    "CPUFp8BlockScaledMMKernel",
)


@pytest.fixture(scope="module")
def checked(patched_runtime: PatchedRuntime) -> dict[str, str | None]:
    """What is wrong with each claim of volta_kernels/checks.py and panel_checks.py, by its name; None for nothing."""
    answer = patched_runtime.answer(PROGRAMS / "checks.py", CHECKS, timeout=300, VLLM_DISABLED_KERNELS=",".join(OTHERS))
    return dict(answer)


@pytest.mark.engine
@pytest.mark.parametrize("claim", CHECKS)
def test_the_numbers(claim: str, checked: dict[str, str | None]) -> None:
    assert checked[claim] is None, checked[claim]


@pytest.fixture(scope="module")
def chosen(engine_runtime: NativeRuntime, patched_runtime: PatchedRuntime, cache: Cache) -> dict[str, Any]:
    """What volta_kernels/choices.py saw on a device of compute capability 7.0."""
    triton = ensure_triton(engine_runtime.python, cache)
    programs = Programs(engine_runtime.python, triton, kernels=cache.folder("triton-kernels"))
    program, backend = PROGRAMS / "choices.py", "custom_attention.CustomAttentionBackend"
    return dict(programs.run(str(program), patched_runtime.packages, {"backend": backend}))


@pytest.mark.engine
def test_on_7_0_our_kernels_stand_first_and_say_so(chosen: dict[str, Any]) -> None:
    registered = chosen["registered"]
    assert registered["nvfp4"] == registered["nvfp4 a16"] == "VoltaNvFp4LinearKernel"
    assert registered["fp8 block"] == "VoltaFp8LinearKernel"
    assert (registered["minimum nvfp4"], registered["minimum fp8"]) == (70, 70)
    assert any(line.startswith("vllm_volta registered VoltaNvFp4LinearKernel for nvfp4") for line in registered["log"])
    assert (
        "vllm_volta dequantises with PyTorch, its compiled kernels are not there: they were not built"
        in (registered["log"])
    )
    assert "Using VoltaNvFp4LinearKernel for NVFP4 GEMM" in registered["choice"]
    lowered = "Lowering a minimum capability from 75 to 70: this device has VoltaNvFp4LinearKernel (nvfp4)"
    assert lowered in registered["choice"]
    assert registered["again"] == [], "a second call does nothing"


@pytest.mark.engine
def test_other_gpus_get_no_kernel_of_ours(chosen: dict[str, Any]) -> None:
    assert chosen["places"] == {"7.0": "before", "7.2": "before", "7.5": None, "8.0": None, "9.0": None}


@pytest.mark.engine
def test_other_gpus_get_our_kernels_where_someone_insists(chosen: dict[str, Any]) -> None:
    assert set(chosen["forced places"].values()) == {"before"}


@pytest.mark.engine
def test_the_plugin_can_be_switched_off(chosen: dict[str, Any]) -> None:
    disabled = chosen["disabled"]
    assert disabled["log"] == ["vllm_volta is switched off by VLLM_VOLTA_DISABLE"]
    assert (disabled["minimum nvfp4"], disabled["minimum fp8"]) == (75, 75)
    assert "MarlinNvFp4LinearKernel: Marlin FP4 requires" in disabled["nvfp4 a16"]
    assert "MarlinFP8ScaledMMLinearKernel FP8 Marlin requires compute capability 7.5" in disabled["fp8 block"]


@pytest.mark.engine
def test_a_disabled_kernel_is_neither_chosen_nor_does_it_lower_a_minimum(chosen: dict[str, Any]) -> None:
    without = chosen["one kernel disabled"]
    assert (without["minimum nvfp4"], without["minimum fp8"]) == (75, 70)
    assert without["nvfp4"] == "EmulationNvFp4LinearKernel"
    assert "VoltaNvFp4LinearKernel disabled by environment variable" in without["nvfp4 a16"]


@pytest.mark.engine
def test_linear_backend_names_our_kernels(chosen: dict[str, Any]) -> None:
    ours, marlin = chosen["backend volta"], chosen["backend marlin"]
    assert (ours["nvfp4 a16"], ours["fp8 block"]) == ("VoltaNvFp4LinearKernel", "VoltaFp8LinearKernel")
    for question in ("nvfp4", "nvfp4 a16", "fp8 block"):
        assert "Marlin" in marlin[question] and "requires" in marlin[question], marlin[question]


@pytest.mark.engine
def test_attention_on_7_0_is_a_registered_backend_then_triton(chosen: dict[str, Any]) -> None:
    attention = chosen["attention"]
    assert attention["7.0"] == ["TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"]
    assert attention["7.0 with CUSTOM"] == ["CUSTOM", *attention["7.0"]]
    assert attention["chosen"] == "custom_attention.CustomAttentionBackend"
    upstream = ["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"]
    assert attention["7.5"] == attention["8.0"] == attention["8.0 with CUSTOM"] == upstream


@pytest.mark.engine
def test_a_vllm_without_our_patches_gets_what_it_can_take_and_says_what_it_lacks(
    engine_runtime: NativeRuntime, vllm_archive: Path, tmp_path: Path
) -> None:
    stock = lay_out(engine_runtime, vllm_archive, vllm_series(), tmp_path / "stock", patched=False)
    model = quantised_checkpoints.write(tmp_path, "nvfp4")
    found = stock.answer(PROGRAMS / "stock.py", str(model), timeout=180)
    assert found["quantisation"] == "compressed-tensors", "quasar_nvfp4 needs no patch"
    assert found["nvfp4"] == "VoltaNvFp4LinearKernel"
    assert "Marlin" in found["nvfp4 a16"]
    log = "\n".join(found["log"])
    for kernel_type in ("fp8_block", "wfp8a16"):
        said = f"WARNING vllm_volta cannot register VoltaFp8LinearKernel for {kernel_type}: Unrecognized kernel type"
        assert said in log
    assert "INFO vllm_volta registered VoltaNvFp4LinearKernel for nvfp4, VoltaFp8LinearKernel for fp8\n" in log
    assert "WARNING This vLLM lacks the patches 0004-admission and 0005-selection" in log


def test_the_checkpoints_say_what_their_twins_hold(tmp_path: Path) -> None:
    """Codes, scales and layout by their definitions; no vLLM and no PyTorch."""
    import numpy

    table = quantised_checkpoints.e4m3_table()
    assert table[[0x00, 0x01, 0x08, 0x38, 0x7E, 0xB8]].tolist() == [0, 2**-9, 2**-6, 1, 448, -1]
    assert numpy.isnan(table[[0x7F, 0xFF]]).all()
    weight = numpy.array([[6.0, -3.0, 0.5, 0.0] + [1.0] * 12, [0.0] * 16], numpy.float32)
    made = quantised_checkpoints.nvfp4(weight * numpy.float32(448), quantised_checkpoints.NVFP4_NAMES, reciprocal=True)
    codes = made.tensors["weight_packed"].data
    assert codes[0, :3].tolist() == [0xD7, 0x01, 0x22], "the even column is in the low four bits"
    assert made.values.tolist() == (weight * 448).tolist()
    assert made.tensors["weight_global_scale"].data.tolist() == [1.0]

    target = quantised_checkpoints.write(tmp_path, "deepseek")
    tensors = _header(target / "model.safetensors")
    plain = _header(write_tiny_checkpoint(tmp_path / "plain", quantised_checkpoints.SHAPE) / "model.safetensors")
    assert _header(tmp_path / "deepseek-twin" / "model.safetensors") == plain
    assert tensors["model.layers.0.mlp.down_proj.weight"] == ("F8_E4M3", [128, 384])
    assert tensors["model.layers.0.mlp.down_proj.weight_scale_inv"] == ("F32", [1, 3])
    assert tensors["lm_head.weight"] == plain["lm_head.weight"]


def _header(path: Path) -> dict[str, tuple[str, list[int]]]:
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: (entry["dtype"], entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
