"""Lets vLLM find two plugins: `registering.py SITE TOOLS`; vllm_volta in SITE, and triton_capture of TOOLS."""

from __future__ import annotations

import sys
from pathlib import Path

PLUGINS = {
    "vllm_volta": "volta = vllm_volta.plugin:register",
    "h200_run": "h200_run = triton_capture:install",
}


def main() -> None:
    """Write what the installation of a wheel would write, and a path file's stand-in for TOOLS."""
    site, tools = Path(sys.argv[1]), Path(sys.argv[2])
    for name, entry in PLUGINS.items():
        metadata = site / f"{name}-0.dist-info"
        metadata.mkdir(exist_ok=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
        (metadata / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{entry}\n")
    module = site / "triton_capture.py"
    module.write_text((tools / "triton_capture.py").read_text())


if __name__ == "__main__":
    main()
