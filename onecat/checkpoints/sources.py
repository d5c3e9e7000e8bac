"""What is read of a checkpoint before anything is made of it: its documents, the headers of its files, their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onecat.checkpoints.json_text import DOWNLOAD_AGAIN, NotJson, parse_json
from onecat.checkpoints.quantization.reading import SIDE_FILES
from onecat.checkpoints.records import Problem
from onecat.checkpoints.tensors import StoredTensors

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
DOCUMENTS = (CONFIG, *SIDE_FILES)
"""Files that say what the weights are."""

ONLY_QUANTISATION = frozenset({"quantization", "quant_method", "quant_algo", "config_groups", "weights", "w_bit"})
"""Fields of a document that describes quantisation and no model."""


@dataclass(frozen=True)
class Source:
    """What was found in one place.

    documents: JSON objects by file name. tensors: rows of all headers. files: weight files that an engine would load.
    file_bytes: of those files, where only their sizes are known. parameters: as an index states them, 0 for not.
    """

    place: str
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tensors: tuple[StoredTensors, ...] = ()
    files: tuple[str, ...] = ()
    file_bytes: int = 0
    problems: tuple[Problem, ...] = ()
    parameters: int = 0


def read_documents(directory: Path, problems: list[Problem], *, required: bool = True) -> dict[str, dict[str, Any]]:
    """config.json and the files beside it that describe quantisation.

    A file beside it that cannot be read matters only where config.json says nothing of quantisation itself.
    """
    documents: dict[str, dict[str, Any]] = {}
    if required or (directory / CONFIG).is_file():
        documents[CONFIG] = read_json(directory / CONFIG, problems) or {}
    stated = isinstance(documents.get(CONFIG, {}).get("quantization_config"), Mapping)
    for name in SIDE_FILES:
        if (directory / name).is_file():
            found = read_json(directory / name, [] if stated else problems)
            if found is not None:
                documents[name] = found
    return documents


def documents_of(path: Path, document: Mapping[str, Any], problems: list[Problem]) -> dict[str, Mapping[str, Any]]:
    """A configuration by itself, with the files that describe quantisation beside it and are named alike.

    `config_NAME.json` and `hf_quant_config_NAME.json` belong together as config.json and hf_quant_config.json do. A
    document that describes nothing but quantisation is taken as the part of a config.json that does.
    """
    if path.name == CONFIG:
        return {**read_documents(path.parent, problems, required=False), CONFIG: document}
    if not document.keys() & {"architectures", "model_type"} and document.keys() & ONLY_QUANTISATION:
        name = SIDE_FILES[0] if "quantization" in document else CONFIG
        return {name: document if name != CONFIG else {"quantization_config": document}}
    found: dict[str, Mapping[str, Any]] = {CONFIG: document}
    for name in SIDE_FILES:
        beside = path.with_name(path.name.replace("config", name.removesuffix(".json"), 1))
        if beside != path and "config" in path.name and beside.is_file():
            side = read_json(beside, problems)
            if side is not None:
                found[name] = side
    return found


def read_json(path: Path, problems: list[Problem]) -> dict[str, Any] | None:
    """A JSON object; None, and a problem, when the file is none."""
    try:
        document = parse_json(path.read_bytes())
    except FileNotFoundError:
        problems.append(Problem("missing-file", "is missing", str(path), "copy it from the original checkpoint"))
        return None
    except OSError as error:
        problems.append(unreadable(path, error))
        return None
    except NotJson as error:
        problems.append(Problem("bad-json", f"is not valid JSON ({error})", str(path), error.fix))
        return None
    if not isinstance(document, dict):
        problems.append(Problem("bad-json", "is not a JSON object", str(path), DOWNLOAD_AGAIN))
        return None
    return document


def unreadable(path: Path, error: OSError) -> Problem:
    if isinstance(error, FileNotFoundError):
        fix = "download it again; a hub cache's blobs may have been removed"
        return Problem("dead-link", "is a link to a file that is not there", str(path), fix)
    return Problem("unreadable", f"cannot be read ({error.strerror})", str(path), "check its owner and mode")
