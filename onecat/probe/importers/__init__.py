"""Importers: read raw captures (nvidia-smi, lspci, dmesg, ...) into parts of the facts.

In: the text of a capture. Out: parts of a document in the form of onecat.facts (parse_capture). Each module here has
importers for one program's output, recognised by content; a new form is a new module, found by its decorator.
"""

from onecat.probe.importers.registry import Capture, Part, all_importers, nearest_forms, parse_capture

__all__ = ["Capture", "Part", "all_importers", "nearest_forms", "parse_capture"]
