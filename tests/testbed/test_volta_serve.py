"""The patched vLLM answers from NVFP4 and FP8 checkpoints on the CPU, with the weights that their codes mean.

All in one process; what a server started by `onecat up` does with such a checkpoint: test_nvfp4_serve.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.testbed import quantised_checkpoints
from tests.testbed.patched_runtime import PatchedRuntime

pytestmark = pytest.mark.engine

GENERATE = Path(__file__).parent / "volta_kernels" / "generate.py"
# Checkpoint, its twin, data type, --quantization. fp8.py and ModelOpt know no float32.
SERVED = {
    "compressed-tensors NVFP4": ("nvfp4", "nvfp4", "float32", None),
    "the same as quasar_nvfp4": ("nvfp4", "nvfp4", "float32", "quasar_nvfp4"),
    "quasar_nvfp4 in config.json": ("quasar", "nvfp4", "float32", None),
    "quasar_nvfp4 in quant_config.json": ("quasar-file", "nvfp4", "float32", "quasar_nvfp4"),
    "ModelOpt NVFP4": ("modelopt", "modelopt", "bfloat16", None),
    "compressed-tensors FP8 blocks": ("fp8-block", "fp8-block", "float32", None),
    "DeepSeek's FP8 blocks": ("deepseek", "fp8-block", "bfloat16", None),
}
# Served once more with weights as panels: checkpoint, data type, --quantization, fragments.
PANELS = {
    "compressed-tensors NVFP4": ("nvfp4", "float32", None, "quad-pairs"),
    "ModelOpt NVFP4": ("modelopt", "bfloat16", None, "octets"),
    "DeepSeek's FP8 blocks": ("deepseek", "bfloat16", None, "octets"),
}
# A KV cache of five blocks of 16 tokens, one of which vLLM keeps for itself; the context length is vLLM's choice.
FITTED = ("nvfp4-twin", "float32", "fitted")
FIVE_BLOCKS = {"block_size": 16, "num_gpu_blocks_override": 5}
CHOSEN = {"nvfp4": "Using VoltaNvFp4LinearKernel for NVFP4 GEMM", "fp8": "Selected VoltaFp8LinearKernel for"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all forms of checkpoints, made from the same weights."""
    folder = tmp_path_factory.mktemp("models")
    for form in quantised_checkpoints.FORMS:
        quantised_checkpoints.write(folder, form)
    return folder


@pytest.fixture(scope="module")
def answers(patched_runtime: PatchedRuntime, models: Path) -> dict[tuple[str | None, ...], dict[str, Any]]:
    """Greedy answers by checkpoint, data type, --quantization and, of panels, fragments, all from one process."""
    wanted: list[tuple[str | None, ...]]
    wanted = [(name, dtype, quantization) for name, _, dtype, quantization in SERVED.values()]
    wanted += sorted({(f"{twin}-twin", dtype, None) for _, twin, dtype, _ in SERVED.values()})
    wanted.append(("fp8-block", "float32", "quasar_nvfp4"))
    documents = [
        {"model": str(models / name), "dtype": dtype, "quantization": quantization}
        for name, dtype, quantization in wanted
    ]
    for name, dtype, quantization, fragments in PANELS.values():
        wanted.append((name, dtype, quantization, fragments))
        variables = {"VLLM_VOLTA_PANELS": "1", "VLLM_VOLTA_FRAGMENTS": fragments}
        served = {"model": str(models / name), "dtype": dtype, "quantization": quantization}
        documents.append({**served, "environment": variables})
    wanted.append(FITTED)
    documents.append({"model": str(models / FITTED[0]), "dtype": FITTED[1], "max_model_len": -1, **FIVE_BLOCKS})
    # Where the processor has AMX, vLLM's own kernel for FP8 blocks stands before ours.
    disabled = {"VLLM_DISABLED_KERNELS": "CPUFp8BlockScaledMMKernel"}
    found = patched_runtime.answer(GENERATE, documents, timeout=400, **disabled)
    return dict(zip(wanted, found, strict=True))


@pytest.mark.parametrize("case", SERVED)
def test_answers_are_those_of_the_dequantised_model(case: str, answers: Any) -> None:
    name, twin, dtype, quantization = SERVED[case]
    found, expected = answers[name, dtype, quantization], answers[f"{twin}-twin", dtype, None]
    assert found["tokens"] == expected["tokens"]
    # In bfloat16 both weights are rounded the same way. In float32 the sums of fused matrices are in another order.
    tolerance = 1e-4 if dtype == "float32" else 0.05
    for ours, theirs in zip(found["logprobs"], expected["logprobs"], strict=True):
        assert ours == pytest.approx(theirs, abs=tolerance)
    assert len({token for tokens in found["tokens"] for token in tokens}) > 4, "noise, not one token again and again"


@pytest.mark.parametrize("case", PANELS)
def test_panels_answer_as_rows_do_to_the_last_bit(case: str, answers: Any) -> None:
    found, expected = answers[PANELS[case]], answers[PANELS[case][:3]]
    assert found["tokens"] == expected["tokens"]
    assert found["logprobs"] == expected["logprobs"]
    kind = PANELS[case][3].replace("-", " ")
    assert any(f"-bit in memory, in panels of {kind}, which PyTorch undoes" in line for line in found["log"])


@pytest.mark.parametrize("kind", CHOSEN)
def test_our_kernel_is_chosen_and_the_log_says_so(kind: str, answers: Any) -> None:
    log = [line for answer in answers.values() for line in answer["log"]]
    assert any(line.startswith(CHOSEN[kind]) for line in log)


def test_another_checkpoint_under_the_name_of_quasar_is_refused(answers: Any) -> None:
    refused = answers["fp8-block", "float32", "quasar_nvfp4"]["refused"]
    assert "quasar_nvfp4 means NVFP4 weights in compressed-tensors form" in refused
    assert "Leave --quantization out" in refused


def test_a_request_of_the_whole_fitted_length_is_answered(answers: Any) -> None:
    """Unpatched, 80 tokens are fitted into these five blocks, and such a request waits for ever."""
    fitted = answers[FITTED]
    assert (fitted["max_model_len"], fitted["steps"]) == (64, 1)
