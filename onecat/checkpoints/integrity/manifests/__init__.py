"""Lists of checksums in the forms that publishers and hubs give them.

In: a file, or a model directory. Out: `Manifest` records. A new form is a new file with a reader, named in reading.py.
"""

from onecat.checkpoints.integrity.manifests.reading import find_manifests, read_manifest
from onecat.checkpoints.integrity.manifests.records import Algorithm, Entry, Manifest
from onecat.checkpoints.integrity.manifests.text import text_of

__all__ = ["Algorithm", "Entry", "Manifest", "find_manifests", "read_manifest", "text_of"]
