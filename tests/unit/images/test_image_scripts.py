"""The shell scripts of the images: shellcheck has nothing to say, and a build step gets what the origins say."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from onecat.images.lock_session import packages_of
from onecat.images.options import LockedPackage
from onecat.resources import resource_directory

IMAGES = resource_directory("templates") / "image"
SCRIPTS = sorted(IMAGES.rglob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(script: Path) -> None:
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([str(checker), str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_reports_of_pip_keep_no_address(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    row = {
        "download_info": {
            "url": "https://mirror.example/t.whl?key=s3cret",
            "archive_info": {"hashes": {"sha256": "ab" * 32}},
        },
        "is_direct": False,
        "metadata": {"name": "Torch", "version": "2.13.0", "requires_dist": ["x @ https://mirror.example/x"]},
    }
    report = {
        "version": "1",
        "pip_version": "25.1",
        "install": [row],
        "environment": {"PIP_INDEX_URL": "https://mirror.example"},
    }
    (tmp_path / "reports" / "pip-20-torch.json").write_text(json.dumps(report))
    (tmp_path / "reports" / "externals.json").write_text("[]\n")
    script = IMAGES / "cuda" / "keep-reports.py"
    subprocess.run([sys.executable, str(script), str(tmp_path / "reports"), str(tmp_path / "kept")], check=True)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert sorted(kept) == ["externals.json", "pip-20-torch.json"]
    assert not [name for name, content in kept.items() if b"mirror" in content or b"s3cret" in content]
    assert packages_of(kept) == (LockedPackage("torch", "2.13.0", ("ab" * 32,)),)


def environment_of_a_step(**arguments: str) -> dict[str, str]:
    """What a command under with-origins sees, with these build arguments."""
    command = ["sh", str(IMAGES / "cuda" / "with-origins.sh"), "env"]
    environment = {"PATH": "/usr/bin:/bin", **arguments}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)


def test_a_step_without_origins_sees_nothing_new() -> None:
    assert {name for name in environment_of_a_step() if name.startswith(("PIP_", "GIT_", "SSL_"))} == set()


def test_pip_asks_pytorchs_index_besides_the_others_and_none_offline() -> None:
    seen = environment_of_a_step(PIP_EXTRA_INDEX_URL="https://one.example", TORCH_INDEX_URL="https://torch.example")
    assert seen["PIP_EXTRA_INDEX_URL"] == "https://one.example https://torch.example" and "PIP_NO_INDEX" not in seen
    assert environment_of_a_step(ONECAT_OFFLINE="yes")["PIP_NO_INDEX"] == "1"


def test_pip_and_git_trust_the_given_certificate_besides_the_systems() -> None:
    given = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    seen = environment_of_a_step(CA_CERTIFICATE=base64.b64encode(given).decode())
    assert seen["PIP_CERT"] == seen["GIT_SSL_CAINFO"] == seen["SSL_CERT_FILE"]
    trusted = Path(seen["PIP_CERT"])
    try:
        system = Path("/etc/ssl/certs/ca-certificates.crt")
        assert trusted.read_bytes() == (system.read_bytes() if system.is_file() else b"") + given
    finally:
        trusted.unlink()
