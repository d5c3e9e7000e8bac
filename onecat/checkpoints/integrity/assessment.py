"""A model directory for the checks of a host: what it is made of and whether it is whole, without hashing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onecat.checkpoints.inspection import inspect
from onecat.checkpoints.integrity.comparison import check_without_hashing
from onecat.checkpoints.integrity.contents import read_contents
from onecat.checkpoints.integrity.manifests import find_manifests
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.integrity.verification import static_faults
from onecat.checkpoints.records import Checkpoint
from onecat.errors import OnecatError


@dataclass(frozen=True)
class Assessment:
    """What was read of a checkpoint on this machine.

    checkpoint: None when it could not be read; then `error` says why. faults: of files, index, documents and scales;
    None where only a config.json was given. manifests: names of the lists of checksums that lie there, each with how
    many it holds; checksum_faults: what they tell without hashing.
    """

    checkpoint: Checkpoint | None = None
    error: str | None = None
    faults: tuple[Fault, ...] | None = None
    manifests: tuple[tuple[str, int], ...] = ()
    checksum_faults: tuple[Fault, ...] = ()


def assess(path: Path) -> Assessment:
    """Read headers, configuration and small files of a model directory, or the config.json that stands in for one."""
    try:
        checkpoint = inspect(path)
        if not path.is_dir():
            return Assessment(checkpoint)
        contents = read_contents(path)
        manifests = find_manifests(path, contents.sizes)
    except OnecatError as error:
        return Assessment(error=error.found)
    except OSError as error:
        return Assessment(error=f"{error.filename or path} cannot be read: {error.strerror}")
    return Assessment(
        checkpoint,
        faults=tuple(static_faults(contents)),
        manifests=tuple((each.name, len(each.entries)) for each in manifests),
        checksum_faults=tuple(fault for each in manifests for fault in check_without_hashing(each, contents.sizes)),
    )
