"""A wheel that holds nothing but a distribution's name and version.

vLLM decides for its CPU platform when the distribution `vllm` has "cpu" in its version (vllm/platforms/__init__.py,
cpu_platform_plugin). A build of it under another distribution name therefore needs this companion.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path


def metadata_wheel_name(name: str, version: str) -> str:
    """File name of the wheel (binary distribution format: name-version-py3-none-any.whl)."""
    return f"{name}-{version}-py3-none-any.whl"


def metadata_wheel(name: str, version: str, summary: str) -> bytes:
    """The wheel's bytes; the same input gives the same bytes. `name` must be normalised (PEP 503, with `_` for `-`)."""
    described = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n".encode(),
    }
    return wheel_of(name, version, {}, described)


def wheel_of(name: str, version: str, files: Mapping[str, bytes], described: Mapping[str, bytes]) -> bytes:
    """The bytes of a pure wheel of `files`; the same input gives the same bytes, so nothing in it is compressed.

    Parameters:
        name: normalised. files: path in site-packages -> content. described: name in the .dist-info folder -> content.
    """
    directory = f"{name}-{version}.dist-info"
    wheel = b"Wheel-Version: 1.0\nGenerator: onecat\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    entries = dict(files) | {f"{directory}/{each}": content for each, content in described.items()}
    entries[f"{directory}/WHEEL"] = wheel
    record = "".join(f"{path},sha256={_record_hash(content)},{len(content)}\n" for path, content in entries.items())
    entries[f"{directory}/RECORD"] = f"{record}{directory}/RECORD,,\n".encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, content in entries.items():
            entry = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def write_metadata_wheel(directory: Path, name: str, version: str, summary: str) -> tuple[Path, str]:
    """Write the wheel into `directory`; returns its path and its SHA-256 in hex."""
    content = metadata_wheel(name, version, summary)
    path = directory / metadata_wheel_name(name, version)
    if not path.is_file() or path.read_bytes() != content:
        path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


def _record_hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
