"""Lets vLLM find plugins: `registering.py SITE TOOLS`; vllm_volta in SITE, and those that TOOLS has."""

from __future__ import annotations

import sys
from pathlib import Path

MODULES = ("triton_capture", "first_configuration", "one_gpu")
PLUGINS = {
    "vllm_volta": ["volta = vllm_volta.plugin:register"],
    "h200_run": [f"{module} = {module}:install" for module in MODULES],
}


def main() -> None:
    """Write what the installation of a wheel would write, and copies of the plugins of TOOLS."""
    site, tools = Path(sys.argv[1]), Path(sys.argv[2])
    for name, entries in PLUGINS.items():
        metadata = site / f"{name}-0.dist-info"
        metadata.mkdir(exist_ok=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
        (metadata / "entry_points.txt").write_text("\n".join(["[vllm.general_plugins]", *entries, ""]))
    for module in MODULES:
        (site / f"{module}.py").write_text((tools / f"{module}.py").read_text())


if __name__ == "__main__":
    main()
