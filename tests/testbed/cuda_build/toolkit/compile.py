"""What `nvcc -fatbin -gencode arch=compute_70,code=sm_70 -std=c++17 -ccbin COMPILER -o OUT SOURCE` does, with NVRTC
12.6 and ptxas in place of nvcc's own front end, once for the same source. Any other option ends it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from tests.testbed.cache import open_cache  # noqa: E402
from tests.testbed.cuda_stand_ins import fat_binary  # noqa: E402
from tests.unit.volta.compiled import cached_machine_code, cached_ptx  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, prefix_chars="-")
    parser.add_argument("-fatbin", action="store_true", required=True)
    parser.add_argument("-gencode", choices=["arch=compute_70,code=sm_70"], required=True)
    parser.add_argument("-std", choices=["c++17"], required=True)
    parser.add_argument("-ccbin", type=Path, required=True)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    parser.add_argument("source", type=Path)
    options = parser.parse_args()
    if not options.ccbin.exists():
        parser.error(f"{options.ccbin} is no compiler")
    with open_cache() as cache:
        code = cached_machine_code(cache, cached_ptx(cache, options.source))
        options.out.write_bytes(fat_binary(code.cubin.read_bytes(), 70))


if __name__ == "__main__":
    main()
