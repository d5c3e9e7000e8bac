"""What the profile's built image says of itself, against the host and against this version of onecat."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.driver import driver_version, install_driver
from onecat.doctor.registry import Verdict, check
from onecat.doctor.units import version_key
from onecat.facts import DockerImage

DRIVER_LABEL = "io.onecat.minimum-driver"
SERIES_LABEL = "io.onecat.patch-series"
MINIMUM = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
LABELS = "https://github.com/opencontainers/image-spec/blob/main/annotations.md"


@check(
    "image.minimum-driver",
    title="The driver is new enough for the images that onecat has built",
    why="The CUDA of an image needs a driver of its family or a newer one. An older driver stops the server with "
    '"CUDA driver version is insufficient for CUDA runtime version".',
    fix=("install a newer NVIDIA driver", "or build an image with an older CUDA: onecat profile list"),
    source=(MINIMUM,),
    requires=(requirements.container_possible, requirements.gpus_matter),
)
def image_minimum_driver(context: Context) -> Iterator[Verdict]:
    """The driver version against the label of the profile's image; of every image of onecat without a profile."""
    images = [image for image in _images(context) if _label(image, DRIVER_LABEL)]
    driver = driver_version(context)
    if not images or driver is None:
        yield Verdict("skip", f"Not checked: {'no image says' if not images else 'the driver version is not known'}")
        return
    for image in images:
        name, minimum = _name(image), _label(image, DRIVER_LABEL) or ""
        evidence = (f"driver: {driver}", f"label {DRIVER_LABEL} of {name}: {minimum}")
        if version_key(driver) >= version_key(minimum):
            yield Verdict("pass", f"Driver {driver} runs {name}", name, evidence)
        else:
            yield Verdict(
                "fail",
                f"Driver {driver} is too old for {name}: it needs {minimum}",
                name,
                evidence,
                fix=(install_driver(context), "sudo reboot"),
            )


@check(
    "image.patch-series",
    title="The image was built with the patches that this onecat has",
    why="An image keeps the patches that it was built with. Faults that later patches mend are still in it.",
    fix=("build it again: onecat build --profile NAME", "see the patches: onecat patch list"),
    source=(LABELS,),
    requires=(requirements.container_possible, requirements.profile),
)
def image_patch_series(context: Context) -> Iterator[Verdict]:
    """The label of the profile's image against the series of patches that ships with this onecat."""
    from onecat.patching import load_series

    assert context.profile is not None
    patches = context.profile.image.patches
    if patches is None:
        yield Verdict("skip", f"Not checked: the profile {context.profile.name} patches no engine")
        return
    images = [image for image in _images(context) if _label(image, SERIES_LABEL)]
    if not images:
        yield Verdict("skip", "Not checked: the image is not built, or says nothing of its patches")
        return
    series = load_series(patches).for_profile(context.profile)
    expected = f"{series.name} sha256:{series.digest}"
    for image in images:
        found = _label(image, SERIES_LABEL) or ""
        if found == expected:
            yield Verdict("pass", f"{_name(image)} has the patches of this onecat", _name(image))
        else:
            yield Verdict(
                "warn",
                f"{_name(image)} was built with other patches than this onecat has",
                _name(image),
                (f"label {SERIES_LABEL}: {found}", f"this onecat: {expected}"),
                fix=(f"build it again: onecat build --profile {context.profile.reference}", "onecat patch list"),
            )


def _images(context: Context) -> list[DockerImage]:
    """The images of the profile's tag; without a profile all that have tags."""
    images = (context.facts.docker.images if context.facts.docker else None) or ()
    if context.profile is None:
        return [image for image in images if image.tags]
    return [image for image in images if context.profile.image.tag in image.tags]


def _label(image: DockerImage, name: str) -> str | None:
    return dict(image.labels).get(name)


def _name(image: DockerImage) -> str:
    return image.tags[0]
