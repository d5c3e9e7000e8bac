"""The fix script: what is in it for which host, that ShellCheck finds nothing, and that no host can write commands."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onecat.config import load_profile
from onecat.doctor import Finding, HostReport, Settings, all_checks
from onecat.doctor.fix import fix_script
from onecat.doctor.fix.steps import STEPS
from onecat.doctor.packages import family
from onecat.errors import OnecatError
from onecat.facts import Ascend, ContainerToolkit, Docker, Facts, Nvidia, OperatingSystem
from onecat.resources import resource_directory
from tests.unit.doctor.examples import A100, DOCKER, HEALTHY, NVIDIA, V100, a100, device, v100

SHELLCHECK = str(Path(sys.executable).with_name("shellcheck"))
DISTRIBUTIONS = ("debian", "rocky")

NOUVEAU = Finding("driver.nouveau", "fail", "nouveau holds the GPUs", "", ("0000:3b:00.0: driver nouveau",))
NO_DOCKER = Finding("docker.daemon", "fail", "Docker is not installed")
NARROW = Finding("pcie.link-width", "warn", "x4 of x16", "GPU 1", ("link: x4",), fix=("power off, reseat the card",))
BARE = replace(
    HEALTHY,
    nvidia=Nvidia(nouveau_loaded=True, library_found=False, pci_devices=(device(0, driver="nouveau"), device(1))),
    docker=Docker(state="absent"),
)
READY = replace(
    HEALTHY,
    docker=replace(DOCKER, runtimes=("runc", "nvidia")),
    container_toolkit=ContainerToolkit(version="1.18.1", specifications=()),
)


def on(facts: Facts, distribution: str) -> Facts:
    return replace(facts, operating_system=OperatingSystem(id=distribution, version_id="1", architecture="x86_64"))


def script(facts: Facts, *findings: Finding, profile: Any = V100, settings: Settings | None = None) -> str:
    return fix_script(HostReport("gpu1", True, 0.1, findings), facts, profile, settings)


def steps(text: str) -> list[str]:
    titles = re.findall("^# --- (.*)$", text, re.MULTILINE)
    return [step.name for title in titles for step in STEPS if step.title == title]


def test_a_bare_host_gets_the_whole_road_in_order() -> None:
    text = script(BARE, NOUVEAU, NO_DOCKER)
    assert steps(text) == [
        *("nouveau", "driver", "secure_boot", "reboot", "docker", "toolkit", "runtime", "persistence"),
    ]
    assert text.splitlines()[-1] == "onecat doctor --profile v100x2-pcie"


def test_a_bare_host_with_nvswitches_gets_the_fabric_manager_of_its_driver() -> None:
    switched = replace(BARE, nvidia=replace(BARE.nvidia or Nvidia(), nvswitches=4))
    text = script(switched, NOUVEAU, NO_DOCKER, profile=A100)
    assert steps(text)[-2:] == ["fabric_manager", "persistence"]
    assert 'nv-fabricmanager --version | grep -qF "$driver"' in text


@pytest.mark.parametrize(
    ("images", "headers"),
    [
        (["6.1.0-28-amd64", "amd64"], ["6.1.0-28-amd64", "amd64"]),
        (["6.8.0-31-generic", "generic-hwe-22.04", "aws"], ["6.8.0-31-generic", "generic-hwe-22.04", "aws"]),
        (["6.1.0-28-amd64"], ["6.1.0-28-amd64"]),
    ],
)
def test_the_module_can_be_built_for_the_kernels_that_upgrades_bring(images: list[str], headers: list[str]) -> None:
    functions = script(on(BARE, "debian"), NOUVEAU).partition("# --- Only on")[0]
    shown = "\\n".join(f"installed linux-image-{each}" for each in images)
    machine = f"""
dpkg-query() {{ printf '{shown}\\n'; }}
uname() {{ echo {images[0]}; }}
package_candidate() {{ echo 1; }}
require_package() {{ echo "$2"; }}
install_kernel_headers
"""
    done = subprocess.run(["bash"], input=functions + machine, capture_output=True, text=True)
    assert done.stdout.split() == [f"linux-headers-{each}" for each in headers], done.stderr


@pytest.mark.parametrize("name", ["openEuler", "kylin"])
def test_no_distribution_with_packages_of_its_own_is_sent_to_epel(name: str) -> None:
    functions = script(on(BARE, name), NOUVEAU).partition("# --- Only on")[0]
    machine = f"""
