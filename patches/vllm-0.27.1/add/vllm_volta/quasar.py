"""`quasar_nvfp4`: a name that guides for Volta give to NVFP4 weights in compressed-tensors form.

vLLM knows that form as compressed-tensors and finds it by itself. Whoever follows such a guide passes
`--quantization quasar_nvfp4`, or has a checkpoint whose configuration says so: in config.json, or in a file
quant_config.json beside it that names little more than the method. What the tensors are decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

if TYPE_CHECKING:
    import torch

NAME = "quasar_nvfp4"
CONTAINER = "compressed-tensors"
FORMAT = "nvfp4-pack-quantized"
WEIGHTS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
# How safetensors names the types of an NVFP4 layer's tensors.
TENSORS = {"weight_packed": "U8", "weight_scale": "F8_E4M3", "weight_global_scale": "F32"}


def register() -> None:
    """Let vLLM know the name."""
    register_quantization_config(NAME)(QuasarNvFp4Config)


class QuasarNvFp4Config(QuantizationConfig):
    """Stands for compressed-tensors under another name; it is never made, its from_config makes the real one."""

    def get_name(self) -> str:
        return CONTAINER

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        raise NotImplementedError

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        raise NotImplementedError

    @classmethod
    def get_min_capability(cls) -> int:
        return 70

    @staticmethod
    def get_config_filenames() -> list[str]:
        return ["quant_config.json"]

    @classmethod
    def override_quantization_method(
        cls, hf_quant_cfg: dict[str, Any], user_quant: str | None, hf_config: Any = None
    ) -> str | None:
        """compressed-tensors for a checkpoint that is asked for, or calls itself, by this name and describes NVFP4.

        Raises ValueError when it describes something else.
        """
        method = hf_quant_cfg.get("quant_method")
        if NAME not in (user_quant, method):
            return None
        if method not in (NAME, CONTAINER):
            raise refusal(f"its configuration says {method}")
        if "config_groups" not in hf_quant_cfg and method == NAME:
            return NAME
        check_groups(hf_quant_cfg)
        return CONTAINER

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> QuantizationConfig:
        """The configuration of compressed-tensors; without `config_groups` in `config`, as the tensors say."""
        from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
            CompressedTensorsConfig,
        )

        from vllm_volta.described_by_tensors import DescribedByTensors

        if "config_groups" in config:
            check_groups(config)
            return CompressedTensorsConfig.from_config(config)
        return DescribedByTensors.from_config({"quant_method": CONTAINER, "format": FORMAT, "config_groups": {}})


def check_groups(config: dict[str, Any]) -> None:
    """Raises ValueError unless each group of layers of a compressed-tensors configuration is NVFP4."""
    for name, group in config.get("config_groups", {}).items():
        weights = group.get("weights") or {}
        found = {key: weights.get(key, value if key == "symmetric" else None) for key, value in WEIGHTS.items()}
        if found != WEIGHTS:
            raise refusal(f"{name} has weights of {found}")
    if not config.get("config_groups"):
        raise refusal("its configuration has no config_groups")


def describe(tensors: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The compressed-tensors configuration of a checkpoint with these tensors.

    tensors: name to the entry of the safetensors header (`dtype`). Raises ValueError when they are not NVFP4.
    """
    quantised = sorted(name.rpartition(".")[0] for name in tensors if name.endswith(".weight_packed"))
    if not quantised:
        raise refusal("it has no tensor weight_packed")
    for module in quantised:
        for suffix, dtype in TENSORS.items():
            found = tensors.get(f"{module}.{suffix}", {}).get("dtype")
            if found != dtype:
                raise refusal(f"{module}.{suffix} is {found or 'absent'}, not {dtype}")
    has_activation_scales = any(name.endswith(".input_global_scale") for name in tensors)
    plain = {name.rpartition(".")[0] for name in tensors if name.endswith(".weight")}
    return {
        "quant_method": CONTAINER,
        "format": FORMAT,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {**WEIGHTS, "dynamic": False},
                "input_activations": {**WEIGHTS, "dynamic": "local"} if has_activation_scales else None,
            }
        },
        "ignore": sorted(plain - set(quantised)),
    }


def refusal(found: str) -> ValueError:
    """What is said to whoever calls another checkpoint by this name."""
    return ValueError(
        f"{NAME} means NVFP4 weights in {CONTAINER} form ({FORMAT}: {', '.join(TENSORS)}), but of this checkpoint "
        f"{found}. Leave --quantization out: vLLM reads the method from the checkpoint."
    )
