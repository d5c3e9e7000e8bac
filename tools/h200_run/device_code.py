"""The kernels of vllm_volta as PTX for compute capability 7.0: `device_code.py OUT.ptx`.

A GPU of any later kind compiles it when it is loaded, so that kernels written for a V100 run where none is. Made by
NVRTC 12.6 from the development environment, as the tests do; newer compilers have no code for 7.0.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from onecat.patching.series import ADDED, load_series  # noqa: E402
from tests.unit.volta.device_compiler import ptx_of  # noqa: E402


def main() -> None:
    """Write the PTX, and say how many kernels it has."""
    if len(sys.argv) != 2:
        sys.exit("usage: device_code.py OUT.ptx")
    source = load_series("vllm-0.27.1").directory / ADDED / "vllm_volta" / "csrc" / "device_code.cu"
    ptx = ptx_of(source.read_text(encoding="utf-8"), source.name, source.parent)
    # The text ends with a zero byte, which the extension adds by itself.
    Path(sys.argv[1]).write_text(ptx.rstrip("\0"), encoding="utf-8")
    print(f"{sys.argv[1]}: {ptx.count('.entry ')} kernels, {len(ptx)} bytes")


if __name__ == "__main__":
    main()
