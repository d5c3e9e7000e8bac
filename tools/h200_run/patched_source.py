"""What build_extension.sh needs of the patched source of vLLM, as an archive of 1 MB: `patched_source.py OUT.tar.gz`.

That is all that its CMakeLists.txt reads until it has configured every target, and the whole of vllm_volta.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

NAMES = ("CMakeLists.txt", "cmake", "csrc", "vllm_volta")


def main() -> None:
    """Put the series on vLLM's source and pack what is needed of it."""
    if len(sys.argv) != 2:
        sys.exit("usage: patched_source.py OUT.tar.gz")
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "vllm-0.27.1"
        onecat = Path(sys.executable).with_name("onecat")
        subprocess.run([str(onecat), "patch", "apply", "--series", "vllm-0.27.1", "--to", str(tree)], check=True)
        with tarfile.open(sys.argv[1], "w:gz") as archive:
            for name in NAMES:
                archive.add(tree / name, f"{tree.name}/{name}", filter=without_caches)
    print(f"{sys.argv[1]}: {Path(sys.argv[1]).stat().st_size} bytes")


def without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what Python compiled."""
    return None if "__pycache__" in Path(member.name).parts else member


if __name__ == "__main__":
    main()
