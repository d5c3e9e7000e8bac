"""What a probe is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ProbeOptions:
    """What a probe is asked to do beyond looking.

    root: directory on the host below which /proc, /sys and /etc are read.
    timeout: seconds that each fact source may take; all run at the same time.
    paths: directories whose free space matters, by purpose.
    sudo: become root for the facts that need it.
    load: keep each idle GPU's link busy for a moment and measure it.
    smoke_image: the container image in which a GPU calculation is tried; None for none.
    """

    root: str = "/"
    timeout: float = 10.0
    paths: Mapping[str, str] = field(default_factory=dict)
    sudo: bool = False
    load: bool = False
    smoke_image: str | None = None
