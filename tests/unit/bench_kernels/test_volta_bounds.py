"""The model of the V100: its units' times from counts that are known beforehand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.gpu import card
from bench.gpu.machine_code import MachineCode, MissingTool, Resources, find_nvdisasm, most_threads
from bench.gpu.sass import functions
from bench.gpu.units import Unit
from bench.kernels import volta
from bench.kernels.plan import Planner, compiled_planner
from bench.kernels.shapes import LAYERS, Layer, matching
from onecat.knowledge.hardware import gpu_model
from onecat.patching.series import ADDED, load_series

CSRC = load_series("vllm-0.27.1").directory / ADDED / "vllm_volta" / "csrc"
CARD = card.v100("V100", 900, 112)
LAYER = Layer("a model", "a layer", 8192, 8192, 1)


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    return compiled_planner(CSRC, tmp_path_factory.mktemp("plan"))


def kernel(counts: dict[Unit, int], **changes: object) -> volta.Kernel:
    """A kernel for eight tokens that does a panel in a round."""
    given: dict[str, object] = {
        "name": "nvfp4_panels_quad_pairs_8",
        "format": "nvfp4",
        "kind": "quad_pairs",
        "tokens": 8,
        "warps": 8,
        "bytes_per_weight": 0.5625,
        "registers": 96,
        "spilled": False,
        "weights": 2048,
        "counts": Counter(counts),
        "shared_cycles": 0.0,
        "around": Counter[Unit](),
        "around_shared_cycles": 0.0,
        "around_panels": 8.0,
    }
    return volta.Kernel(**{**given, **changes})  # type: ignore[arg-type]


def test_the_clock_is_that_of_the_data_sheets_throughput() -> None:
    assert CARD.clock == pytest.approx(1.367e9, rel=1e-3)
    v100 = gpu_model("Tesla V100-PCIE-32GB")
    assert v100 is not None and (v100.bandwidth_gb_s, v100.fp16_tflops) == (900, 112)


def test_memory_bounds_a_kernel_that_hardly_does_anything(planner: Planner) -> None:
    found = volta.bound(CARD, kernel({Unit.TENSOR: 64}), planner, LAYER, 1)
    weight, activations = 8192 * 8192 * 0.5625, 2 * 8192 * 2
    assert found.limiter == "memory"
    assert found.longest == pytest.approx((weight + activations) / 900e9)


def test_tensor_cores_bound_at_the_data_sheets_throughput(planner: Planner) -> None:
    """A kernel of tensor core steps alone, for 64 tokens: 8 tiles of 64 steps for each panel."""
    found = volta.bound(CARD, kernel({Unit.TENSOR: 512}, tokens=64, bytes_per_weight=0.0), planner, LAYER, 64)
    assert found.limiter == "FP16 + tensor"
    assert found.longest == pytest.approx(2 * 64 * 8192 * 8192 / 112e12)


@pytest.mark.parametrize(
    ("counts", "limiter", "cycles"),
    [
        ({Unit.INTEGER: 5000}, "integer", 10000),
        ({Unit.IMAD: 3000, Unit.FP32: 2000}, "FP32 + IMAD", 10000),
        ({Unit.FP16: 4000, Unit.TENSOR: 1000}, "FP16 + tensor", 10000),
        ({Unit.CONVERSION: 1250}, "conversion", 10000),
        ({Unit.CONTROL: 10000}, "issue", 10000),
    ],
)
def test_each_unit_takes_its_cycles(counts: dict[Unit, int], limiter: str, cycles: int, planner: Planner) -> None:
    found = volta.bound(CARD, kernel(counts), planner, LAYER, 8)
    panels = 8192 * 8192 / 2048
    assert found.limiter == limiter
    assert found.longest == pytest.approx(cycles * panels / (80 * 4 * CARD.clock))


def test_the_loop_around_is_shared_by_the_panels_of_a_chunk() -> None:
    plain = kernel({Unit.INTEGER: 64})
    staged = kernel({Unit.INTEGER: 64}, around=Counter({Unit.INTEGER: 80, Unit.CONTROL: 16}), around_panels=8.0)
    assert plain.per_weight(Unit.INTEGER) == 1.0
    assert staged.per_weight(Unit.INTEGER) == pytest.approx(1.0 + 10 / 64)
    assert staged.per_weight() == pytest.approx(1.0 + 12 / 64)


def test_the_budget_is_what_the_units_do_while_a_weight_comes() -> None:
    budget = volta.budget_per_weight(CARD, 0.5625)
    # 80 x 4 schedulers, 32 lanes, 1.367 GHz, 0.5625 bytes at 900 GB/s; the issue that asked for it says about 4.1.
    assert budget["issue"] == pytest.approx(8.75, rel=1e-3)
    assert budget["two cycles"] == pytest.approx(4.375, rel=1e-3)


def test_rows_past_the_last_cost_work_but_no_bytes(planner: Planner) -> None:
    ragged = Layer("a model", "a layer", 4120, 8192, 1)
    whole = Layer("a model", "a layer", 4352, 8192, 1)
    one, other = (volta.bound(CARD, kernel({Unit.INTEGER: 100}), planner, each, 1) for each in (ragged, whole))
    assert one.seconds["integer"] == other.seconds["integer"]
    assert one.seconds["memory"] < other.seconds["memory"]


def test_registers_limit_the_thread_blocks_of_a_multiprocessor() -> None:
    assert card.resident_blocks(CARD, 128, 8) == 2
    assert card.resident_blocks(CARD, 64, 8) == 4
    assert card.resident_blocks(CARD, 16, 8) == 8


def test_a_kernel_is_read_from_machine_code() -> None:
    name = "nvfp4_panels_quad_pairs_16"
    text = Path(__file__).with_name(f"{name}.sass").read_text(encoding="utf-8")
    code = MachineCode("sm_70", functions(text), {name: Resources(99, 0)}, {name: 256})
    found = volta.kernel_of(code, name)
    assert (found.tokens, found.weights, found.registers, found.spilled) == (16, 2048, 99, False)
    # 16 loads of 16 bytes, 1152 bytes of weights; staged are two pieces of 16 bytes for each thread.
    assert found.shared_cycles == 16 * 32 * 16 / 128 + 1152 / 128
    assert (found.warps, found.around_panels) == (8, 2 * 8 * 256 / 16 / 64)


def test_threads_of_a_block_are_what_the_kernel_says() -> None:
    ptx = """