os_release() {{ echo {name}; }}
dnf() {{ :; }}
lock_driver() {{ :; }}
require_package() {{ echo "$@"; }}
install_driver 580 proprietary
"""
    done = subprocess.run(["sh"], input=functions + machine, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "the manual of your distribution dkms", done.stderr


@pytest.mark.parametrize(("candidate", "locked"), [("", []), ("cuda-drivers.x86_64", ["locked to 580"])])
def test_versions_are_locked_only_where_a_package_source_has_the_driver(candidate: str, locked: list[str]) -> None:
    functions = script(on(BARE, "rocky"), NOUVEAU).partition("# --- Only on")[0]
    machine = f"""
os_release() {{ echo rocky; }}
dnf() {{ :; }}
package_candidate() {{ printf '%s' '{candidate}'; }}
lock_driver() {{ echo "locked to $1"; }}
require_package() {{ echo "$2"; }}
install_driver 580 proprietary
"""
    done = subprocess.run(["sh"], input=functions + machine, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["dkms", *locked, "cuda-drivers"], done.stderr


def test_a_unit_that_starts_without_persistence_mode_is_told_otherwise() -> None:
    text = script(BARE, NOUVEAU, NO_DOCKER)
    assert "nvidia-persistenced.service.d/onecat.conf" in text
    line = "ExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode --verbose\n"
    expressions = re.findall("sed (?:-n )?'(s/[^']*persist[^']*)'", text)
    assert len(expressions) == 1
    done = subprocess.run(["sed", expressions[0]], input=line, capture_output=True, text=True)
    assert done.stdout == "ExecStart=/usr/bin/nvidia-persistenced --persistence-mode --verbose\n"


def test_a_healthy_host_gets_nothing_but_the_check() -> None:
    text = script(READY)
    assert steps(text) == []
    assert text.splitlines()[-1] == "onecat doctor --profile v100x2-pcie"


def test_volta_gets_the_proprietary_module_of_its_last_branch_and_others_the_open_one() -> None:
    assert "install_driver 580 proprietary" in script(BARE, NOUVEAU)
    assert "install_driver 580 open" in script(BARE, NOUVEAU, profile=A100)
    # What the machine has outranks what the profile is for; the branch is never above the last that knows the GPU.
    mixed = replace(BARE, nvidia=replace(NVIDIA, gpus=(a100(0), v100(1))))
    assert "install_driver 580 proprietary" in script(mixed, NOUVEAU, profile=A100)


def test_a_driver_is_left_alone_where_none_is_asked_for() -> None:
    assert "driver" not in steps(script(replace(READY, nvidia=replace(NVIDIA, driver_version="570.211.01"))))
    captured = replace(READY, nvidia=Nvidia(driver_version="570.211.01", gpus=(v100(0),)))
    assert "driver" not in steps(script(captured))
    assert "driver" not in steps(script(replace(READY, nvidia=None)))
    inside = replace(BARE, operating_system=OperatingSystem(id="debian", container=True))
    assert "driver" not in steps(script(inside, NOUVEAU))
    unknown = replace(
        BARE, nvidia=replace(NVIDIA, kernel_module_version=None, gpus=(v100(0, compute_capability=None),))
    )
    assert "driver" not in steps(script(unknown, profile=None))


def test_no_driver_is_replaced_below_programs_that_use_it() -> None:
    step = script(BARE, NOUVEAU).partition("driver_is_right() {")[2]
    asked, stopped, installed = (
        step.index(words)
        for words in ("nvidia-smi --query-compute-apps", "programs use the GPUs", "install_driver 580")
    )
    assert asked < stopped < installed
    assert "timeout 20 nvidia-smi" in step  # which hangs where a GPU is dead


def test_each_command_stands_below_the_finding_that_it_is_for() -> None:
    lines = script(BARE, NOUVEAU, NO_DOCKER).splitlines()
    at = lines.index("# fail: nouveau holds the GPUs [driver.nouveau]")
    assert lines[at - 1] == "# --- nouveau leaves the GPUs to NVIDIA's driver"
    assert lines[at + 1] == "#   seen: 0000:3b:00.0: driver nouveau"


def test_what_no_script_should_do_is_left_in_comments() -> None:
    text = script(READY, NARROW)
    assert (
        "# warn: GPU 1: x4 of x16 [pcie.link-width]\n#   seen: link: x4\n#   fix: power off, reseat the card\n" in text
    )
    assert "1 of doctor" in text


def test_docker_follows_the_runtime_that_was_chosen() -> None:
    cpu = load_profile("cpu")
    bare = replace(HEALTHY, nvidia=None, docker=Docker(state="absent"))
    assert steps(script(bare, profile=cpu)) == []
    assert steps(script(bare, profile=cpu, settings=Settings(runtime="container"))) == ["docker"]


def test_an_old_toolkit_is_updated() -> None:
    old = replace(READY, container_toolkit=ContainerToolkit(version="1.16.1"))
    assert steps(script(old)) == ["toolkit", "runtime"]


def test_ascend_is_told_what_no_package_source_has() -> None:
    facts = replace(HEALTHY, nvidia=None, ascend=Ascend(pci_devices=("0000:81:00.0",)), docker=Docker(state="absent"))
    kylin = replace(facts, operating_system=OperatingSystem(id="kylin", version_id="V10", architecture="aarch64"))
    text = script(kylin, profile=None)
    assert steps(text) == ["docker", "ascend"]
    assert '[ "$(uname -m)" = aarch64 ]' in text


@pytest.mark.parametrize("system", [None, OperatingSystem(), OperatingSystem(id="gentoo"), OperatingSystem(id="sles")])
def test_a_distribution_without_a_script_is_told(system: OperatingSystem | None) -> None:
    with pytest.raises(OnecatError, match="there is no fix script for") as told:
        script(replace(BARE, operating_system=system))
    assert told.value.code == 2


def test_shellcheck_finds_nothing_in_any_script(tmp_path: Path) -> None:
    lost = Finding("docker.device-links", "warn", "GPUs get lost")
    fabric = Finding("nvlink.fabric-manager", "fail", "no fabric manager")
    npu = Finding("ascend.npu-smi", "fail", "no driver")
    switched = replace(BARE, nvidia=replace(BARE.nvidia or Nvidia(), nvswitches=4))
    texts = {
        script(on(facts, distribution), *findings, profile=profile)
        for distribution, (facts, findings), profile in itertools.product(
            DISTRIBUTIONS,
            (
                (BARE, (NOUVEAU, NO_DOCKER, NARROW)),
                (READY, (lost,)),
                (READY, ()),
                (switched, (fabric,)),
                (replace(BARE, nvidia=None, ascend=Ascend(pci_devices=("0000:81:00.0",))), (npu,)),
            ),
            (V100, A100, None),
        )
    }
    assert {steps_of for text in texts for steps_of in steps(text)} == {step.name for step in STEPS}
    files = [tmp_path / f"{number}.sh" for number in range(len(texts))]
    for file, text in zip(files, sorted(texts), strict=True):
        file.write_text(text, encoding="utf-8")
    done = subprocess.run([SHELLCHECK, *map(str, files)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@given(words=st.text(min_size=1), name=st.text(min_size=1))
def test_no_host_can_write_commands(words: str, name: str) -> None:
    """Whatever a host says of itself stands in comments, or in the one word where a harmless text would stand."""
    assume(family(OperatingSystem(id=words)) is None)  # Another family's script has another number of words.
    assert len(said_by_host(words, name)) == len(said_by_host("x", "x"))


def said_by_host(words: str, name: str) -> list[str]:
    """The words of a script, without comments, for a host that says the same about everything."""
    finding = Finding("docker.daemon", "fail", words, words, (words,), fix=(words,))
    system = OperatingSystem(id=words, id_like=("debian",), version_id=words, architecture=words)
    facts = replace(BARE, operating_system=system, nvidia=replace(NVIDIA, pci_devices=(device(0, address=words),)))
    report = HostReport(name, True, 0.1, (finding, replace(finding, check="pcie.link-width")))
    text = fix_script(report, facts, V100)
    assert subprocess.run(["sh", "-n"], input=text.encode(), capture_output=True).stderr == b""
    return shlex.split(text, comments=True)


def test_every_step_is_for_checks_that_there_are() -> None:
    assert {check for step in STEPS for check in step.checks} <= {check.id for check in all_checks()}


def test_every_step_has_its_template() -> None:
    folder = resource_directory("templates") / "fix" / "steps"
    assert {path.name.removesuffix(".sh.j2") for path in folder.iterdir()} == {step.name for step in STEPS}
