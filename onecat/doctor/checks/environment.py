"""Environment variables that change what CUDA, the loader and PyTorch do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.findings import Status
from onecat.doctor.registry import Verdict, check

CUDA_VARIABLES = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
UNSET = "find where it is set: grep -rn {name} /etc/environment /etc/profile.d ~/.profile ~/.bashrc"


def variables(context: Context) -> dict[str, str]:
    """The environment of the user who probes."""
    return dict(context.facts.environment or ())


def worst(context: Context, status: Status) -> Status:
    """`status` where a server may inherit this environment, `info` where it runs in a container that does not."""
    return status if context.profile is None or "native" in context.runtimes else "info"


def remove(name: str) -> tuple[str, ...]:
    """How a variable is got rid of."""
    return (f"unset {name}", UNSET.format(name=name))


@check(
    "environment.ptx-jit",
    title="CUDA is not forced to compile all code anew",
    why="CUDA_FORCE_PTX_JIT makes the driver ignore ready-made code and compile PTX at each start. PTX only runs on "
    "its own compute capability and newer ones, so it never adds support for an older GPU, and libraries that bring no "
    "PTX fail.",
    fix=("unset CUDA_FORCE_PTX_JIT",),
    source=(CUDA_VARIABLES,),
    requires=(
        requirements.gpus_matter,
        requirements.environment,
    ),
)
def environment_ptx_jit(context: Context) -> Iterator[Verdict]:
    """CUDA_FORCE_PTX_JIT and CUDA_DISABLE_PTX_JIT in the environment of the user who probes."""
    found = variables(context)
    forced = [name for name in ("CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT") if found.get(name) == "1"]
    if not forced:
        yield Verdict("pass", "CUDA may use the code that libraries bring")
    for name in forced:
        yield Verdict(
            worst(context, "warn"),
            f"{name}=1 makes CUDA ignore ready-made code",
            name,
            (f"{name}=1",),
            fix=remove(name),
        )


@check(
    "environment.visible-devices",
    title="No variable hides GPUs",
    why="CUDA sees only the GPUs that CUDA_VISIBLE_DEVICES names; after the first name that fits none it sees no more.",
    fix=("unset CUDA_VISIBLE_DEVICES", "or name every GPU that the server is to use"),
    source=(CUDA_VARIABLES,),
    requires=(
        requirements.gpus_matter,
        requirements.environment,
    ),
)
def environment_visible_devices(context: Context) -> Iterator[Verdict]:
    """CUDA_VISIBLE_DEVICES (indices, UUIDs, MIG names) against the GPUs that there are and that the profile needs."""
    name = "CUDA_VISIBLE_DEVICES"
    value = variables(context).get(name)
    if value is None:
        yield Verdict("pass", f"{name} is not set")
        return
    words = [word.strip() for word in value.split(",")]
    seen = _visible(words, context)
    needed = context.profile.hardware.count if context.profile is not None and context.wants_gpus else 0
    evidence = (f"{name}={value}",)
    if value.strip() in ("", "-1", "NoDevFiles", "void", "none"):
        bad: Status = "fail" if context.wants_gpus else "warn" if context.gpus else "info"
        yield Verdict(worst(context, bad), f"{name} hides every GPU", name, evidence, fix=remove(name))
    elif not context.gpus:
        yield Verdict("info", f"{name} is set", name, evidence)
    elif seen < len(words):
        yield Verdict(
            worst(context, "warn"),
            f"{name} names {words[seen]!r}, which is no GPU of this host: CUDA sees {seen} of {len(context.gpus)}",
            name,
            (*evidence, *(f"GPU {gpu.index}: {gpu.uuid or gpu.name}" for gpu in context.gpus)),
            fix=remove(name),
        )
    elif needed and seen < needed:
        yield Verdict(
            worst(context, "fail"),
            f"{name} shows {seen} of {len(context.gpus)} GPUs, the profile needs {needed}",
            name,
            evidence,
            fix=remove(name),
        )
    elif seen < len(context.gpus):
        yield Verdict("info", f"{name} shows {seen} of {len(context.gpus)} GPUs", name, evidence)
    else:
        yield Verdict("pass", f"{name} shows every GPU", name, evidence)


def _visible(words: list[str], context: Context) -> int:
    """How many of the words from the first on name a device; CUDA stops at the first that does not."""
    for position, word in enumerate(words):
        if word.isascii() and word.isdigit():
            fits = int(word) < len(context.gpus)
        elif word.startswith("MIG-"):
            fits = any(gpu.mig_enabled is not False for gpu in context.gpus)
        elif word.startswith("GPU-"):
            fits = any(gpu.uuid is None or gpu.uuid.startswith(word) for gpu in context.gpus)
        else:
            fits = False
        if not fits:
            return position
    return len(words)


@check(
    "environment.launch-blocking",
    title="CUDA works without waiting for each kernel",
    why="CUDA_LAUNCH_BLOCKING makes every call wait until the GPU is done: good for finding a fault, several times "
    "slower in service.",
    fix=("unset CUDA_LAUNCH_BLOCKING",),
    source=(CUDA_VARIABLES, "https://discuss.pytorch.org/t/cuda-launch-blocking-1-reduces-the-training-speed/160924"),
    requires=(
        requirements.gpus_matter,
        requirements.environment,
    ),
)
def environment_launch_blocking(context: Context) -> Iterator[Verdict]:
    """CUDA_LAUNCH_BLOCKING in the environment of the user who probes."""
    name = "CUDA_LAUNCH_BLOCKING"
    value = variables(context).get(name)
    if value in (None, "", "0"):
        yield Verdict("pass", "CUDA works asynchronously")
    else:
        yield Verdict(
            worst(context, "warn"),
            f"{name} makes the server slow",
            name,
            (f"{name}={value}",),
            fix=remove(name),
        )


@check(
    "environment.library-path",
    title="The loader finds the driver's own CUDA libraries",
    why="A stub libcuda only serves to link programs: what loads it sees no GPU. A libcuda of a CUDA compatibility "
    "package that is older than the driver fails with error 803 or 804.",
    fix=("take the directory out of LD_LIBRARY_PATH",),
    source=(
        "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
        "https://github.com/gpustack/gpustack/issues/4678",
    ),
    requires=(
        requirements.gpus_matter,
        requirements.environment,
    ),
)
def environment_library_path(context: Context) -> Iterator[Verdict]:
    """LD_LIBRARY_PATH, for directories of stubs and of compatibility packages."""
    name = "LD_LIBRARY_PATH"
    value = variables(context).get(name, "")
    directories = [each for each in value.split(":") if each]
    stubs = [each for each in directories if re.search(r"/stubs/?$", each)]
    compat = [each for each in directories if re.search(r"/compat/?$|/cuda-compat", each)]
    if not stubs and not compat:
        yield Verdict("pass", "LD_LIBRARY_PATH leads past no driver library")
    for directory in stubs:
        yield Verdict(
            worst(context, "fail" if context.wants_gpus else "warn"),
            f"{name} leads to CUDA's stubs: programs find a libcuda that does nothing",
            directory,
            (f"{name}={value}",),
            fix=(f"take {directory} out of {name}", UNSET.format(name=name)),
        )
    for directory in compat:
        yield Verdict(
            worst(context, "warn"),
            f"{name} leads to the libraries of a CUDA compatibility package",
            directory,
            (f"{name}={value}",),
            fix=(f"take {directory} out of {name}, unless the driver is older than the CUDA of the engine",),
        )


@check(
    "environment.preload",
    title="Nothing is loaded into every program",
    why="What LD_PRELOAD names is loaded into the server too: a wrapper of CUDA or NCCL changes what it does, and a "
    "file that is gone puts an error before every output.",
    fix=("unset LD_PRELOAD",),
    source=("https://unix.com/man-page/debian/8/ld.so/",),
    requires=(requirements.environment,),
)
def environment_preload(context: Context) -> Iterator[Verdict]:
    """LD_PRELOAD in the environment of the user who probes."""
    value = variables(context).get("LD_PRELOAD", "")
    if not value.strip():
        yield Verdict("pass", "LD_PRELOAD is not set")
    else:
        yield Verdict(
            "info",
            "LD_PRELOAD puts a library into every program",
            "LD_PRELOAD",
            (f"LD_PRELOAD={value}",),
            fix=remove("LD_PRELOAD"),
        )
