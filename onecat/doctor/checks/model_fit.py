"""The checkpoint that is to be served against the engine and the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.checkpoint import (
    checkpoint_of,
    divisions,
    flag,
    read,
    schema_of,
    told_capability,
    weakest_capability,
)
from onecat.doctor.context import Context
from onecat.doctor.hardware import meant
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import GIB, counted
from onecat.engines import BFLOAT16_CAPABILITY, added_after, has_kernel, least_capability, removed_after, served_dtype

QUANTIZATION = "https://docs.vllm.ai/en/latest/features/quantization/"
REGISTRY = "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/models/registry.py"
DTYPES = "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/config/model.py"
PARALLEL = "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/config/model.py"
MEMORY = "https://docs.vllm.ai/en/latest/configuration/conserving_memory/"
SMALLEST_REST = 0.10
"""Share of a GPU's memory that weights must leave at least for context, activations and any KV cache at all."""


@check(
    "model.engine",
    title="The engine knows the architecture and the way the weights are stored",
    why="An engine that does not know them ends its start with the name of what it does not know.",
    fix=("onecat profile list shows engines with their versions",),
    source=(QUANTIZATION, REGISTRY),
    requires=(read, requirements.profile),
)
def model_engine(context: Context) -> Iterator[Verdict]:
    """Architecture and quantisation against the flag schema of the profile's engine, and the compute capability."""
    schema = schema_of(context)
    assert context.profile is not None
    engine = f"{context.profile.engine.name} {context.profile.engine.version}"
    if schema is None:
        yield Verdict("skip", f"Not checked: what {engine} accepts is not known to onecat")
        return
    seen = checkpoint_of(context)
    name, stored = seen.architecture.name, seen.quantization
    told = f"{name or 'unnamed architecture'}, {stored.scheme if stored else 'not quantised'}"
    if schema.family == "vllm" and name is not None:
        if (last := removed_after(schema.family, schema.version, name)) is not None:
            fix = (f"take a profile with vLLM {last}, or another model",)
            yield Verdict("fail", f"{engine} no longer serves {name}; vLLM {last} did", name, (told,), fix)
            return
        if (later := added_after(schema.family, schema.version, name)) is not None:
            fix = (f"take a profile with vLLM {later} or later",)
            yield Verdict("warn", f"{engine} does not know {name}; vLLM {later} does", name, (told,), fix)
            return
    if stored is not None and stored.method not in schema.quantization:
        methods = ", ".join(each for each in schema.quantization if "/" not in each)
        title = f"{engine} does not read weights stored by {stored.method}"
        yield Verdict("fail", title, stored.method, (told,), (f"take a checkpoint in one of: {methods}",))
        return
    if stored is not None and not has_kernel(schema, stored.method, stored.format):
        title = f"{engine} has no kernel for {stored.format or stored.method} on its hardware"
        fix = ("take a checkpoint without quantisation, or a profile with a GPU",)
        yield Verdict("fail", title, stored.method, (told,), fix)
        return
    capability = weakest_capability(context)
    least = least_capability(schema, stored.method, stored.format) if stored is not None else None
    if stored is not None and least is not None and capability is not None and capability < least:
        form = f"{stored.method}{f' {stored.format}' if stored.format else ''}"
        title = f"{form} needs compute capability {told_capability(least)}; the GPU has {told_capability(capability)}"
        fix = ("take a checkpoint in float16, or in a method that the card can run",)
        yield Verdict("fail", title, stored.method, (told, f"{engine} on {told_capability(capability)}"), fix)
        return
    yield Verdict("pass", f"{engine} knows the checkpoint: {told}", seen.directory)


