#!/usr/bin/env python3
"""Write which architectures a version of vLLM knows, from the source of its registry, without importing it:

    python tools/engine_architectures.py 0.27.1 SOURCE/vllm/model_executor/models/registry.py \
        > onecat/engines/architectures/vllm-0.27.1.yaml
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PREVIOUS = "_PREVIOUSLY_SUPPORTED_MODELS"
OTHERS = ("_OOT_SUPPORTED_MODELS",)


def read_registry(path: Path) -> tuple[set[str], dict[str, str]]:
    """The architectures that a registry's source has, and those that it had, with the last release that did."""
    known: set[str] = set()
    removed: dict[str, str] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Dict) or target.id in OTHERS:
            continue
        for key, each in zip(value.keys, value.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                continue
            if target.id == PREVIOUS:
                removed[key.value] = str(ast.literal_eval(each))
            elif target.id.endswith("_MODELS"):
                known.add(key.value)
    return known, removed


def main() -> None:
    version, path = sys.argv[1:]
    known, removed = read_registry(Path(path))
    print(f"# The architectures of vLLM {version}, from its models/registry.py by tools/engine_architectures.py.")
    print(f"version: {version}")
    print("# The last release that had each.")
    print("removed:")
    for name in sorted(removed):
        print(f'  {name}: "{removed[name]}"')
    print("known:")
    for name in sorted(known):
        print(f"  - {name}")


if __name__ == "__main__":
    main()
