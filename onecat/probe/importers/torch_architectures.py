"""`python -c "import torch; print(torch.version.cuda, torch.cuda.get_arch_list())"`."""

from __future__ import annotations

import re
from typing import Any

from onecat.probe.importers.registry import Capture, Part, importer

_LIST = re.compile(
    r"^(?:(?P<torch>[0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,3}(?:\+\w{1,20})?)[ ,]{1,3})?"
    r"(?:(?P<cuda>[0-9]{1,3}\.[0-9]{1,2}|None)[ ,]{1,3})?"
    r"\[(?P<list>(?:'(?:sm|compute)_[0-9]{2,3}[af]?'(?:, )?){1,60})\]",
    re.MULTILINE,
)


@importer("torch.cuda.get_arch_list()", recognises=lambda text: _LIST.search(text) is not None, hints=("torch", "sm_"))
def torch_architectures(capture: Capture) -> Part:
    """What the PyTorch of an environment was built for; the environment is named after the capture."""
    match = _LIST.search(capture.text)
    if match is None:
        return {}
    engine: dict[str, Any] = {"where": capture.name, "cuda_architectures": re.findall(r"\w+", match.group("list"))}
    for name, group in (("torch_version", "torch"), ("torch_cuda_version", "cuda")):
        if match.group(group) and match.group(group) != "None":
            engine[name] = match.group(group)
    return {"engines": [engine]}
