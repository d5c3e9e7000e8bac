"""The calculation in an engine's image that --smoke asks for."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check
from onecat.facts import EngineEnvironment


@check(
    "docker.smoke",
    title="A container of the engine's image calculates right on the GPUs",
    why="Driver, container toolkit, image and GPU must fit together; one small matrix product proves it.",
    fix=("read the error: it is what the server would end with",),
    source=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",),
    requires=(requirements.gpus_matter,),
)
def docker_smoke(context: Context) -> Iterator[Verdict]:
    """The outcome of --smoke IMAGE: PyTorch multiplies two matrices on every GPU in a container of that image."""
    tried = [each for each in context.facts.engines if each.gpu_ok is not None]
    if not tried:
        note = context.facts.note("smoke")
        yield Verdict("skip", f"Not checked: {note.text if note else 'it was not asked for (--smoke IMAGE)'}")
    for each in tried:
        if each.gpu_ok:
            yield Verdict("pass", f"{each.where} calculates right on every GPU", each.where, _versions(each))
        else:
            yield _failed(each)


def _failed(engine: EngineEnvironment) -> Verdict:
    from onecat.observe import diagnose

    error = engine.error or "the result was wrong, or there was none"
    causes = diagnose(error.splitlines())
    return Verdict(
        "fail",
        f"{engine.where} does not work with these GPUs" + (f": {causes[0].cause}" if causes else ""),
        engine.where,
        (*error.splitlines()[-3:], *_versions(engine)),
        fix=tuple(causes[0].fix) if causes else ("read the error: it is what the server would end with",),
        source=tuple(causes[0].source) if causes else (),
    )


def _versions(engine: EngineEnvironment) -> tuple[str, ...]:
    parts = (("PyTorch", engine.torch_version), ("CUDA", engine.torch_cuda_version), ("engine", engine.engine_version))
    known = [f"{name} {version}" for name, version in parts if version]
    return (", ".join(known),) if known else ()
