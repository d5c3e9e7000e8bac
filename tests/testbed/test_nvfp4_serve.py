"""A model that onecat has converted to NVFP4, served by a real vLLM with onecat's series: on one rank and on two.

Text and loss are held to those of its dequantised copy, served by vLLM as it was released. Engines start three times
through `onecat up`, and once more, for all that is compared with, in a process of their own.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy
import pytest

from onecat.checkpoints import inspect
from onecat.images import NativeRuntime
from onecat.nvfp4.rewriting import open_source
from onecat.paths import Home
from onecat.planner.memory import Device, estimate, resolved_settings
from onecat.resources import small_model
from tests.safetensors_files import write_safetensors
from tests.testbed import patched_runtime, sources
from tests.testbed.command import Onecat
from tests.testbed.ports import free_port
from tests.testbed.volta_kernels.panel_checks import QUAD_PAIRS, nvfp4_panel, scale_panel

pytestmark = pytest.mark.engine

PROBE = Path(__file__).parent / "rank_probe"
TEXTS = Path(__file__).parent / "volta_kernels" / "texts.py"
LENGTH = 512
TOKENS = 32
PROMPTS = ["And God said,", "In the beginning", "The words of the LORD which came unto"]
# Ten pieces of what the model has not seen, about 250 tokens each.
HELD_OUT = [
    small_model().joinpath("held_out.txt").read_text(encoding="utf-8")[at : at + 700] for at in range(0, 7000, 700)
]
CONFIGURATION = """\
name: {name}
profile: cpu
model:
  path: {model}
  served_name: small
port: {port}
proxy:
  kind: none
rollout:
  strategy: recreate
start:
  silence_seconds: 180
env:
  # To ask each rank what it holds.
  VLLM_SERVER_DEV_MODE: "1"
  VLLM_VOLTA_PANELS: "{panels}"
  PYTHONPATH: {probe}
serve:
  max-model-len: {length}
  worker-extension-cls: rank_probe.RankProbe
"""
# Of each its flags. One rank serves the checkpoint as guides for Volta describe such ones; the others as it is.
LAYOUTS: dict[str, dict[str, Any]] = {
    "one rank, quasar_nvfp4": {"quantization": "quasar_nvfp4"},
    "two ranks of tensor parallelism": {"tensor-parallel-size": 2},
    "two stages of a pipeline": {"pipeline-parallel-size": 2},
}
# Keeps weights repacked for tensor cores, as on a GPU; the other layouts as the checkpoint has them.
IN_PANELS = "two ranks of tensor parallelism"
KERNEL = {"name": "VoltaNvFp4LinearKernel", "use": "NVFP4"}


@dataclass(frozen=True)
class Served:
    """What a server started by `onecat up` has answered. up, status: the documents of these commands.

    loss: mean negative log-likelihood of a held-out token, asked of one rank alone. ranks: of each rank its parameters
    by name, as rank_probe.py tells them.
    """

    up: Any
    status: Any
    shown: str
    log: str
    tokens: list[list[int]]
    loss: float | None
    ranks: list[dict[str, Any]]


@pytest.fixture(scope="module")
def command(engine_home: Home, engine_runtime: NativeRuntime, tmp_path_factory: pytest.TempPathFactory) -> Onecat:
    """The real command with a home of this module's own, but for the engine that is kept between runs."""
    home = tmp_path_factory.mktemp("home")
    (home / "runtimes").symlink_to(engine_home.runtimes)
    return Onecat(home=home, cache=engine_home.cache)


