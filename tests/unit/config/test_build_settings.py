"""build.yaml: a company's mirrors, written once, read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.cli.build_options import NOTHING_CHOSEN, Choices, build_options, named_values
from onecat.config.build_settings import BuildSettings, load_build_settings
from onecat.errors import OnecatError
from onecat.paths import build_settings_file

TEXT = """\
index_url: https://mirror.example/pypi/simple
torch_index_url: https://mirror.example/torch/cu126
apt_mirror: http://mirror.example/ubuntu
ca_certificate: company.pem
https_proxy: http://proxy.example:3128
max_jobs: 4
builder: classic
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    (tmp_path / "company.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    path = tmp_path / "build.yaml"
    path.write_text(TEXT)
    return path


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert load_build_settings(tmp_path / "build.yaml") == BuildSettings()


def test_paths_count_from_the_file(settings: Path) -> None:
    assert load_build_settings(settings).ca_certificate == str(settings.parent / "company.pem")


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("index_url: x\nindex_ulr: y\n", "build.yaml:2:1", "index_ulr"),
        ("max_jobs: many\n", "build.yaml:1:11", "many"),
        ("max_jobs: 0\n", "build.yaml:1:11", "0"),
        ("builder: podman\n", "build.yaml:1:10", "podman"),
        ("- a\n", "build.yaml:1:1", ""),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, where: str, found: str) -> None:
    path = tmp_path / "build.yaml"
    path.write_text(text)
    with pytest.raises(OnecatError) as raised:
        load_build_settings(path)
    assert str(raised.value.where).endswith(where) and found in raised.value.found


def test_the_files_values_are_the_defaults_and_the_command_line_wins(settings: Path) -> None:
    options, builder = build_options(NOTHING_CHOSEN, settings)
    assert options.origins.index_url == "https://mirror.example/pypi/simple"
    assert options.origins.https_proxy == "http://proxy.example:3128" and options.origins.http_proxy is None
    assert (options.max_jobs, builder) == (4, "classic")
    choices = Choices(index_url="https://other.example", max_jobs=1, builder="auto", proxy="http://p.example:1")
    options, builder = build_options(choices, settings)
    assert options.origins.index_url == "https://other.example"
    assert options.origins.http_proxy == options.origins.https_proxy == "http://p.example:1"
    assert options.origins.torch_index_url == "https://mirror.example/torch/cu126"
    assert (options.max_jobs, builder) == (1, "auto")


def test_the_proxies_of_the_shell_count_only_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker does not hand its environment to build steps either."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    absent = tmp_path / "none.yaml"
    with pytest.raises(OnecatError, match="this shell has no proxy"):
        build_options(Choices(proxy="environment"), absent)
    monkeypatch.setenv("HTTPS_PROXY", "http://p.example:1")
    monkeypatch.setenv("no_proxy", "localhost")
    assert build_options(NOTHING_CHOSEN, absent)[0].origins.https_proxy is None
    origins = build_options(Choices(proxy="environment"), absent)[0].origins
    assert (origins.https_proxy, origins.http_proxy, origins.no_proxy) == ("http://p.example:1", None, "localhost")
    changed = build_options(Choices(proxy="environment", no_proxy="*.example"), absent)[0].origins
    assert changed.no_proxy == "*.example"


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        (Choices(builder="podman"), "no builder podman"),
        (Choices(proxy="proxy.example"), "--proxy proxy.example"),
        (Choices(no_proxy="localhost"), "--no-proxy without --proxy"),
        (Choices(wheel=Path("/nonexistent.whl")), "is no file"),
        (Choices(ca_certificate=Path("/nonexistent.pem")), "is no file"),
        (Choices(source=Path("/nonexistent")), "--source /nonexistent does not exist"),
        (Choices(wheel=Path("a.whl"), wheel_only=Path("b")), "exclude each other"),
    ],
)
def test_what_cannot_be_meant_is_refused(choices: Choices, found: str, tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match=found):
        build_options(choices, tmp_path / "none.yaml")


def test_build_arguments_are_names_with_values() -> None:
    assert named_values(["A=1", "B=c=d", "C="]) == {"A": "1", "B": "c=d", "C": ""}
    for text in ("A", "=1", ""):
        with pytest.raises(OnecatError, match="--build-arg"):
            named_values([text])


def test_the_file_lies_where_configuration_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ONECAT_HOME", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert build_settings_file() == tmp_path / "onecat" / "build.yaml"
    monkeypatch.setenv("ONECAT_HOME", str(tmp_path / "home"))
    assert build_settings_file() == tmp_path / "home" / "build.yaml"
