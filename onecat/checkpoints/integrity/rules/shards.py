"""Weight files against their headers, against each other and against the index."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.checkpoints.consolidated import consolidated
from onecat.checkpoints.integrity.contents import Contents, Copy
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.integrity.registry import rule
from onecat.checkpoints.json_text import DOWNLOAD_AGAIN
from onecat.checkpoints.numbering import first_of, is_numbered, missing_of_series
from onecat.checkpoints.sources import INDEX

MOST_TOLD = 20
"""Missing shards that are told one by one."""
INDEX_SOURCE = "https://huggingface.co/docs/transformers/big_models#sharding"
LOADER_SOURCE = "https://github.com/vllm-project/vllm/blob/v0.27.1/vllm/model_executor/model_loader/weight_utils.py"


@rule
def whole_files(contents: Contents) -> Iterator[Fault]:
    """Each weight file is as long as its header says."""
    for name, error in contents.broken.items():
        if contents.sizes[name] < 0:
            continue  # a link to nothing, which is told as such
        fix = "run `git lfs pull` in that directory" if error.code == "lfs-pointer" else DOWNLOAD_AGAIN
        if error.code == "unreadable":
            fix = "check its owner and mode"
        yield Fault(
            error.code,
            "fail",
            str(error),
            name,
            fix,
            "An engine ends with MetadataIncompleteBuffer, HeaderTooLarge or a MemoryError when it opens this file.",
            "https://github.com/QwenLM/Qwen3-VL/issues/264",
        )


@rule
def no_shard_missing(contents: Contents) -> Iterator[Fault]:
    """Each shard that the index lists, or that the numbers of the others count, is there."""
    why = "Loading ends at the first missing shard, or leaves its weights as they were made: noise."
    if contents.weight_map is not None:
        for name in sorted(set(contents.weight_map.values()) - set(contents.weight_files)):
            yield Fault("missing-shard", "fail", f"is listed in {INDEX} and not there", name, "download it", why)
    elif INDEX in contents.documents:
        text = "has no `weight_map` of tensors to files"
        yield Fault("bad-index", "fail", text, INDEX, DOWNLOAD_AGAIN, source=INDEX_SOURCE)
    if not contents.weight_files:
        others = [name for name in contents.sizes if name.endswith((".bin", ".gguf", ".pt", ".pth"))]
        text = "has no *.safetensors file" + (f", but {others[0]}" if others else "")
        fix = "download the weights, or convert them to safetensors" if others else "download the weights"
        yield Fault("no-weights", "fail", text, str(contents.directory), fix)
    series = [name for name in contents.weight_files if is_numbered(name)]
    for name in missing_of_series(series)[:MOST_TOLD] if contents.weight_map is None else ():
        text = "is one of those that the names of the others count, and not there"
        yield Fault("missing-shard", "fail", text, name, "download it", why)
    if series and contents.weight_map is None and INDEX not in contents.sizes:
        yield Fault(
            "no-index",
            "warn",
            "is missing: several shards and nothing that says which tensor is where",
            INDEX,
            "copy it from the original checkpoint",
            "vLLM loads all *.safetensors without it; transformers and other loaders do not.",
            INDEX_SOURCE,
        )


@rule
def index_and_shards_agree(contents: Contents) -> Iterator[Fault]:
    """Tensors are where the index says, each once, and all of them are named: in each copy of the weights."""
    for copy in contents.copies:
        yield from _copy(contents, copy)


def _copy(contents: Contents, copy: Copy) -> Iterator[Fault]:
    listed, index = copy.weight_map, copy.index
    where: dict[str, str] = {}
    twice: dict[tuple[str, str], list[str]] = {}
    for file, tensor in contents.tensors_of(copy.files):
        first = where.setdefault(tensor.name, file)
        if first != file:
            twice.setdefault((first, file), []).append(tensor.name)
    for (first, file), names in twice.items():
        text = f"holds {first_of(names)}, as {first} does"
        fix = "remove what does not belong to this checkpoint; a conversion may have been run twice into one directory"
        why = "vLLM loads both in the natural order of the files' names and keeps the later; other loaders may not."
        yield Fault("tensor-twice", "fail", text, file, fix, why, LOADER_SOURCE)
    if listed is None:
        return
    absent: dict[str, list[str]] = {}
    elsewhere: dict[str, list[str]] = {}
    for name, file in listed.items():
        if file in contents.headers and name not in where:
            absent.setdefault(file, []).append(name)
        elif file in contents.headers and where[name] != file:
            elsewhere.setdefault(file, []).append(name)
    for file, names in absent.items():
        text = f"lacks {first_of(names)}, which {index} says it holds"
        yield Fault("missing-tensor", "fail", text, file, DOWNLOAD_AGAIN, source=INDEX_SOURCE)
    for file, names in elsewhere.items():
        text = f"does not hold {first_of(names)} as {index} says; {where[names[0]]} does"
        why = "vLLM loads whole files and does not mind; transformers looks where the index points."
        yield Fault("tensor-elsewhere", "warn", text, file, "write the index anew", why, INDEX_SOURCE)
    unnamed: dict[str, list[str]] = {}
    for name, file in where.items():
        if name not in listed:
            unnamed.setdefault(file, []).append(name)
    for file, names in unnamed.items():
        text = f"holds {first_of(names)}, which {index} does not name"
        why = "vLLM loads whole files with them; transformers leaves them out."
        yield Fault("unlisted-tensor", "warn", text, file, "write the index anew", why, INDEX_SOURCE)


@rule
def total_size(contents: Contents) -> Iterator[Fault]:
    """The index's total size is that of the tensors it names."""
    metadata = contents.document(INDEX).get("metadata")
    stated = metadata.get("total_size") if isinstance(metadata, dict) else None
    if stated is None or contents.weight_map is None or set(contents.shards) != set(contents.weight_map.values()):
        return
    if contents.broken.keys() & set(contents.shards):
        return
    held = sum(contents.headers[name].data_bytes for name in contents.shards)
    if stated != held:
        text = f"states a total_size of {stated} bytes; its shards hold {held}"
        why = "Engines do not read it; planners and downloaders that trust it are misled."
        yield Fault("index-total-size", "warn", text, INDEX, "trust the shards", why, INDEX_SOURCE)


@rule
def files_beside(contents: Contents) -> Iterator[Fault]:
    """Weight files that an engine will not load, or will load though they do not belong."""
    if contents.weight_map:
        own = consolidated(contents.weight_files)
        for name in sorted(set(contents.weight_files) - set(contents.weight_map.values()) - set(own)):
            text = f"is not listed in {INDEX}: engines do not load it"
            yield Fault("unlisted-shard", "info", text, name, "", "It only takes space.", LOADER_SOURCE)
    if contents.weight_files:
        for name, size in contents.sizes.items():
            if "/" not in name and re.fullmatch(r"(pytorch_model|model|consolidated).*\.(bin|pt|pth)", name):
                text = f"lies beside safetensors ({size / 1e9:.1f} GB): engines read the safetensors"
                yield Fault("bin-beside", "info", text, name, "", "It only takes space.", LOADER_SOURCE)
