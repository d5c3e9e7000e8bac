"""The attention backend of vllm_volta in the engine's interpreter: its numbers, when it is chosen, what it answers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onecat.checkpoints import TinyShape, write_tiny_checkpoint
from tests.testbed import mixed_attention_checkpoint
from tests.testbed.cache import Cache
from tests.testbed.patched_runtime import PatchedRuntime
from tests.testbed.volta.programs import Programs, ensure_triton
from tests.testbed.volta_kernels import attention_checks

if TYPE_CHECKING:
    from onecat.images import NativeRuntime

pytestmark = pytest.mark.engine

PROGRAMS = Path(__file__).parent / "volta_kernels"
OURS = "vllm_volta.attention.VoltaAttentionBackend"
TRITON, CUSTOM = "TRITON_ATTN", "CUSTOM"
SPECULATION = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
# Steps of 64 tokens at most, so that prompts come in chunks beside requests that decode.
SERVING = {
    "max_model_len": 512,
    "block_size": 16,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
}
SPECULATING, MIXED = "a Llama that speculates", "layers of two head sizes, some sharing a cache"
MODELS = (SPECULATING, MIXED)


@pytest.fixture(scope="module")
def checked(patched_runtime: PatchedRuntime) -> dict[str, str | None]:
    """What is wrong with each claim of volta_kernels/attention_checks.py, by its name; None for nothing."""
    answer = patched_runtime.answer(PROGRAMS / "attention_checks.py", list(attention_checks.CHECKS), timeout=200)
    return dict(answer)


@pytest.mark.parametrize("claim", attention_checks.CHECKS)
def test_the_backend(claim: str, checked: dict[str, str | None]) -> None:
    assert checked[claim] is None, checked[claim]


@pytest.fixture(scope="module")
def mixed_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixed_attention_checkpoint.write(tmp_path_factory.mktemp("models") / "mixed")


@pytest.fixture(scope="module")
def answers(
    patched_runtime: PatchedRuntime, mixed_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Any, Any]]:
    """What each model answers by the CPU's own backend and by ours."""
    llama = write_tiny_checkpoint(tmp_path_factory.mktemp("models") / "llama", TinyShape(layers=2, head_dim=64))
    numbers = random.Random(0)
    shared = [numbers.randrange(256) for _ in range(70)]
    prompts = [shared + [numbers.randrange(256) for _ in range(length)] for length in (1, 30, 200)]
    document = {
        "backends": [None, OURS],
        "models": [
            {"model": str(llama), "speculative_config": SPECULATION, **SERVING},
            {"model": str(mixed_model), "hf_overrides": mixed_attention_checkpoint.OVERRIDES, **SERVING},
        ],
        "prompts": [*prompts, [5], [9] * 15],
        "tokens": 24,
    }
    found = patched_runtime.answer(PROGRAMS / "attention_generate.py", document, timeout=300)
    return dict(zip(MODELS, zip(*found, strict=True), strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_an_engine_answers_the_same_by_our_backend_as_by_the_cpus(model: str, answers: dict[str, Any]) -> None:
    theirs, ours = answers[model]
    assert ours["tokens"] == theirs["tokens"]
    assert ours["tokens"][0] == ours["tokens"][1], "from the cached prefixes too"
    assert ours["cached"] == theirs["cached"] and ours["cached"][1] > 300
    assert len({token for answer in ours["tokens"][0] for token in answer}) > 40, "noise, not one token again and again"


def test_the_layers_had_the_backends_that_they_were_to_have(answers: dict[str, Any]) -> None:
    sizes = {SPECULATING: (64,), MIXED: (256, 512)}
    for model, (theirs, ours) in answers.items():
        assert ours["layers"] == [f"VoltaAttentionImpl {size}" for size in sizes[model]]
        assert theirs["layers"] == [f"CPUAttentionBackendImpl {size}" for size in sizes[model]]
        assert theirs["batches"] == []


def test_batches_were_of_all_kinds(answers: dict[str, Any]) -> None:
    for model in MODELS:
        batches = answers[model][1]["batches"]
        kinds = {(each["decodes"] > 0, each["decodes"] < len(each["queries"])) for each in batches}
        assert kinds == {(True, False), (False, True), (True, True)}, "decodes, prefills and both in one"
        assert max(max(each["queries"]) for each in batches) == 64, "prompts in chunks"
    most = {each["most"] for each in answers[SPECULATING][1]["batches"]}
    assert {1, 4} <= most, "tokens that were speculated"


@pytest.fixture(scope="module")
def chosen(
    engine_runtime: NativeRuntime,
    patched_runtime: PatchedRuntime,
    cache: Cache,
    mixed_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What volta_kernels/attention_choices.py saw on a device of compute capability 7.0."""
    triton = ensure_triton(engine_runtime.python, cache)
    programs = Programs(engine_runtime.python, triton, kernels=cache.folder("triton-kernels"))
    models = {"Gemma 4": mixed_model}
    (mixed_model / "overrides.json").write_text(json.dumps(mixed_attention_checkpoint.OVERRIDES), encoding="utf-8")
    for architecture in ("Rnj1ForCausalLM", "Step1ForCausalLM"):
        folder = write_tiny_checkpoint(tmp_path_factory.mktemp("lacking") / architecture)
        (folder / "overrides.json").write_text(json.dumps({"architectures": [architecture]}), encoding="utf-8")
        models[architecture] = folder
    request = {"models": {name: str(folder) for name, folder in models.items()}}
    return dict(programs.run(str(PROGRAMS / "attention_choices.py"), patched_runtime.packages, request))


@pytest.mark.parametrize(
    "layer",
    [f"head size {size}" for size in (64, 80, 96, 128, 256, 512)]
    + ["sinks", "sliding window", "multimodal prefix", "block size 784", "cache float16"],
)
def test_on_7_0_our_backend_is_chosen_for_what_it_serves(layer: str, chosen: dict[str, Any]) -> None:
    assert chosen["registered"][layer] == CUSTOM


@pytest.mark.parametrize(
    "layer",
    [
        "head size 192",
        "head size 576",
        "float32",
        "encoder only",
        "not causal",
        "batch invariance",
        "KV connector",
    ]
    + ["decode context parallelism"],
)
def test_on_7_0_triton_is_chosen_for_the_rest(layer: str, chosen: dict[str, Any]) -> None:
    assert chosen["registered"][layer] == TRITON


def test_latent_attention_is_refused_as_before(chosen: dict[str, Any]) -> None:
    assert "Triton MLA decode kernel requires compute capability 8.0" in chosen["registered"]["MLA"]


def test_an_fp8_cache_is_no_reason_for_our_backend(chosen: dict[str, Any]) -> None:
    assert chosen["registered"]["cache fp8"] == TRITON, "whose layers refuse it below 8.9"


def test_what_is_registered_is_logged_with_how_to_undo_it(chosen: dict[str, Any]) -> None:
    registered = chosen["registered"]
    assert registered["path"] == OURS
    assert registered["log"] == [
        "INFO vllm_volta registered the attention backend CUSTOM, chosen for float16; --attention-backend TRITON_ATTN"
        " or VLLM_VOLTA_ATTENTION=0 takes vLLM's own"
    ]


@pytest.mark.parametrize(
    ("circumstance", "line"),
    [
        ("switched off", "INFO vllm_volta leaves attention to vLLM's own backends: VLLM_VOLTA_ATTENTION=0"),
        (
            "not built",
            "WARNING vllm_volta leaves attention to vLLM's own backends, its kernels are not there: they were not "
            "built",
        ),
    ],
)
def test_without_it_triton_is_chosen_and_the_log_says_why(circumstance: str, line: str, chosen: dict[str, Any]) -> None:
    assert chosen[circumstance] == {"log": [line], "is registered": False, "head size 128": TRITON}


def test_another_plugins_backend_stays(chosen: dict[str, Any]) -> None:
    assert chosen["taken"]["path"] == "someone.elses.Backend"
    [line] = chosen["taken"]["log"]
    assert line.startswith("WARNING vllm_volta leaves attention to someone.elses.Backend")


def test_attention_backend_names_either(chosen: dict[str, Any]) -> None:
    assert (chosen["asked for Triton"], chosen["asked for it"]) == (TRITON, CUSTOM)
    assert "head_size not supported" in chosen["asked for what it lacks"]


def test_layers_of_gemma_4_get_it_in_both_head_sizes(chosen: dict[str, Any]) -> None:
    """Upstream asks for Triton for all layers; the series leaves the choice to the platform on 7.0."""
    own = {"128": CUSTOM, "256": CUSTOM, "512": CUSTOM}
    assert chosen["Gemma 4"] == own | {"asked": "None", "sleep mode": TRITON}


@pytest.mark.parametrize("architecture", ["Rnj1ForCausalLM", "Step1ForCausalLM"])
def test_models_whose_layers_ask_for_more_get_triton(architecture: str, chosen: dict[str, Any]) -> None:
    assert chosen[architecture] == {"asked": "None", "128": TRITON, "256": TRITON, "512": TRITON, "sleep mode": TRITON}
