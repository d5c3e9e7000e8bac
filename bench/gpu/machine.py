"""What a harness notes of the machine it runs on, and how it leaves its records."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path


def machine_record(built: Path) -> dict[str, object]:
    """The GPU, its driver, torch, and when; `built`: the extension in use."""
    import torch

    return {
        "extension": built.name,
        "gpu": torch.cuda.get_device_name(0),
        "capability": list(torch.cuda.get_device_capability(0)),
        "driver": driver_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def driver_version() -> str:
    """As nvidia-smi tells it, where it is there."""
    if shutil.which("nvidia-smi") is None:
        return "unknown"
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "unknown"


def write_lines(path: Path, records: Iterable[object]) -> None:
    """One JSON document a line."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
