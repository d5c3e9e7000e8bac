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


SERIES = "vllm-0.27.1"


@pytest.mark.parametrize("form", ["nvfp4-pack-quantized", "float-quantized"])
def test_the_series_of_patches_brings_kernels_for_cpus(form: str) -> None:
    assert has_kernel(flag_schema("vllm-cpu", "0.27.1", SERIES), "compressed-tensors", form)
    assert has_kernel(flag_schema("vllm-cpu", "0.27.1", SERIES), "modelopt_fp4")


def test_the_name_of_quasar_is_known_to_patched_engines_alone() -> None:
    assert "quasar_nvfp4" in flag_schema("vllm-cpu", "0.27.1", SERIES).quantization
    assert "quasar_nvfp4" not in flag_schema("vllm-cpu", "0.27.1").quantization


def test_a_series_takes_nothing_from_an_engine_that_has_it_in_its_name() -> None:
    with_series = flag_schema("vllm-patched", "0.27.1", SERIES)
    assert with_series == flag_schema("vllm-patched", "0.27.1")
    assert with_series.quantization["quasar_nvfp4"] == 70
