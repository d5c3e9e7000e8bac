"""Proves that a base image is the one that the profile means: `check-base.py ENGINE VERSION TORCH_NPU`.

Reads what the packages say of themselves: importing them needs the driver, which an image build does not have.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/usr/local/Ascend")
SCRIPTS = ("ascend-toolkit/set_env.sh", "cann/set_env.sh")


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def faults(engine: str, version: str, torch_npu: str) -> Iterator[tuple[str, str]]:
    """What is wrong with this image, as (found, expected)."""
    for package, wanted in ((engine, version), ("torch-npu", torch_npu)):
        found = version_of(package)
        # An image of a release may carry the commit behind its version.
        if found is None or found.partition("+")[0] != wanted:
            yield f"{package} {found or 'is not installed'}", f"{package} {wanted}"
    if not any((ROOT / script).is_file() for script in SCRIPTS):
        yield f"no CANN below {ROOT}", " or ".join(SCRIPTS)
    if shutil.which("vllm") is None:
        yield "no program vllm in PATH", "vLLM, which vllm-ascend extends"


def main() -> None:
    told = list(faults(*sys.argv[1:]))
    for found, expected in told:
        print(f"onecat: found: {found}", file=sys.stderr)
        print(f"onecat: expected: {expected}", file=sys.stderr)
    if told:
        print("onecat: next: set image.base to the project's image of this release", file=sys.stderr)
    sys.exit(1 if told else 0)


if __name__ == "__main__":
    main()
