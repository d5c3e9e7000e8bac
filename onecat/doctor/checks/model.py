"""The files of the checkpoint that is to be served."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor.checkpoint import (
    checkpoint_of,
    faults_of,
    is_hub_name,
    read,
    untold_of,
    verdicts,
    whole_directory,
)
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import counted

SCALES = ("scale-shape", "packed-shape", "missing-scale", "orphan-scale", "fused-scales-differ")
FILES = (
    "missing-shard", "no-weights", "no-index", "bad-index", "lfs-pointer", "truncated", "overlong", "bad-header",
    "unknown-dtype", "unreadable", "missing-file", "bad-json", "missing-tokenizer",
    "dead-link", "incomplete-download", "incomplete-rewrite", "headers-only",
)  # fmt: skip
"""Problems of `inspect` that model.checkpoint tells, where no rule of `model verify` says the same."""

CLAIMED = ("group-size-differs", "block-differs")
"""Faults of what a configuration claims: model.configuration tells them."""

NVFP4 = (
    "https://github.com/vllm-project/compressed-tensors/blob/main/src/compressed_tensors/compressors/nvfp4/helpers.py"
)
SHA256 = "https://www.gnu.org/software/coreutils/manual/html_node/sha2-utilities.html"


@check(
    "model.checkpoint",
    title="The checkpoint is whole",
    why="A torn or missing shard, or a Git LFS pointer in place of a file, ends the start after minutes of loading.",
    fix=("download the files again that are named, and compare their checksums: onecat model verify PATH --hash",),
    source=(
        "https://github.com/QwenLM/Qwen3-VL/issues/264",
        "https://github.com/vllm-project/vllm/pull/57975",
        "https://github.com/huggingface/safetensors",
    ),
)
def model_checkpoint(context: Context) -> Iterator[Verdict]:
    """Names, sizes and headers of the checkpoint's files, its index, configuration and tokenizer."""
    assessment, model = context.settings.assessment, context.settings.model
    if assessment is not None and assessment.error is not None and model is not None and not is_hub_name(model):
        yield Verdict(
            "fail",
            f"The checkpoint cannot be read: {assessment.error}",
            model,
            (assessment.error,),
            ("name the checkpoint's directory: --model PATH, or model.path in onecat.yaml",
             "onecat model pull ORG/NAME DIRECTORY fetches one"),
        )  # fmt: skip
        return
    if (reason := whole_directory(context)) is not None:
        yield Verdict("skip", f"Not checked: {reason}")
        return
    seen = checkpoint_of(context)
    files = counted(len(seen.files), "weight file")
    faults = [fault for fault in faults_of(context) if fault.code not in {*SCALES, *CLAIMED}]
    faults += [fault for fault in untold_of(context) if fault.code in FILES]
    yield from verdicts(faults, f"The checkpoint is whole: {files}, {seen.weight_bytes / 1e9:.1f} GB", seen.directory)


@check(
    "model.scales",
    title="Scales fit the weights that they belong to",
    why="Scales of another shape end the loading, or weights are multiplied with the scales of others.",
    fix=("download the file again, or convert the checkpoint anew",),
    source=(NVFP4, "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/layers/quantization/fp8.py"),
    requires=(whole_directory,),
)
def model_scales(context: Context) -> Iterator[Verdict]:
    """The shapes of scales against those of their weights, in FP8 blocks, NVFP4, MXFP4 and integers."""
    seen = checkpoint_of(context)
    if seen.quantization is None:
        yield Verdict("pass", "The checkpoint is not quantised: it has no scales", seen.directory)
        return
    faults = [fault for fault in (*faults_of(context), *untold_of(context)) if fault.code in SCALES]
    yield from verdicts(faults, f"All scales fit their weights ({seen.quantization.scheme})", seen.directory)


@check(
    "model.configuration",
    title="The configuration says of the weights what they are",
    why="Engines load by what config.json says. Where the tensors are not that, loading ends or answers are noise.",
    fix=("take config.json from the checkpoint that the weights come from: onecat model inspect PATH shows both",),
    source=("https://huggingface.co/docs/transformers/main_classes/configuration",),
    requires=(read,),
)
def model_configuration(context: Context) -> Iterator[Verdict]:
    """What config.json claims of quantisation and sizes against the tensors."""
    seen = checkpoint_of(context)
    elsewhere = SCALES if whole_directory(context) is not None else (*SCALES, *FILES)
    faults = [fault for fault in faults_of(context) if fault.code in CLAIMED]
    faults += [fault for fault in untold_of(context) if fault.code not in elsewhere]
    name = seen.architecture.name or "an architecture that config.json does not name"
    yield from verdicts(faults, f"Configuration and tensors agree ({name})", seen.directory)


@check(
    "model.checksums",
    title="The files are as the list of their checksums says",
    why="A checksum of the publisher is the only proof that no byte of the weights is another.",
    fix=("onecat model verify PATH --hash reads all files and compares",),
    source=(SHA256,),
    requires=(whole_directory,),
)
def model_checksums(context: Context) -> Iterator[Verdict]:
    """Names and sizes against a SHA256SUMS, or what the hub left, in the directory; no file is hashed."""
    assessment = context.settings.assessment
    assert assessment is not None
    if not assessment.manifests:
        yield Verdict("skip", "Not checked: no list of checksums lies beside the weights")
        return
    lists = " and ".join(f"{name} ({count})" for name, count in assessment.manifests)
    fine = f"Names and sizes are as {lists} says; `onecat model verify --hash` compares the bytes"
    yield from verdicts(assessment.checksum_faults, fine, checkpoint_of(context).directory)
