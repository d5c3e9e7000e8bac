"""Let vLLM note what it must know of model classes: `VLLM_CACHE_ROOT=FOLDER python inspect_models.py CLASS...`.

vLLM imports a class in a process of its own for that, half a minute, and keeps the answer below its cache's folder.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from vllm.model_executor.models.registry import ModelRegistry


def main() -> None:
    """Inspect the classes side by side."""
    with ThreadPoolExecutor(len(sys.argv)) as pool:
        for name, known in zip(sys.argv[1:], pool.map(inspected, sys.argv[1:]), strict=True):
            print(name, known)


def inspected(name: str) -> object:
    """What vLLM knows of the class now."""
    return ModelRegistry.models[name].inspect_model_cls()


if __name__ == "__main__":
    main()
