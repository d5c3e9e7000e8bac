"""Look at a checkpoint: configuration, headers of its weight files, tokenizer, and what is wrong with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from onecat.checkpoints.architectures import describe
from onecat.checkpoints.collapsing import collapsed
from onecat.checkpoints.contradictions import contradictions
from onecat.checkpoints.directory import read_directory, read_whole_or_header, stated_sizes
from onecat.checkpoints.listing import LISTS, read_listing
from onecat.checkpoints.measuring import shares_of
from onecat.checkpoints.other_kinds import other_kind
from onecat.checkpoints.pulled import RESUME_PULL, STATE_DIRECTORY, unfinished_pull
from onecat.checkpoints.quantization import read_quantization
from onecat.checkpoints.reconstruction import from_tensors
from onecat.checkpoints.records import Checkpoint, Problem
from onecat.checkpoints.rewritten import RESUME_REWRITE, REWRITE_DIRECTORY, unfinished_rewrite
from onecat.checkpoints.safetensors_header import HeaderError
from onecat.checkpoints.sources import CONFIG, INDEX, Source, documents_of, read_documents
from onecat.checkpoints.unfinished import explained
from onecat.errors import OnecatError

LARGEST_DOCUMENT = 1 << 27
"""Bytes of a config.json or a listing; above that a file is something else."""

NEXT = ("correct model.path in onecat.yaml, or download the checkpoint to that directory",)


def inspect(path: Path) -> Checkpoint:
    """Read a checkpoint's configuration and headers; no weight is loaded.

    Parameters:
        path: a directory (whole, or with no more than headers, or an index), a config.json, one weight file, or a
            listing of a remote directory (with config.json beside it, where there is one).

    Raises OnecatError when there is nothing at `path`, or a file that is none of these. Everything else that is wrong
    with the checkpoint is in `problems`, so that all of it is told at once.
    """
    if path.is_dir():
        try:
            return described(_told(path, read_directory(path)))
        except OSError as error:
            raise OnecatError(
                f"the model directory {path} cannot be read: {error.strerror}",
                where=str(path),
                next_steps=("check its owner and mode: ls -ld",),
            ) from error
    if not path.exists():
        raise OnecatError(
            f"the model directory {path} does not exist",
            expected="a directory with config.json, *.safetensors and a tokenizer",
            where=str(path),
            next_steps=NEXT,
        )
    return described(_read_file(path))


def _told(directory: Path, source: Source) -> Source:
    """The same, with what the directory is when it is no checkpoint, and that it is still being downloaded or made."""
    other, unfinished = other_kind(directory), unfinished_pull(directory)
    still_to_come = explained(directory)
    problems = tuple(each for each in source.problems if each.code not in still_to_come)
    if other is not None:
        source = replace(source, files=source.files or other.files, file_bytes=source.file_bytes or other.bytes)
        problems = (other.problem, *(each for each in problems if each.code not in other.explains))
    if unfinished is not None:
        text = f"says that the download from {unfinished.source} has not come to its end"
        problems = (
            Problem("incomplete-download", text, str(directory / STATE_DIRECTORY), RESUME_PULL),
            *problems,
        )
    if (rewrite := unfinished_rewrite(directory)) is not None:
        text = f"says that the checkpoint which is made here from {rewrite.source} has not come to its end"
        problems = (Problem("incomplete-rewrite", text, str(directory / REWRITE_DIRECTORY), RESUME_REWRITE), *problems)
    return replace(source, problems=problems)


def described(source: Source) -> Checkpoint:
    """The checkpoint that was read: what its documents and tensors come to, and where they contradict each other."""
    config = source.documents.get(CONFIG, {})
    quantization = read_quantization(source.documents)
    architecture = from_tensors(describe(config), source.tensors, config, quantization)
    seen = Checkpoint(
        directory=source.place,
        architecture=architecture,
        quantization=quantization,
        tensors=source.tensors,
        measured=bool(source.tensors),
        files=source.files,
        problems=source.problems,
    )
    shares = shares_of(seen)
    stated = 0 if source.tensors else source.file_bytes
    seen = replace(
        seen,
        weight_bytes=stated or sum(share.bytes for share in shares),
        parameters=sum(share.parameters for share in shares) or source.parameters,
    )
    return replace(seen, problems=(*source.problems, *contradictions(seen, source)))


def _read_file(path: Path) -> Source:
    if not path.is_file():
        raise OnecatError(
            f"{path} is not a directory",
            expected="a directory with config.json, *.safetensors and a tokenizer",
            where=str(path),
            next_steps=NEXT,
        )
    if path.suffix == ".safetensors":
        return _weight_file(path)
    text = _text(path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and not document.keys() & set(LISTS):
        problems: list[Problem] = []
        if path.name == INDEX or "weight_map" in document:
            return _index(path, document)
        return Source(str(path), documents_of(path, document, problems), problems=tuple(problems))
    if document is None and path.suffix == ".json":
        raise OnecatError(
            f"{path.name} is not valid JSON", expected="a config.json or a hub's listing", where=str(path)
        )
    return read_listing(path, text)


def _index(path: Path, document: dict[str, object]) -> Source:
    problems: list[Problem] = []
    documents = read_documents(path.parent, problems, required=False)
    weight_map = document.get("weight_map")
    files = sorted({str(name) for name in weight_map.values()}) if isinstance(weight_map, dict) else []
    total, parameters = stated_sizes(document)
    return Source(str(path), documents, (), tuple(files), total, tuple(problems), parameters)


def _weight_file(path: Path) -> Source:
    """One file alone, with the configuration beside it."""
    problems: list[Problem] = []
    documents = read_documents(path.parent, problems, required=False)
    try:
        header, cut = read_whole_or_header(path)
    except HeaderError as error:
        raise OnecatError(f"{path.name} {error}", expected="a safetensors file", where=str(path)) from error
    if isinstance(cut, Problem):
        problems.append(cut)
    return Source(str(path), documents, collapsed([header]), (path.name,), 0, tuple(problems))


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_DOCUMENT:
            raise OnecatError(
                f"{path.name} is neither a config.json nor a listing: it is too large",
                expected="a model directory, its config.json, or a listing of its files",
                where=str(path),
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OnecatError(f"{path} cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise OnecatError(
            f"{path.name} is not text", expected="a model directory, its config.json, or a listing", where=str(path)
        ) from error
