"""What an engine has chosen, by its log. The logs are real; see fixtures/logs/engine/expected.yaml."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from onecat.observe.choices import EngineChoices, Kernel, from_document, read_choices, to_document
from onecat.observe.expectations import Expected, surprises

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "engine"
EXPECTED: dict[str, Any] = yaml.safe_load((LOGS / "expected.yaml").read_text(encoding="utf-8"))


def lines_of(name: str) -> list[str]:
    return (LOGS / name).read_text(encoding="utf-8").splitlines()


def test_every_log_has_its_expected_record() -> None:
    assert {path.name for path in LOGS.glob("*.log")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_choices_of_a_real_engine(name: str) -> None:
    found = read_choices(lines_of(name))
    told = {key: value for key, value in asdict(found).items() if key != "evidence" and value not in (None, (), [])}
    assert json.loads(json.dumps(told)) == EXPECTED[name]["choices"]
    numbers = {choice: evidence.line for choice, evidence in found.evidence}
    assert EXPECTED[name]["lines"].items() <= numbers.items()
    assert from_document(json.loads(json.dumps(to_document(found)))) == found


# Lines of other versions, one by one, as their sources or users' logs have them (see engine_choices.yaml).
@pytest.mark.parametrize(
    ("line", "choice", "value"),
    [
        (
            "INFO 03-12 14:57:38 [cuda.py:215] Using Flash Attention backend on V1 engine.",
            "attention",
            ("Flash Attention",),
        ),
        ("INFO 06-15 12:17:56 selector.py:51] Using XFormers backend.", "attention", ("XFormers",)),
        (
            "(EngineCore pid=1) INFO 07-28 10:03:02 [cuda.py:482] Using FLASH_ATTN attention backend out of potential "
            "backends: ['FLASH_ATTN', 'TRITON_ATTN'].",
            "attention",
            ("FLASH_ATTN",),
        ),
        (
            "INFO 03-12 14:57:38 [wNa16.py:85] Using AllSparkLinearKernel for CompressedTensorsWNA16",
            "kernels",
            (Kernel("AllSparkLinearKernel", "CompressedTensorsWNA16"),),
        ),
        (
            "INFO 11-29 [__init__.py:636] Selected CutlassFP8ScaledMMLinearKernel for Fp8LinearMethod",
            "kernels",
            (Kernel("CutlassFP8ScaledMMLinearKernel", "Fp8LinearMethod"),),
        ),
        (
            "INFO 11-29 [__init__.py:945] Using MacheteLinearKernel for mixed-precision linear",
            "kernels",
            (Kernel("MacheteLinearKernel", "mixed-precision linear"),),
        ),
        (
            "INFO 11-29 [nvfp4.py:211] Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential backends: ['X'].",
            "kernels",
            (Kernel("FLASHINFER_CUTLASS", "NvFp4 MoE"),),
        ),
        (
            "INFO 11-29 [kv_cache_utils.py:1147] CPU KV cache size: 524,288 tokens, Maximum concurrency for 1,024 "
            "tokens per request: 512.00x",
            "kv_tokens",
            524288,
        ),
        (
            "INFO 11-29 [kv_cache_utils.py:1147] GPU + host KV cache size: 9,000 tokens, Maximum concurrency for "
            "1,000 tokens per request: 9.00x",
            "max_concurrency",
            9.0,
        ),
        (
            "INFO 11-29 [gpu_model_runner.py:1] Model loading took 64.38 GiB memory and 9.1 seconds",
            "weights_gib",
            64.38,
        ),
        (
            "INFO 03-05 19:36:27 gpu_model_runner.py:1341] Graph capturing finished in 17 secs, took 2.02 GiB",
            "execution",
            "graphs",
        ),
        (
            "INFO 06-15 12:17:55 llm_engine.py:161] Initializing an LLM engine (v0.5.0.post1) with config: model='m', "
            "dtype=torch.bfloat16, max_seq_len=32768",
            "dtype",
            "bfloat16",
        ),
    ],
)
def test_the_words_of_other_versions(line: str, choice: str, value: object) -> None:
    assert getattr(read_choices([line]), choice) == value


@pytest.mark.parametrize(
    "line",
    [
        "INFO [cuda.py:523] Using backend FLASH_ATTN for vit attention",
        "INFO [selector.py:150] Using TRTLLM MLA prefill backend.",
        "INFO [logger.py:1] Received request: prompt: 'Using FLASHINFER backend.'",
        "INFO [weight_utils.py:867] Filesystem type for checkpoints: EXT4. Checkpoint size: 0.27 GiB.",
    ],
)
def test_what_is_no_choice_of_the_kind(line: str) -> None:
    assert read_choices([line]).empty


def test_the_smallest_of_several_engines_counts_and_the_last_of_several_starts() -> None:
    start = "INFO [core.py:121] Initializing a V1 LLM engine (v0.27.1) with config: dtype=torch.float16, max_seq_len=9"
    sizes = [f"INFO [kv_cache_utils.py:1] GPU KV cache size: {tokens} tokens" for tokens in ("2,000", "1,000", "3,000")]
    assert read_choices([start, *sizes]).kv_tokens == 1000
    again = read_choices([start, *sizes, start.replace("16", "32"), sizes[2]])
    assert (again.kv_tokens, again.dtype) == (3000, "float32")


# --- against the plan -------------------------------------------------------------------------------------------------

NVFP4 = read_choices(lines_of("h200-nvfp4-eager.log"))
PLANNED = Expected("float16", "compressed-tensors", kv_tokens=32000, eager=True, max_model_len=2048, tensor_parallel=1)


def test_nothing_surprises_where_all_is_as_planned() -> None:
    assert surprises(NVFP4, PLANNED) == ()
    assert surprises(EngineChoices(), PLANNED) == (), "a log that says nothing surprises nobody"


@pytest.mark.parametrize(
    ("changes", "choice", "words"),
    [
        ({"dtype": "bfloat16"}, "dtype", "calculates in float16, planned was bfloat16"),
        ({"quantization": "fp8"}, "quantization", "with compressed-tensors, the plan says fp8"),
        ({"eager": False}, "execution", "runs eagerly, planned were CUDA graphs"),
        ({"kv_tokens": 40000}, "kv_tokens", "holds 32,768 tokens, planned were 40,000 (-18%)"),
        ({"kv_tokens": 20000}, "kv_tokens", "(+64%)"),
        ({"max_model_len": 4096}, "max_model_len", "context length is 2048, planned was 4096"),
        ({"tensor_parallel": 2}, "tensor_parallel", "size is 1, planned was 2"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype", "is in auto, planned was fp8"),
    ],
)
def test_what_was_not_planned_is_told_with_the_line_of_the_log(
    changes: dict[str, Any], choice: str, words: str
) -> None:
    (found,) = surprises(NVFP4, replace(PLANNED, **changes))
    assert found.choice == choice
    assert words in found.what
    assert found.why
    assert found.fix
    assert found.line is not None
    assert found.line == dict(NVFP4.evidence)[choice].text


@pytest.mark.parametrize(
    ("asked", "found", "fits"),
    [
        ("awq", "awq_marlin", True),
        ("awq", "auto_awq", True),
        ("gptq", "gptq_marlin", True),
        ("modelopt", "modelopt_fp4", True),
        ("quasar_nvfp4", "compressed-tensors", True),
        ("half", "None", False),
        ("fp8", "awq_marlin", False),
        ("gptq", "awq_marlin", False),
        ("fp8", "None", False),
    ],
)
def test_one_method_has_several_names(asked: str, found: str, fits: bool) -> None:
    choices = replace(NVFP4, quantization=found)
    assert (surprises(choices, replace(PLANNED, quantization=asked)) == ()) == fits


def test_a_method_that_nobody_asked_for_is_what_the_engine_found_in_the_checkpoint() -> None:
    assert surprises(replace(NVFP4, quantization="ascend"), replace(PLANNED, quantization=None)) == ()


def test_half_is_float16_and_auto_is_anything() -> None:
    assert surprises(NVFP4, replace(PLANNED, dtype="half")) == ()
    assert surprises(NVFP4, replace(PLANNED, dtype="auto")) == ()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "WARNING [__init__.py:1077] Using EmulationNvFp4LinearKernel for NVFP4 GEMM",
            "an emulation, EmulationNvFp4LinearKernel",
        ),
        (
            "WARNING [nvfp4_emulation_moe.py:350] Using Nvfp4QuantizationEmulationTritonExperts MOE backend. This will "
            "dequantize weights on the fly and may be slower than native quantized MOE.",
            "an emulation, Nvfp4QuantizationEmulationTritonExperts",
        ),
        (
            "INFO [nvfp4.py:211] Using 'EMULATION' NvFp4 MoE backend out of potential backends: []",
            "an emulation, EMULATION",
        ),
        (
            "WARNING [plugin.py:84] vllm_volta dequantises with PyTorch, its compiled kernels are not there: no file",
            "a reference, the PyTorch code of vllm_volta",
        ),
        (
            "INFO [fp8.py:80] FP8 weights stay 8-bit in memory and become floating point at each call, tile by tile: "
            "panels need a multiple of 16 columns, some weights have 24",
            "quantised weights that are dequantised at every call: panels need a multiple of 16 columns, some weights "
            "have 24",
        ),
        (
            "INFO [nvfp4.py:86] NVFP4 weights stay 4-bit in memory, in panels of octets, which PyTorch undoes: "
            "VLLM_VOLTA_PANELS=1, but the compiled kernels serve float16, not torch.bfloat16",
            "quantised weights that are dequantised at every call: the compiled kernels serve float16, not "
            "torch.bfloat16",
        ),
    ],
)
def test_a_reference_or_an_emulation_is_told(line: str, words: str) -> None:
    (found,) = surprises(read_choices([line]), Expected())
    assert found.what == f"the engine calculates with {words}"
    assert found.why
    assert found.fix


@pytest.mark.parametrize(
    "line",
    [
        "INFO [nvfp4.py:75] NVFP4 weights stay 4-bit in memory and become floating point at each call, tile by tile: "
        "there are no compiled kernels for cpu",
        "INFO [nvfp4.py:75] NVFP4 weights stay 4-bit in memory and become floating point at each call, tile by tile: "
        "VLLM_VOLTA_PANELS=0",
        "INFO [nvfp4.py:86] NVFP4 weights stay 4-bit in memory, in panels of quad pairs, which PyTorch undoes: "
        "VLLM_VOLTA_PANELS=1, but there are no compiled kernels for cpu",
        "INFO [nvfp4.py:86] NVFP4 weights stay 4-bit in memory, in panels of quad pairs: compiled kernels multiply up "
        "to 128 tokens, cuBLAS with tiles in float16 more",
    ],
)
def test_what_is_as_it_should_be_is_no_surprise(line: str) -> None:
    assert surprises(read_choices([line]), Expected()) == ()


def test_a_server_without_a_gpu_loses_no_graphs() -> None:
    cpu = read_choices(lines_of("cpu-nvfp4-volta.log"))
    assert surprises(cpu, Expected(quantization="quasar_nvfp4")) == ()
