"""The files of the model."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from onecat.doctor import Verdict, check
from onecat.doctor.units import counted
from onecat.live.preflight.look import Look, needs
from onecat.live.preflight.observing.model import ModelSeen


def is_about_scales(code: str) -> bool:
    """Whether a fault of a model directory is about how the weights are quantised."""
    return "scale" in code or "quant" in code


@check(
    "preflight.checksums",
    title="The model's files are those that were published",
    why="One wrong byte in a weight file makes answers worse without any error; a file that is cut off ends the start.",
    fix=("onecat model verify DIRECTORY --hash", "download what is wrong again: onecat model pull"),
    source=("https://csrc.nist.gov/pubs/fips/180-4/upd1/final", "https://github.com/huggingface/safetensors"),
    requires=needs(ModelSeen),
    group="model",
    place=1,
)
def checksums(look: Look) -> Iterator[Verdict]:
    """`onecat model verify` of the directory that is served, with all checksums that lie beside it (SHA256SUMS, those
    that a hub's download has left). Without any: sizes, headers, index. --quick leaves hashing out."""
    seen = look.of(ModelSeen)
    faults = [each for each in seen.faults if each.severity != "info" and not is_about_scales(each.code)]
    directory = shlex.quote(seen.directory)
    for each in faults:
        yield Verdict(
            "fail" if each.severity == "fail" else "warn",
            f"{each.where} {each.text}",
            evidence=(f"{seen.directory}/{each.where}", f"model verify: {each.code}"),
            fix=(each.fix or "download it again", f"onecat model verify {directory} --hash"),
            why=each.why,
            source=(each.source,),
        )
    if faults:
        return
    lists = ", ".join(name for name, _ in seen.manifests)
    size = f"{seen.weight_bytes / 1e9:.1f} GB" if seen.weight_bytes >= 10**8 else f"{seen.weight_bytes / 1e6:.1f} MB"
    headers = f"{counted(seen.weight_files, 'weight file')}, {counted(seen.tensors, 'tensor')}, {size}"
    if seen.hashed:
        yield Verdict("pass", f"{seen.hashed} files have the checksums of {lists}", evidence=(headers, *seen.left_out))
        return
    why = "there is no list of checksums" if not seen.manifests else f"{lists} was left out"
    yield Verdict("pass", f"Sizes and headers fit; {why}", evidence=(headers, *seen.left_out))
