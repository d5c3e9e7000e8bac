"""An image of the small server of openai_server.py, with the entry point of onecat's images."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.testbed.deployments import SERVER

IMAGE = "onecat-test/openai-server:1"
DOCKERFILE = """
FROM {base}
COPY openai_server.py /server.py
RUN printf '#!/bin/sh\\nexec python3 -u /server.py "$@"\\n' > /usr/local/bin/serve && chmod 755 /usr/local/bin/serve
COPY entrypoint.sh /entrypoint.sh
ENTRYPOINT ["/bin/sh", "/entrypoint.sh"]
"""


def build_server_image(client: Any, base_image: str) -> str:
    """Build it on the Docker engine of `client`; returns its tag."""
    entrypoint = Path(__file__).parents[2] / "templates" / "image" / "common" / "entrypoint.sh"
    files = {
        "Dockerfile": DOCKERFILE.format(base=base_image).encode(),
        "openai_server.py": SERVER.read_bytes(),
        "entrypoint.sh": entrypoint.read_bytes().replace(b"\nvllm serve ", b"\nserve "),
    }
    build_from(client, IMAGE, files)
    return IMAGE


def build_from(client: Any, tag: str, files: Mapping[str, bytes]) -> None:
    """Build an image on the Docker engine of `client` from these files, a Dockerfile among them."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)
