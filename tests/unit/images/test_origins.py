"""Where packages come from: what becomes an argument, what becomes a file, what is refused."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from onecat.config import load_profile
from onecat.errors import ExitCode, OnecatError
from onecat.images import BuildOptions, PackageOrigins, render_context
from onecat.images.origins import build_arguments, stored_files

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
V100 = load_profile("v100x2-pcie")


def arguments(**origins: object) -> dict[str, str]:
    return build_arguments(BuildOptions(PackageOrigins(**origins)))  # type: ignore[arg-type]


def test_nothing_chosen_is_nothing_said() -> None:
    assert build_arguments(BuildOptions()) == {} and stored_files(BuildOptions()) == ()


def test_origins_become_arguments_of_the_build(tmp_path: Path) -> None:
    certificate = tmp_path / "company.pem"
    certificate.write_bytes(CERTIFICATE)
    said = arguments(
        index_url="https://mirror.example/simple",
        extra_index_urls=("https://one.example", "https://two.example"),
        torch_index_url="https://mirror.example/cu126",
        apt_mirror="http://mirror.example/ubuntu",
        https_proxy="http://user:word@proxy.example:3128",
        no_proxy="mirror.example",
        ca_certificate=certificate,
        offline=True,
    )
    assert said["PIP_EXTRA_INDEX_URL"] == "https://one.example https://two.example"
    assert said["TORCH_INDEX_URL"] == "https://mirror.example/cu126" and said["ONECAT_OFFLINE"] == "yes"
    assert base64.b64decode(said["CA_CERTIFICATE"]) == CERTIFICATE
    # Docker knows the proxies itself, and keeps them out of the history: they may have a password.
    assert said["https_proxy"] == said["HTTPS_PROXY"] == "http://user:word@proxy.example:3128"


@pytest.mark.parametrize("field", ["index_url", "torch_index_url", "apt_mirror"])
def test_an_address_with_a_password_is_refused_and_not_repeated(field: str) -> None:
    with pytest.raises(OnecatError) as raised:
        arguments(**{field: "https://user:s3cret@mirror.example/simple"})
    assert raised.value.code is ExitCode.USAGE
    assert "s3cret" not in str(raised.value) and "https://***@mirror.example/simple" in raised.value.found
    assert any("--pip-config" in step for step in raised.value.next_steps)


@pytest.mark.parametrize("field", ["index_url", "torch_index_url", "apt_mirror"])
def test_what_is_no_address_is_refused(field: str) -> None:
    with pytest.raises(OnecatError, match=r"mirror\.example/simple is no address") as raised:
        arguments(**{field: "mirror.example/simple"})
    assert raised.value.code is ExitCode.USAGE
    with pytest.raises(OnecatError, match="is no address"):
        arguments(extra_index_urls=("https://one.example", "wheels"))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"hello", "holds no certificate alone"),
        (CERTIFICATE + b"-----BEGIN %s-----\n" % b"PRIVATE KEY", "holds no certificate alone"),
        (CERTIFICATE * 2000, "bytes"),
        (None, "No such file"),
    ],
)
def test_a_certificate_that_cannot_be_passed_on_is_refused(tmp_path: Path, content: bytes | None, found: str) -> None:
    path = tmp_path / "company.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OnecatError, match=found):
        arguments(ca_certificate=path)


def test_where_packages_come_from_is_no_part_of_what_is_built(tmp_path: Path) -> None:
    pip_config = tmp_path / "pip.conf"
    pip_config.write_text("[global]\nindex-url = https://user:s3cret@mirror.example/simple\n")
    plain = render_context(V100)
    origins = PackageOrigins(index_url="https://mirror.example", apt_mirror="http://mirror.example", offline=True)
    elsewhere = render_context(V100, options=BuildOptions(origins))
    behind_a_password = render_context(V100, options=BuildOptions(PackageOrigins(pip_config=pip_config)))
    assert plain.files == elsewhere.files == behind_a_password.files
    assert plain.digest == elsewhere.digest == behind_a_password.digest
    assert [file.name for file in behind_a_password.stored if file.origin] == ["origins/pip.conf"]
    assert (plain.network, elsewhere.network) == (True, False)


def test_a_folder_of_packages_and_a_wheel_are_what_is_built(tmp_path: Path) -> None:
    for name in ("torch-2.13.0+cu126-cp312-cp312-linux_x86_64.whl", "cutlass-4.4.2.tar.gz", "notes.txt"):
        (tmp_path / name).write_bytes(name.encode())
    folder = BuildOptions(PackageOrigins(find_links=tmp_path))
    names = [file.name for file in render_context(V100, options=folder).stored]
    assert [name for name in names if name.startswith("origins/")] == [
        "origins/packages/cutlass-4.4.2.tar.gz",
        "origins/packages/torch-2.13.0+cu126-cp312-cp312-linux_x86_64.whl",
    ]
    assert render_context(V100, options=folder).digest != render_context(V100).digest
    wheel = tmp_path / "vllm-0.27.1+onecat.sm70-cp38-abi3-linux_x86_64.whl"
    wheel.write_bytes(b"first")
    first = render_context(V100, options=BuildOptions(wheel=wheel)).digest
    wheel.write_bytes(b"second")
    assert render_context(V100, options=BuildOptions(wheel=wheel)).digest != first


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="is no folder"):
        stored_files(BuildOptions(PackageOrigins(find_links=tmp_path / "absent")))
    with pytest.raises(OnecatError, match="is no wheel"):
        stored_files(BuildOptions(wheel=tmp_path / "vllm.tar.gz"))
    with pytest.raises(OnecatError, match="No such file"):
        stored_files(BuildOptions(wheel=tmp_path / "vllm-1-py3-none-any.whl"))
