"""The GPU code of the engine against the GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.cuda_code import capability_of, code_of, split_list
from onecat.doctor.hardware import compute_capability, meant, place, subject
from onecat.doctor.registry import Verdict, check
from onecat.facts import DockerImage
from onecat.knowledge.cuda_builds import ImageBuild, TorchBuild, image_build, torch_build

ARCHITECTURES_LABEL = "io.onecat.cuda-architectures"
NO_KERNEL_IMAGE = "https://github.com/vllm-project/vllm/issues/19185"
COMPATIBILITY = "https://docs.nvidia.com/cuda/archive/11.0_GA/pascal-compatibility-guide/index.html"


@check(
    "gpu.compute-capability",
    title="The GPUs have the compute capability that the profile's image is built for",
    why='Code built for another architecture stops with "no kernel image is available for execution on the device".',
    fix=("choose the profile of your GPUs: onecat profile detect",),
    source=("https://developer.nvidia.com/cuda-gpus",),
    requires=(requirements.gpu_profile, requirements.gpus),
)
def gpu_compute_capability(context: Context) -> Iterator[Verdict]:
    """The compute capability that NVML reports, or that of the product by its name."""
    assert context.profile is not None
    needed = context.profile.hardware.compute_capability
    for gpu in context.gpus:
        found = compute_capability(gpu)
        if needed is None or found is None:
            yield Verdict("skip", "Not checked: the compute capability is not known", subject(gpu))
        elif found != needed and gpu not in meant(context):
            others = ",".join(str(each.index) for each in meant(context))
            yield Verdict(
                "info",
                f"Compute capability {found}: the profile {context.profile.name} uses the GPUs beside it",
                subject(gpu),
                (f"{place(gpu)}: compute capability {found}",),
                fix=(f"keep it out of the server: CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={others}",),
            )
        elif found == needed:
            yield Verdict("pass", f"Compute capability {found}", subject(gpu))
        else:
            yield Verdict(
                "fail",
                f"Compute capability {found}, the profile {context.profile.name} is for {needed}",
                subject(gpu),
                (f"{place(gpu)}: compute capability {found}",),
                fix=("choose the profile of your GPUs: onecat profile detect",),
            )


@dataclass(frozen=True)
class _Build:
    """GPU code in one place. architectures: the whole list; build: a row that knows single entries."""

    where: str
    witness: str
    architectures: tuple[str, ...] | None = None
    build: ImageBuild | TorchBuild | None = None

    def runs_on(self, capability: str) -> bool | None:
        """Whether a GPU of this compute capability can run it; None when not known."""
        wanted, build = capability_of(capability), self.build
        listed = self.architectures if build is None else build.architectures
        if listed is not None and wanted is not None:
            codes = code_of(listed)
            return any(code.runs_on(wanted) for code in codes) if codes else None
        if build is not None and capability in build.has:
            return True
        return False if build is not None and capability in build.lacks else None


@check(
    "gpu.arch-in-image",
    title="The engine holds code for the GPUs",
    why="A GPU runs machine code of its own major compute capability, and PTX of its own or an older one. Without "
    'either a kernel stops with "no kernel image is available for execution on the device". No setting adds code.',
    fix=(
        "build or take an image with code for the GPU: onecat profile list",
        'look inside: python3 -c "import torch; print(torch.cuda.get_arch_list())"',
    ),
    source=(NO_KERNEL_IMAGE, COMPATIBILITY),
    requires=(requirements.gpus_matter,),
)
def gpu_arch_in_image(context: Context) -> Iterator[Verdict]:
    """The architectures inside the profile's image and inside every PyTorch that was seen.

    They come from the image's label, else from torch.cuda.get_arch_list() inside it (--smoke), else from the table of
    ready-made builds; an image that is not built yet counts with what its recipe builds for.
    """
    builds = [*_image(context), *_environments(context)]
    if not context.gpus or not builds:
        missing = "no image and no PyTorch is known" if context.gpus else requirements.gpus(context)
        yield Verdict("skip", f"Not checked: {missing}")
        return
    for gpu in meant(context):
        for build in builds:
            name = subject(gpu) if len(builds) == 1 else f"{subject(gpu)}, {build.where}"
            yield _judge(build, compute_capability(gpu), name)


def _judge(build: _Build, capability: str | None, name: str) -> Verdict:
    if capability is None:
        return Verdict("skip", "Not checked: the compute capability of the GPU is not known", name)
    runs = build.runs_on(capability)
    source = (*build.build.source, COMPATIBILITY) if build.build else ()
    if runs is None:
        return Verdict(
            "skip",
            f"Not checked: it is not known what {build.where} holds; try it: onecat doctor --smoke",
            name,
            (build.witness,),
        )
    if runs:
        return Verdict(
            "pass",
            f"{build.where} holds code for compute capability {capability}",
            name,
            (build.witness,),
            source=source,
        )
    return Verdict(
        "fail",
        f"{build.where} holds no code for compute capability {capability}",
        name,
        (build.witness,),
        fix=(
            "take an image that has it: onecat profile list, then onecat build --profile NAME",
            *(("PyTorch's own wheels for CUDA 12.6 hold sm_70 up to 2.14",) if capability == "7.0" else ()),
            'look inside: python3 -c "import torch; print(torch.cuda.get_arch_list())"',
        ),
        source=source,
    )


def _image(context: Context) -> Iterator[_Build]:
    """The image of the profile, by the best witness there is."""
    if context.profile is None or not context.wants_gpus or "container" not in context.runtimes:
        return
    tag, base = context.profile.image.tag, context.profile.image.base
    image = _find(context, tag)
    label = dict(image.labels).get(ARCHITECTURES_LABEL) if image else None
    if label:
        yield _Build(tag, f"label {ARCHITECTURES_LABEL} of {tag}: {label}", split_list(label))
        return
    inside = [each for each in context.facts.engines if _same(each.where, tag) or _same(each.where, base)]
    if any(each.cuda_architectures is not None or each.torch_version for each in inside):
        # They are judged with the other environments.
        return
    planned = context.profile.image.variables.get("arch_list")
    if planned is not None:
        yield _Build(tag, f"the profile's recipe builds for {planned}", split_list(str(planned)))
    else:
        build = image_build(base)
        witness = f"{base}, by the table of releases" if build else f"{base}: not in the table of releases"
        yield _Build(tag, witness, build=build)


def _environments(context: Context) -> Iterator[_Build]:
    """Every PyTorch that was seen, by its own list or by the table of its builds."""
    for each in context.facts.engines:
        if each.cuda_architectures is not None:
            listed = " ".join(each.cuda_architectures) or "none"
            yield _Build(each.where, f"torch.cuda.get_arch_list(): {listed}", each.cuda_architectures)
        elif each.torch_version and each.torch_cuda_version:
            witness = f"PyTorch {each.torch_version} for CUDA {each.torch_cuda_version}"
            yield _Build(each.where, witness, build=torch_build(each.torch_version, each.torch_cuda_version))


def _find(context: Context, tag: str) -> DockerImage | None:
    images: Sequence[DockerImage] = (context.facts.docker.images if context.facts.docker else None) or ()
    return next((image for image in images if any(_same(each, tag) for each in image.tags)), None)


def _same(first: str, second: str) -> bool:
    """Whether two references name the same image: docker.io/ and :latest may be left out."""

    def full(reference: str) -> str:
        reference = reference.removeprefix("docker.io/")
        return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"

    return full(first) == full(second)