.visible .entry one(
\t.param .align 8 .b8 one_param_0[104]
)
.maxntid 256, 1, 1
.minnctapersm 2
{ ret; }
.visible .entry other(.param .u64 p)
{ ret; }
"""
    assert most_threads(ptx) == {"one": 256}


def test_more_tokens_than_the_last_kernel_takes_are_multiplied_in_slices() -> None:
    one, eight, most = (kernel({}, tokens=tokens) for tokens in (1, 8, 32))
    assert volta.slices([most, one, eight], 69) == [(most, 32), (most, 32), (eight, 5)]
    assert volta.slices([most, one, eight], 1) == [(one, 1)]
    assert volta.slices([most, one, eight], 9) == [(most, 9)]


def test_the_launchers_own_plan_is_asked(planner: Planner) -> None:
    assert planner.blocks(1, 32, 64, 80, 2) == 1
    assert 80 <= planner.blocks(1, 57344, 8192, 80, 2) <= 160


def test_fewer_thread_blocks_than_multiprocessors_leave_some_idle(planner: Planner) -> None:
    narrow = Layer("a model", "a layer", 32, 64, 1)
    found = volta.bound(CARD, kernel({Unit.INTEGER: 100}, warps=1), planner, narrow, 1)
    assert found.blocks == 1
    assert found.seconds["integer"] == pytest.approx(200 / (4 * CARD.clock))


def test_dequantising_first_pays_its_bytes() -> None:
    half = volta.half_seconds(CARD, 112, LAYER, 2048)
    assert half == pytest.approx(2 * 2048 * 8192 * 8192 / 112e12)
    more = volta.dequantised_seconds(CARD, 0.5625, 112, LAYER, 2048) - half
    assert more == pytest.approx(2.5625 * 8192 * 8192 / 900e9)


def test_layers_are_found_by_model_and_name() -> None:
    assert {layer.model for layer in matching(LAYERS, "tp2")} == {"Qwen-27B TP2"}
    halves = {layer.name: layer for layer in matching(LAYERS, "Qwen-27B TP2")}
    whole = {layer.name: layer for layer in matching(LAYERS, "Qwen-27B") if layer.model == "Qwen-27B"}
    assert halves.keys() == whole.keys()
    assert all(2 * halves[name].weights == whole[name].weights for name in whole)


def test_a_missing_disassembler_says_where_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match="pip download --no-deps triton==3.4.0"):
        find_nvdisasm(tmp_path / "nvdisasm")
