"""Integrity: whether a model directory is whole, by its headers, index, documents, scales and checksums.

In: a directory, lists of checksums. Out: a `Verification` with its `Fault`s. A new rule about a directory is a function
in rules/, a new form of checksum lists a file in manifests/.
"""

from onecat.checkpoints.integrity.assessment import Assessment, assess
from onecat.checkpoints.integrity.claims import untold
from onecat.checkpoints.integrity.contents import Contents, read_contents
from onecat.checkpoints.integrity.manifests import Manifest, find_manifests, read_manifest, text_of
from onecat.checkpoints.integrity.progress import Progress
from onecat.checkpoints.integrity.records import Fault, Verification
from onecat.checkpoints.integrity.verification import Request, is_content, static_faults, verify
from onecat.checkpoints.records import Severity

__all__ = [
    "Assessment",
    "Contents",
    "Fault",
    "Manifest",
    "Progress",
    "Request",
    "Severity",
    "Verification",
    "assess",
    "find_manifests",
    "is_content",
    "read_contents",
    "read_manifest",
    "static_faults",
    "text_of",
    "untold",
    "verify",
]
