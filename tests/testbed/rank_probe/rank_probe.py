"""What each rank of a server holds, asked through its collective_rpc: `--worker-extension-cls rank_probe.RankProbe`.

The interpreter is the engine's: nothing of onecat is at hand.
"""

from __future__ import annotations

import hashlib
from typing import Any


class RankProbe:
    """Methods that the engine adds to its worker."""

    def parameters(self: Any) -> dict[str, Any]:
        """The rank's number and, by name, each parameter's shape, type, bytes and the SHA-256 of what it holds.

        buffers: bytes of what the model keeps beside its parameters, as the table of rotary embedding.
        """
        import torch

        found = {}
        for name, parameter in self.model_runner.model.named_parameters():
            data = parameter.data.contiguous()
            content = data.reshape(-1).view(torch.uint8).numpy().tobytes()
            found[name] = {
                "shape": list(data.shape),
                "dtype": str(data.dtype).removeprefix("torch."),
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        buffers = sum(each.nbytes for _, each in self.model_runner.model.named_buffers())
        return {"rank": self.rank, "parameters": found, "buffers": buffers}