@check(
    "model.dtype",
    title="The GPUs compute in the type of the weights",
    why="GPUs before Ampere have no bfloat16. Served as float16, values above 65504 overflow; some models must not be.",
    fix=("serve: {dtype: float16} in onecat.yaml",),
    source=(DTYPES,),
    requires=(read, requirements.gpus_matter),
)
def model_dtype(context: Context) -> Iterator[Verdict]:
    """The dtype of config.json and of the server's flags against the compute capability."""
    seen = checkpoint_of(context)
    capability, stored = weakest_capability(context), seen.architecture.dtype
    if capability is None or stored is None:
        missing = "the compute capability is not known" if stored else "config.json states no dtype"
        yield Verdict("skip", f"Not checked: {missing}")
        return
    schema, asked, kind = schema_of(context), flag(context, "dtype"), seen.architecture.model_type
    served = served_dtype(asked, stored, kind, capability, schema.float16_refused if schema is not None else ())
    evidence = (
        f"config.json: {stored}",
        f"compute capability {told_capability(capability)}",
        f"dtype: {asked or 'auto'}",
    )
    if served.refusal == "model":
        if capability >= BFLOAT16_CAPABILITY:
            title, other = f"{kind} cannot be served in float16: its values overflow", "bfloat16"
        else:
            title = f"{kind} cannot be served in float16, and the GPU has no bfloat16: float32 takes twice the memory"
            other = "float32"
        fix = (f"serve: {{dtype: {other}}} in onecat.yaml, if the memory suffices", "or take another model")
        yield Verdict("fail", title, str(kind), evidence, fix)
    elif served.refusal == "card":
        title = f"dtype {asked} is asked for, and the GPU has none"
        yield Verdict("fail", title, "dtype", evidence, ("serve: {dtype: float16} in onecat.yaml",))
    elif served.dtype == stored:
        yield Verdict("pass", f"Compute capability {told_capability(capability)} computes in {stored}", seen.directory)
    elif asked not in (None, "auto"):
        yield Verdict("pass", f"The checkpoint is in {stored} and its weights are served as {asked}, as is asked for",
                      seen.directory, evidence)  # fmt: skip
    elif served.dtype == "float32":
        title = f"{kind} is served as float32, at twice the memory: the engine refuses float16 for it"
        yield Verdict("warn", title, str(kind), evidence, ("take another model, or a GPU that has bfloat16",))
    else:
        why = "the GPU has no bfloat16" if stored == "bfloat16" else "so the engine chooses where nothing is asked for"
        title = f"The checkpoint is in {stored} and is served as {served.dtype}: {why}"
        yield Verdict("info", title, seen.directory, evidence)


@check(
    "model.divisible",
    title="Tensor parallelism divides the heads of the model",
    why="Each rank takes the same number of attention heads; the engine refuses a number that does not divide them.",
    fix=("choose a tensor-parallel-size that divides the heads", "or pipeline-parallel-size in its place"),
    source=(PARALLEL,),
    requires=(read, requirements.profile),
)
def model_divisible(context: Context) -> Iterator[Verdict]:
    """The attention heads of config.json against the tensor parallel size of onecat.yaml or the profile."""
    seen = checkpoint_of(context)
    heads, (parts, _) = seen.architecture.attention_heads, divisions(context)
    if heads is None:
        yield Verdict("skip", "Not checked: config.json states no number of attention heads")
    elif heads % parts:
        evidence = (f"{heads} attention heads", f"tensor-parallel-size {parts}")
        fitting = ", ".join(str(each) for each in range(1, 17) if heads % each == 0)
        fix = (f"tensor-parallel-size: one of {fitting}", "or pipeline-parallel-size in its place")
        yield Verdict("fail", f"{heads} attention heads cannot be divided by {parts}", seen.directory, evidence, fix)
    else:
        title = f"{heads} attention heads are divided by {parts}; onecat plan looks at scales and states too"
        yield Verdict("pass", title, seen.directory)


@check(
    "model.fit",
    title="The weights fit the memory of the GPUs",
    why="Weights that fill the memory leave nothing for the KV cache: the start ends for want of memory.",
    fix=("onecat plan --model PATH computes the memory exactly and names the nearest change that fits",),
    source=(MEMORY,),
    requires=(read, requirements.gpus_matter),
)
def model_fit(context: Context) -> Iterator[Verdict]:
    """Bytes of all tensors, divided evenly among the layout's GPUs, against the memory of the smallest of them.

    A crude bound: what does not fit by it does not fit, and what fits by it may still not.
    """
    seen = checkpoint_of(context)
    memories = [gpu.memory_total for gpu in meant(context) if gpu.memory_total]
    hardware = context.profile.hardware if context.profile is not None else None
    if not memories and hardware is not None and hardware.memory_gib is not None:
        memories = [int(hardware.memory_gib * GIB)]
    if not memories or not seen.weight_bytes:
        missing = "the memory of the GPUs is not known" if seen.weight_bytes else "the size of the weights is not known"
        yield Verdict("skip", f"Not checked: {missing}")
        return
    tensor, pipeline = divisions(context)
    share, memory = seen.weight_bytes / (tensor * pipeline), min(memories)
    evidence = (
        f"weights: {seen.weight_bytes / GIB:.1f} GiB on {counted(tensor * pipeline, 'GPU')}",
        f"memory of a GPU: {memory / GIB:.1f} GiB",
    )
    told = f"{share / GIB:.1f} GiB of weights on a GPU with {memory / GIB:.1f} GiB"
    fix = (
        "onecat plan --model PATH names the nearest change that fits",
        "divide it among more GPUs, or take fewer bits",
    )
    if share > memory:
        yield Verdict("fail", f"The weights do not fit: {told}", seen.directory, evidence, fix)
    elif share > memory * (1 - SMALLEST_REST):
        yield Verdict("warn", f"The weights leave no room for a KV cache: {told}", seen.directory, evidence, fix)
    else:
        yield Verdict("pass", f"The weights fit: {told}; onecat plan computes the rest", seen.directory, evidence)