@pytest.fixture(scope="module")
def converted(command: Onecat, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model in NVFP4."""
    directory = tmp_path_factory.mktemp("models") / "nvfp4"
    command("model", "convert", small_model(), directory).expect(0)
    return directory


@pytest.fixture(scope="module")
def expected(
    command: Onecat,
    converted: Path,
    engine_runtime: NativeRuntime,
    vllm_archive: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What vLLM as released says with the dequantised copy, and with the model that was converted."""
    plain = converted.with_name("plain")
    command("model", "dequantize", converted, plain, "--dtype", "float32").expect(0)
    folder = tmp_path_factory.mktemp("released") / "packages"
    released = patched_runtime.lay_out(engine_runtime, vllm_archive, sources.vllm_series(), folder, patched=False)
    models = [{"model": str(each), "dtype": "float32", "max_model_len": LENGTH} for each in (plain, small_model())]
    document = {"models": models, "prompts": PROMPTS, "tokens": TOKENS, "held_out": HELD_OUT}
    found = released.answer(TEXTS, document, timeout=600, VLLM_VOLTA_DISABLE="1", TORCH_COMPILE_DISABLE="1")
    return dict(zip(("dequantised", "original"), found, strict=True))


@pytest.fixture(scope="module")
def named_quasar(converted: Path) -> Path:
    """The same weights, whose method stands in a quant_config.json beside config.json, as that of quasar_nvfp4."""
    directory = converted.with_name("quasar")
    shutil.copytree(converted, directory)
    document = json.loads((directory / "config.json").read_text())
    del document["quantization_config"]
    (directory / "config.json").write_text(json.dumps(document))
    (directory / "quant_config.json").write_text(json.dumps({"quant_method": "quasar_nvfp4", "block_size": 16}))
    return directory


@pytest.fixture(scope="module")
def configure(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes the onecat.yaml of a deployment; all share a file, a port and a name unless another one is given."""
    folder, port = tmp_path_factory.mktemp("site"), free_port()

    def write(model: Path, name: str = "nvfp4", *, panels: bool = False) -> Path:
        path = folder / f"{name}.yaml"
        values = {"name": name, "model": model, "port": port, "probe": PROBE, "length": LENGTH}
        values["panels"] = int(panels)
        path.write_text(CONFIGURATION.format(**values), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def served(
    command: Onecat, converted: Path, named_quasar: Path, configure: Callable[..., Path]
) -> Iterator[Callable[[str], Served]]:
    """Gives what the server answers in one of LAYOUTS; each is started when it is first asked for."""
    found: dict[str, Served] = {}

    def serve(layout: str) -> Served:
        if layout not in found:
            model = named_quasar if "quasar" in layout else converted
            configuration = configure(model, panels=layout == IN_PANELS)
            found[layout] = serve_and_ask(command, configuration, LAYOUTS[layout])
        return found[layout]

    yield serve
    command("down", "nvfp4").expect(0)


def serve_and_ask(command: Onecat, configuration: Path, flags: dict[str, Any]) -> Served:
    words = [word for name, value in flags.items() for word in ("--set", f"{name}={value}")]
    up = command("up", "--config", configuration, *words, "--json", timeout=600).expect(0).json()
    completions = f"{up['endpoint']}/v1/completions"
    body = {"model": "small", "temperature": 0, "return_token_ids": True}
    written = ask(completions, {**body, "prompt": PROMPTS, "max_tokens": TOKENS, "ignore_eos": True})
    ranks = ask(f"{up['endpoint']}/collective_rpc", {"method": "parameters"})["results"]
    return Served(
        up,
        command("status", "--config", configuration, "--json").expect(0).json()["deployments"][0],
        command("status", "--config", configuration).expect(0).stdout,
        command("logs", "--config", configuration, "--lines", "2000").expect(0).stdout,
        [each["token_ids"] for each in sorted(written["choices"], key=lambda choice: choice["index"])],
        loss_of(completions) if "quantization" in flags else None,
        sorted(ranks, key=lambda rank: rank["rank"]),
    )


def loss_of(completions: str) -> float:
    body = {"model": "small", "prompt": HELD_OUT, "max_tokens": 1, "prompt_logprobs": 0, "return_token_ids": True}
    losses = [
        -choices[str(token)]["logprob"]
        for each in ask(completions, body)["choices"]
        for token, choices in zip(each["prompt_token_ids"], each["prompt_logprobs"], strict=True)
        if choices is not None
    ]
    return float(sum(losses) / len(losses))


def ask(address: str, body: dict[str, Any]) -> Any:
    answer = httpx.post(address, json=body, timeout=300, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_text_is_that_of_the_dequantised_copy_without_patches(
    layout: str, served: Callable[[str], Served], expected: dict[str, Any]
) -> None:
    found = served(layout)
    assert found.tokens == expected["dequantised"]["tokens"]
    assert len({token for tokens in found.tokens for token in tokens}) > 20, "text, not one token again and again"


def test_perplexity_is_within_five_percent_of_the_model_that_was_converted(
    served: Callable[[str], Served], expected: dict[str, Any]
) -> None:
    loss = served(next(iter(LAYOUTS))).loss
    assert loss is not None
    assert loss == pytest.approx(expected["dequantised"]["loss"], abs=1e-4)
    worse = math.exp(loss - expected["original"]["loss"])
    print(f"perplexity {math.exp(expected['original']['loss']):.2f} in FP16, {worse:.4f} times that in NVFP4")
    assert worse < 1.05


@pytest.mark.parametrize("layout", LAYOUTS)
def test_log_up_and_status_name_the_kernel(layout: str, served: Callable[[str], Served]) -> None:
    found = served(layout)
    assert "vllm_volta registered VoltaNvFp4LinearKernel for nvfp4" in found.log
    assert "Using VoltaNvFp4LinearKernel for NVFP4 GEMM" in found.log
    assert ("NVFP4 weights stay 4-bit in memory, in panels of quad pairs" in found.log) == (layout == IN_PANELS)
    assert ("at each call, tile by tile: VLLM_VOLTA_PANELS=0" in found.log) == (layout != IN_PANELS)
    assert "ERROR" not in found.log
    assert found.up["engine"]["kernels"] == [KERNEL] == found.status["engine"]["kernels"]
    assert re.search(r"NVFP4 kernel +VoltaNvFp4LinearKernel", found.shown)
    assert found.up["engine"]["surprises"] == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_rank_holds_its_part_of_codes_and_scales(
    layout: str, served: Callable[[str], Served], converted: Path
) -> None:
    ranks = served(layout).ranks
    tensor_parallel = 2 if "tensor" in layout else 1
    layers = numpy.array_split(range(4), len(ranks) // tensor_parallel)
    for number, rank in enumerate(ranks):
        wanted = quantised_parameters(
            converted, tensor_parallel, number % tensor_parallel, layers[number // tensor_parallel], layout == IN_PANELS
        )
        found = {name: rank["parameters"].get(name) for name in wanted}
        assert found == wanted
        quantised = {name for name in rank["parameters"] if "_proj." in name}
        assert quantised == set(wanted), "nothing beside them, and no layer of another stage"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_take_the_memory_that_is_predicted(
    layout: str, served: Callable[[str], Served], converted: Path
) -> None:
    checkpoint, device = inspect(converted), Device(None, 2**34)
    flags = {"max-model-len": LENGTH, "dtype": "float32", **LAYOUTS[layout]}
    settings = resolved_settings(flags, checkpoint.architecture, device, "0.27.1", platform="cpu")
    predicted = [each.weights for each in estimate(checkpoint, [device] * 2, settings).per_gpu]
    # Panels have a scale of float32 for each row, which counts in a model as narrow as this one.
    held = [
        sum(each["bytes"] for name, each in rank["parameters"].items() if not name.endswith(".weight_row_scale"))
        + rank["buffers"]
        for rank in served(layout).ranks
    ]
    print(f"{layout}: {held} bytes of weights, predicted {predicted}")
    assert predicted == pytest.approx(held, rel=0.001)


# What vLLM joins: its parameter, the checkpoint's, and the axis that ranks of tensor parallelism divide.
JOINED = {
    "self_attn.qkv_proj": (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), 0),
    "self_attn.o_proj": (("self_attn.o_proj",), 1),
    "mlp.gate_up_proj": (("mlp.gate_proj", "mlp.up_proj"), 0),
    "mlp.down_proj": (("mlp.down_proj",), 1),
}


def quantised_parameters(
    checkpoint: Path, ranks: int, rank: int, layers: Any, in_panels: bool
) -> dict[str, dict[str, Any]]:
    """What a rank of tensor parallelism must hold of these layers, from the bytes of the checkpoint."""
    source = open_source(checkpoint, ("model.safetensors",))
    found = {}
    for layer in layers:
        for joined, (modules, axis) in JOINED.items():
            begin = f"model.layers.{layer}"
            mine = {}
            for kept, stored in (("weight", "weight_packed"), ("weight_scale", "weight_scale")):
                parts = [source.read(f"{begin}.{module}.{stored}") for module in modules]
                mine[kept] = numpy.concatenate([numpy.split(part, ranks, axis=axis)[rank] for part in parts])
            scales = numpy.concatenate([source.read(f"{begin}.{module}.weight_global_scale") for module in modules])
            assert len(set(scales.tolist())) == 1, "what an engine joins is converted with one scale"
            factor = numpy.float32(1) / scales[:1]
            if in_panels:
                rows = len(mine["weight"])
                mine = {kept: panels_of(kept, each) for kept, each in mine.items()}
                mine["weight_row_scale"] = factor.repeat(rows) * numpy.float32(2**14)
            else:
                mine["weight_global_scale"] = factor
            found |= {f"{begin}.{joined}.{kept}": described(each) for kept, each in mine.items()}
    return found


def panels_of(kept: str, stored: Any) -> Any:
    """Codes or block scales of a checkpoint as panels for quad pairs; rows and columns fill whole ones here."""
    table = stored.view(numpy.uint8)
    if kept == "weight":
        table = numpy.stack((table & 15, table >> 4), axis=-1).reshape(len(table), -1)
    read, columns = (nvfp4_panel, 64) if kept == "weight" else (scale_panel, 4)
    rows, width = table.shape[0] // 32, table.shape[1] // columns
    values = table.tolist()
    made = [[read(values, row, panel, QUAD_PAIRS) for panel in range(width)] for row in range(rows)]
    return numpy.array(made, numpy.uint8)


def described(array: Any) -> dict[str, Any]:
    content = numpy.ascontiguousarray(array).tobytes()
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


DAMAGED = "model.layers.1.mlp.down_proj"


def without(suffix: str) -> Callable[[Path], None]:
    """Takes one tensor of DAMAGED out of a checkpoint."""

    def change(directory: Path) -> None:
        source = open_source(directory, ("model.safetensors",))
        kept = {
            name: (tensor.dtype, tensor.shape, source.raw(name).tobytes())
            for name, tensor in source.tensors.items()
            if name != f"{DAMAGED}.{suffix}"
        }
        write_safetensors(directory / "model.safetensors", kept, {"format": "pt"})

    return change


def in_groups_of_32(directory: Path) -> None:
    """Says of the codes that 32 of them share a scale."""
    document = json.loads((directory / "config.json").read_text())
    for group in document["quantization_config"]["config_groups"].values():
        group["weights"]["group_size"] = 32
    (directory / "config.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (in_groups_of_32, "claims groups of 32, stored is 16"),
        (without("weight_scale"), f"no weight_scale for {DAMAGED}"),
        (without("weight_global_scale"), f"no weight_global_scale for {DAMAGED}"),
    ],
)
def test_a_damaged_checkpoint_is_refused_before_anything_starts(
    damage: Callable[[Path], None],
    told: str,
    command: Onecat,
    converted: Path,
    configure: Callable[[Path, str], Path],
    tmp_path: Path,
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(converted, damaged)
    damage(damaged)
    refused = command("up", "--config", configure(damaged, "damaged"))
    assert refused.code != 0
    assert told in " ".join(refused.stderr.split())
    assert not (command.home / "deployments" / "damaged").exists()
    command("model", "verify", damaged).expect(1)
