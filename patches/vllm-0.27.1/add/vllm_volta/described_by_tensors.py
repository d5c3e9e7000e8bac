"""NVFP4 checkpoints in compressed-tensors form whose configuration only names the method."""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig

from vllm_volta import quasar


class DescribedByTensors(CompressedTensorsConfig):
    """compressed-tensors that learns from the tensors' names and types which layers are quantised.

    A module of its own, so that the processes of vLLM can send it to each other.
    """

    def maybe_update_config(self, model_name: str, hf_config: Any = None, revision: str | None = None) -> None:
        """Read the headers of the checkpoint; raises ValueError when it is not NVFP4."""
        from vllm.transformers_utils.config import get_safetensors_params_metadata

        described = quasar.describe(get_safetensors_params_metadata(model_name, revision=revision))
        self.ignore = described["ignore"]
        self.target_scheme_map = self._quantization_scheme_map_from_config(described)
