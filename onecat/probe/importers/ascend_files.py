"""Version files of Huawei's software, also where vllm-ascend's collect_env prints them.

https://github.com/vllm-project/vllm-ascend/blob/main/collect_env.py
"""

from __future__ import annotations

import re

from onecat.probe.importers.registry import Capture, Part, holds, importer

_CANN = re.compile(
    r"^package_name=Ascend-cann-toolkit\n(?:\w{1,40}=.{0,200}\n){0,6}?version=([\w.]{1,40})", re.MULTILINE
)
_VERSION = re.compile(r"^[Vv]ersion=\[?([\w.]{1,40})", re.MULTILINE)


@importer("CANN", recognises=holds("package_name=Ascend-cann-toolkit"), hints=("cann",))
def cann(capture: Capture) -> Part:
    match = _CANN.search(capture.text)
    return {"ascend": {"cann_version": match.group(1)}} if match else {}


@importer(
    "/usr/local/Ascend/driver/version.info",
    recognises=holds("ascendhal_version=", "package_version=ascend-driver"),
    sections=("/usr/local/Ascend/driver/version.info",),
    hints=("ascend",),
)
def driver(capture: Capture) -> Part:
    match = _VERSION.search(capture.text)
    return {"ascend": {"driver_version": match.group(1)}} if match else {}
