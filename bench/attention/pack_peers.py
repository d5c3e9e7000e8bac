"""Compiles vLLM's Triton attention for a V100, down to PTX, for the layers that the harness times.

    PYTHONPATH=TRITON_3.7.1 ENGINE_PYTHON bench/attention/pack_peers.py OUT.tar [--only TEXT]

ENGINE_PYTHON: of an environment with vLLM 0.27.1 and torch; no GPU is needed, and vLLM is not imported, only read.
TRITON_3.7.1: a folder with the Triton that torch 2.13 pins. vLLM's own wrapper chooses constants, tiles and warps, as
for a device of capability 7.0; launches are written down and compiled instead. PTX for 7.0 runs on every later GPU.
"""

from __future__ import annotations

import argparse
import enum
import hashlib
import importlib.util
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from bench.attention import prebuilt, shapes, upstream  # noqa: E402

CAPABILITY = 70


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--only", default="", help="layers whose name contains this")
    given = arguments.parse_args()
    sources = installed_vllm()
    heads = [each for each in shapes.ALL if given.only in each.name]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in (upstream.HELPERS, upstream.KERNELS):
            (folder / upstream.FOLDER).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(sources / upstream.FOLDER / f"{name}.py", folder / upstream.FOLDER / f"{name}.py")
        variants = compiled_variants(folder, heads)
        prebuilt.write_listing(folder, variants)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(given.out, "w") as archive:
            archive.add(folder, ".")
    size = given.out.stat().st_size
    print(f"{given.out}: {len(variants)} kernels, {size} bytes, {time.monotonic() - begun:.0f} s")
    return 0


def installed_vllm() -> Path:
    """The folder of the vLLM of this environment, which is not imported."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("this Python has no vLLM")
    return Path(next(iter(spec.submodule_search_locations)))


def compiled_variants(folder: Path, heads: list[shapes.Heads]) -> list[prebuilt.Variant]:
    """Each kernel that vLLM's wrapper launches for these layers' batches, once; PTX files in the folder."""
    stand_in_for_a_driver()
    module = upstream.load(folder)
    variants: dict[str, prebuilt.Variant] = {}

    def note(function: Any) -> Callable[..., object]:
        return lambda *positional, grid=None, warmup=False, **values: compile_once(function, values, folder, variants)

    for name in ("kernel_unified_attention", "reduce_segments"):
        function = getattr(module, name)
        function.run = note(function)
    for each in heads:
        for requests in shapes.REQUESTS:
            launch(module, each, requests, queries=1)
        launch(module, each, 1, queries=2)
        print(f"{each.name}: {len(variants)} kernels so far", flush=True)
    return list(variants.values())


def launch(module: Any, heads: shapes.Heads, requests: int, queries: int) -> None:
    """Call vLLM's wrapper with tensors that have the strides and alignments of the harness'."""
    import torch

    half, count = torch.float16, torch.int32
    query = torch.zeros(requests * queries, heads.heads, heads.head_size, dtype=half)
    attention = upstream.UnifiedAttention(module, heads.heads, heads.kv_heads, heads.head_size, "cpu")
    attention(
        query,
        torch.zeros(2, heads.block_size, heads.kv_heads, 2 * heads.head_size, dtype=half).transpose(1, 2),
        torch.zeros_like(query),
        torch.arange(requests + 1, dtype=count) * queries,
        torch.full((requests,), queries, dtype=count),
        torch.zeros(requests, shapes.TABLE_COLUMNS, dtype=count),
        queries,
        heads.head_size**-0.5,
        window=heads.window,
    )


def stand_in_for_a_driver() -> None:
    """Let Triton's NVIDIA backend take this machine for one with a GPU of that capability."""
    import triton
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget

    class Driver:
        def is_active(self) -> bool:
            return True

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", CAPABILITY, 32)

        def get_current_device(self) -> int:
            return 0

    triton.runtime.driver.set_active(Driver())
    for name, backend in backends.items():
        backend.driver.is_active = staticmethod(lambda name=name: name == "nvidia")


def compile_once(function: Any, values: dict[str, Any], folder: Path, variants: dict[str, prebuilt.Variant]) -> None:
    """Compile a launch down to PTX, unless one with the same constants and alignments is there already."""
    import triton
    from triton.compiler import ASTSource

    _, _, target, backend, binder = function.device_caches[0]
    bound, specialization, _ = binder(**values)
    options, signature, constants, attributes = function._pack_args(backend, values, bound, specialization, {})
    names = function.arg_names
    key = repr((function.__name__, signature, constants, attributes))
    if key in variants:
        return
    source = ASTSource(function, signature, constants, attributes)
    ptx, metadata = ptx_of(source, backend, target, options)
    passed = [(name, kind) for name, kind in signature.items() if kind != "constexpr"]
    unknown = [kind for _, kind in passed if not kind.startswith("*") and kind not in prebuilt.C_TYPES]
    assert not unknown, f"parameters of types that the launcher does not know: {unknown}"
    counted = ptx.split(".entry", 1)[1].split("{", 1)[0].count(".param ")
    assert counted == len(passed) + prebuilt.SCRATCH_PARAMETERS, f"{counted} parameters for {passed}"
    assert not metadata["global_scratch_size"] and not metadata["profile_scratch_size"], "it wants scratch memory"
    # Constants that change nothing in the code make the same text again: it is kept, and loaded, once.
    file = f"{function.__name__}-{hashlib.sha256(ptx.encode()).hexdigest()[:16]}.ptx"
    (folder / file).write_text(ptx, encoding="utf-8")
    aligned = [
        names[path[0]] for path, attribute in attributes.items() if ["tt.divisibility", 16] in map(list, attribute)
    ]
    variants[key] = prebuilt.Variant(
        kernel=function.__name__,
        entry=metadata["name"],
        file=file,
        parameters=passed,
        constants={names[path[0]]: plain(value) for path, value in constants.items()},
        aligned=aligned,
        warps=options.num_warps,
        shared=metadata["shared"],
        target=next(line for line in ptx.splitlines() if line.startswith(".target")),
        triton=triton.__version__,
    )


def plain(value: Any) -> Any:
    """Enumerations as their numbers."""
    return int(value) if isinstance(value, enum.IntEnum) else value


def ptx_of(source: Any, backend: Any, target: Any, options: Any) -> tuple[str, dict[str, Any]]:
    """Triton's stages up to PTX: the assembler, which takes most of the time, is left out."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import Language

    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
    backend.add_stages(stages, options, Language.TRITON)
    metadata = {"target": target, **options.__dict__}
    module = source.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == "ptx":
            return str(module), metadata
    raise AssertionError("Triton has no stage that makes PTX")


if __name__ == "__main__":
    sys.exit(main())
