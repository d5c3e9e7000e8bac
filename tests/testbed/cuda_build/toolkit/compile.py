"""What `nvcc -fatbin -gencode arch=compute_N,code=sm_N -std=c++17 -ccbin COMPILER -o OUT SOURCE` does, with NVRTC 12.6
and ptxas in place of nvcc's own front end. Any other option ends it."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from tests.testbed.cuda_stand_ins import fat_binary  # noqa: E402
from tests.unit.volta.device_compiler import assemble, ptx_of  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, prefix_chars="-")
    parser.add_argument("-fatbin", action="store_true", required=True)
    parser.add_argument("-gencode", required=True)
    parser.add_argument("-std", choices=["c++17"], required=True)
    parser.add_argument("-ccbin", type=Path, required=True)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    parser.add_argument("source", type=Path)
    options = parser.parse_args()
    found = re.fullmatch(r"arch=compute_(\d+),code=sm_\1", options.gencode)
    if found is None or not options.ccbin.exists():
        parser.error(f"{options.gencode}, {options.ccbin}")
    source: Path = options.source
    with tempfile.TemporaryDirectory() as scratch:
        ptx = ptx_of(source.read_text(encoding="utf-8"), source.name, source.parent, f"compute_{found[1]}")
        assemble(ptx, Path(scratch), f"sm_{found[1]}")
        options.out.write_bytes(fat_binary((Path(scratch) / "kernels.cubin").read_bytes(), int(found[1])))


if __name__ == "__main__":
    main()
