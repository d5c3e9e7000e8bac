"""Imports modules, each on its own account: `python import_modules.py DOCUMENT`, JSON on standard output.

DOCUMENT (JSON): modules (dotted names), capability ([7, 0], or null for vLLM's own platform), flash_attention.
Answers: {"module": null or "ImportError: ..."}.
"""

from __future__ import annotations

import importlib
import json
import sys

import fake_cuda  # type: ignore[import-not-found]


def main() -> None:
    """Write what became of each module."""
    request = json.loads(sys.argv[1])
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    if request["capability"]:
        device = fake_cuda.DEVICES[tuple(request["capability"])]
        fake_cuda.install(device, flash_attention=request["flash_attention"])
    json.dump({module: import_error(module) for module in request["modules"]}, output)


def import_error(module: str) -> str | None:
    """Why a module does not import; None when it does."""
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    main()
