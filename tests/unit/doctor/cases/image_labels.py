"""What built images say of themselves."""

from __future__ import annotations

from dataclasses import replace

from onecat.facts import DockerImage, Facts
from onecat.patching import load_series
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, DOCKER, H200, HEALTHY, NOTHING_KNOWN, V100

TAG = "onecat/vllm-patched:0.27.1-sm70"
CURRENT = f"vllm-0.27.1 sha256:{load_series('vllm-0.27.1').for_profile(V100).digest}"


def built(facts: Facts = HEALTHY, **labels: str) -> Facts:
    """The image of the V100 profile is there, with these labels of io.onecat."""
    rows = tuple((f"io.onecat.{name.replace('_', '-')}", value) for name, value in labels.items())
    return replace(facts, docker=replace(DOCKER, images=(DockerImage("sha256:1", (TAG,), labels=rows),)))


CASES: list[Case] = [
    case("image.minimum-driver", "pass", f"runs {TAG}", built(minimum_driver="525.60.13")),
    case("image.minimum-driver", "fail", "it needs 999.10.1", built(minimum_driver="999.10.1")),
    case("image.minimum-driver", "pass", f"runs {TAG}", built(minimum_driver="525.60.13"), None),
    case("image.minimum-driver", "skip", "no image says", built(minimum_driver="525.60.13"), H200),
    case("image.minimum-driver", "skip", "no image says", built()),
    case("image.minimum-driver", "skip", "driver version", built(NOTHING_KNOWN, minimum_driver="525.60.13")),
    case("image.minimum-driver", "skip", "uses no NVIDIA GPU", HEALTHY, CPU),
    case("image.patch-series", "pass", "has the patches of this onecat", built(patch_series=CURRENT)),
    case("image.patch-series", "warn", "other patches", built(patch_series="vllm-0.27.1 sha256:0123")),
    case("image.patch-series", "skip", "not built", HEALTHY),
    case("image.patch-series", "skip", "patches no engine", HEALTHY, H200),
    case("image.patch-series", "skip", "no profile", built(patch_series=CURRENT), None),
]
