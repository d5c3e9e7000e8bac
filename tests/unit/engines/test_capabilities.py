"""What engines can run of the ways to store weights."""

from __future__ import annotations

import pytest

from onecat.engines import flag_schema, has_kernel


@pytest.mark.parametrize(
    ("engine", "method", "form", "runs"),
    [
        ("vllm", "compressed-tensors", "nvfp4-pack-quantized", True),
        ("vllm-cpu", "compressed-tensors", "nvfp4-pack-quantized", False),
        ("vllm-cpu", "modelopt_fp4", None, False),
        ("vllm-cpu", "compressed-tensors", "float-quantized", True),
        ("vllm-cpu", "compressed-tensors", None, True),
        ("vllm-cpu", "fp8", None, True),
    ],
)
def test_nvfp4_has_no_kernel_on_cpus(engine: str, method: str, form: str | None, runs: bool) -> None:
    assert has_kernel(flag_schema(engine, "0.27.1"), method, form) is runs
