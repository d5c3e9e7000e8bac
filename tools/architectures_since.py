#!/usr/bin/env python3
"""Write with which release of vLLM each architecture came, from the sources of many registries:

    python tools/architectures_since.py DIRECTORY > onecat/engines/architectures/since-vllm.yaml

DIRECTORY holds vllm/model_executor/models/registry.py of each release, as VERSION.py; it is in the release's sdist.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine_architectures import read_registry
from packaging.version import Version


def main() -> None:
    paths = sorted(Path(sys.argv[1]).glob("*.py"), key=lambda path: Version(path.stem))
    read = [(path.stem, read_registry(path)[0]) for path in paths]
    print(
        "# With which release of vLLM an architecture came, from models/registry.py of the releases that were read, by"
    )
    print("# tools/architectures_since.py. after: the last that was read without it; first: the first with it.")
    print(f"read: [{', '.join(version for version, _ in read)}]")
    print("since:")
    seen = set(read[0][1])
    rows: dict[str, tuple[str, str]] = {}
    for (before, _), (version, known) in zip(read, read[1:], strict=False):
        rows.update(dict.fromkeys(known - seen, (before, version)))
        seen |= known
    for name, (after, first) in sorted(rows.items()):
        print(f"  {name}: {{after: {after}, first: {first}}}")


if __name__ == "__main__":
    main()
