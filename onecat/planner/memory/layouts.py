"""What the engine keeps of a stored tensor: after conversion to its dtype, and after its kernels' own repacking.

Sources, at vLLM 0.27.1 under vllm/model_executor/layers: quantization/utils/marlin_utils*.py,
fused_moe/oracle/mxfp4.py, quantization/fp8.py, modelopt.py, compressed_tensors/, auto_gptq.py.
"""

from __future__ import annotations

import math
from typing import Literal

from onecat.checkpoints import WeightScheme
from onecat.planner.memory.dtypes import DTYPE_BYTES
from onecat.planner.memory.parameters import Parameter
from onecat.planner.memory.records import Device, MemorySettings
from onecat.planner.memory.versions import Behaviour, behaviour_of

Kernel = Literal["plain", "as-stored", "marlin", "cutlass", "triton", "panels"]

STORED_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2}
FLOATS = ("F32", "F16", "BF16")

VOLTA = (70, 75)
"""Capabilities from and below which onecat's own series runs the layers: NVFP4 and FP8 in panels for a model in
float16, all else as the checkpoint has it (patches/vllm-0.27.1/add/vllm_volta, process_weights_after_loading)."""
PANEL_ROWS, PANEL_COLUMNS, BLOCK = 32, 64, 16
"""Of a panel, and of an NVFP4 scale (patches/vllm-0.27.1/add/vllm_volta/csrc/panels.h)."""
FP8_CAPABILITY = 89
NVFP4_CAPABILITY = 100
HOPPER = 9

FLOAT32 = ("A_log", "e_score_correction_bias")
"""Parameters that models create in float32 whatever the dtype (vllm/model_executor/models/qwen3_next.py,
deepseek_v2.py)."""

DROPPED = (".weight_shape", ".k_scale", ".v_scale")
"""Tensors that are read and not kept as such."""


def kernel_of(scheme: WeightScheme | None, settings: MemorySettings, device: Device) -> Kernel:
    """Which layout the engine's kernel for a scheme wants on a device."""
    capability, behaviour = device.capability, behaviour_of(settings.engine_version)
    if scheme is None:
        return "plain"
    if settings.platform != "cuda" or capability is None:
        return "as-stored"
    if VOLTA[0] <= capability < VOLTA[1]:
        has_panels = scheme.name == "nvfp4" or scheme.name.startswith("fp8")
        return "panels" if has_panels and settings.dtype == "float16" else "as-stored"
    if scheme.name == "nvfp4":
        return "cutlass" if capability >= NVFP4_CAPABILITY and scheme.activations is not None else "marlin"
    if scheme.name.startswith("fp8"):
        return "as-stored" if capability >= FP8_CAPABILITY and scheme.activations is not None else "marlin"
    if scheme.name == "mxfp4" and capability // 10 == HOPPER and behaviour.mxfp4_triton_columns:
        return "triton"
    if scheme.name in ("mxfp4", "mxfp8"):
        return "as-stored" if capability >= NVFP4_CAPABILITY else "marlin"
    return "marlin" if scheme.activations is None else "as-stored"


def kept_bytes(
    parameter: Parameter, shape: tuple[int, ...], settings: MemorySettings, device: Device, behaviour: Behaviour
) -> int:
    """Bytes of one row (of all its experts that the rank holds when `shape` has their axis) after loading.

    Parameters:
        shape: of the tensor on the rank.
    """
    row, scheme = parameter.row, parameter.scheme
    kernel = kernel_of(scheme, settings, device)
    elements = math.prod(shape)
    own = DTYPE_BYTES[settings.dtype]
    if parameter.suffix in DROPPED:
        return 0
    if kernel == "plain" or parameter.suffix in (".bias", "_bias"):
        if parameter.suffix == "_bias" and parameter.experts > 1 and device.capability is not None:
            own = 4 if behaviour.mxfp4_triton_columns and device.capability // 10 == HOPPER else own
        if row.dtype not in FLOATS:
            return elements * STORED_BYTES.get(row.dtype, 1)
        return elements * (4 if row.name.rpartition(".")[2] in FLOAT32 else own)
    assert scheme is not None
    if kernel == "triton" and parameter.suffix == "_blocks":
        # Hopper's layout of values pads their columns; scales stay (triton_kernels, HopperMXValueLayout).
        *outer, groups, codes = shape
        return math.prod(outer) * _up(groups * codes * 2, behaviour.mxfp4_triton_columns) // 2
    if kernel == "marlin":
        return _marlin(parameter, scheme, shape, own, behaviour)
    if kernel == "panels" and len(shape) >= 2:
        return _panels(parameter, scheme, shape)
    if kernel == "cutlass" and parameter.suffix.endswith("weight_scale"):
        # Block scales are swizzled into tiles of 128 rows and 4 columns (quantization/utils/nvfp4_utils.py).
        *outer, rows, columns = shape
        return math.prod(outer) * _up(rows, 128) * _up(columns, 4)
    return elements * STORED_BYTES.get(row.dtype, 1)


def _panels(parameter: Parameter, scheme: WeightScheme, shape: tuple[int, ...]) -> int:
    """Codes and NVFP4's block scales are padded to whole panels, and each row has a scale in float32."""
    *outer, rows, columns = shape
    stored = STORED_BYTES.get(parameter.row.dtype, 1)
    wide = PANEL_COLUMNS // 2 if scheme.name == "nvfp4" else PANEL_COLUMNS
    if parameter.suffix in (".weight", ".weight_packed"):
        return math.prod(outer) * (_up(rows, PANEL_ROWS) * _up(columns, wide) + 4 * rows)
    if scheme.name == "nvfp4" and parameter.suffix == ".weight_scale":
        return math.prod(outer) * _up(rows, PANEL_ROWS) * _up(columns, PANEL_COLUMNS // BLOCK)
    return math.prod(shape) * stored


def _marlin(parameter: Parameter, scheme: WeightScheme, shape: tuple[int, ...], own: int, behaviour: Behaviour) -> int:
    suffix, elements = parameter.suffix, math.prod(shape)
    stored = STORED_BYTES.get(parameter.row.dtype, 1)
    if suffix in (".input_scale", ".input_global_scale", ".g_idx", ".weight_g_idx") and not (
        scheme.ordered and suffix.endswith("g_idx")
    ):
        return 0
    if suffix == ".qzeros" and not scheme.zero_points:
        return 0
    if scheme.name == "mxfp4" and suffix in ("_blocks", "_scales"):
        return _mxfp4_experts(parameter, shape, behaviour)
    if "scale" in suffix and scheme.block is not None:
        # One scale for a block of rows becomes one for each row, in the model's dtype.
        return elements * scheme.block[0] * own
    if scheme.name.startswith("fp8") and "scale" in suffix:
        return max(elements, parameter.weight.shape[0]) * own
    if scheme.name.startswith("int") and "scale" in suffix:
        return elements * own
    return elements * stored


def _mxfp4_experts(parameter: Parameter, shape: tuple[int, ...], behaviour: Behaviour) -> int:
    """Both sizes of the experts are rounded up: Marlin wants tiles of 128 columns and 256 rows."""
    experts, rows, groups = shape[:3]
    to_hidden, to_inner = behaviour.mxfp4_rounding
    down = parameter.row.name.rpartition(".")[2].startswith("down")
    rows = _up(rows, to_hidden) if down else 2 * _up(rows // 2, to_inner)
    groups = _up(groups * 32, to_inner if down else to_hidden) // 32
    return experts * rows * groups * (16 if parameter.suffix == "_blocks" else 1)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
