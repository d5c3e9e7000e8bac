"""Whether anything would change: one hash of all that decides how a server runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onecat.config.schema import Deployment
from onecat.planner.records import Plan, to_json

if TYPE_CHECKING:
    from onecat.hosts import FileStatus

_DECISIVE = ("engine", "engine_version", "runtime", "host", "env", "container", "served_name")
_PORT_WORDS = 2


def fingerprint(
    deployment: Deployment,
    plan: Plan,
    argv: Sequence[str],
    model_files: Mapping[str, FileStatus],
    proxied: bool,
    image_id: str | None,
    secret: str | None,
) -> str:
    """A hash of everything that decides how the server runs; 12 hex digits.

    Parameters:
        argv: its command line. model_files: size and time of the model's files. proxied: whether nginx is before it.
        image_id: what the image's name means now. secret: the API key; it goes through scrypt (RFC 7914), since the
            result is shown to people who may not know it.

    The port is left out: which one a release gets says nothing about how it runs.
    """
    settled = list(argv)
    if "--port" in settled:
        at = settled.index("--port")
        del settled[at : at + _PORT_WORDS]
    decisive = {
        "argv": settled,
        "plan": {name: value for name, value in to_json(plan).items() if name in _DECISIVE},
        "settings": deployment.model_dump(
            include={"port", "service", "gpus", "container", "ray", "proxy", "restart", "secrets"}
        ),
        "proxied": proxied,
        "image": image_id,
        "secret": None if secret is None else _stretched(secret, deployment.name),
        "model": [
            [name, each.size, each.modified] for name, each in sorted(model_files.items()) if each.kind == "file"
        ],
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


def _stretched(secret: str, salt: str) -> str:
    return hashlib.scrypt(secret.encode(), salt=salt.encode(), n=2**14, r=8, p=1, dklen=16).hex()
