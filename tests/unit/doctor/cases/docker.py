"""Docker and SELinux."""

from __future__ import annotations

from dataclasses import replace

from onecat.doctor import Settings
from onecat.facts import Note, SeLinux
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, HEALTHY, NOTHING_KNOWN, with_docker

NATIVE = Settings(runtime="native")

CASES: list[Case] = [
    case("docker.daemon", "pass", "Docker 28.5.1 answers", HEALTHY),
    case("docker.daemon", "pass", "Docker 28.5.1 answers", with_docker(api_version="1.41")),
    case("docker.daemon", "warn", "too old for onecat's containers: API 1.40", with_docker(api_version="1.40")),
    case("docker.daemon", "fail", "is not installed", with_docker(state="absent")),
    case("docker.daemon", "fail", "No Docker daemon answers", with_docker(state="unreachable")),
    case("docker.daemon", "fail", "refuses the user operator", with_docker(state="forbidden")),
    case("docker.daemon", "info", "servers can run natively only", with_docker(state="absent"), CPU),
    case("docker.daemon", "info", "no containers", with_docker(state="absent"), None),
    case("docker.daemon", "fail", "is not installed", with_docker(state="absent"), CPU, Settings(runtime="container")),
    case("docker.daemon", "skip", "runs natively", with_docker(state="absent"), CPU, NATIVE),
    case("docker.daemon", "skip", "no Docker facts", NOTHING_KNOWN),
    case(
        "docker.daemon",
        "fail",
        "does not answer",
        replace(HEALTHY, docker=None, notes=(Note("docker", "timeout", "no answer within 10 s"),)),
    ),
    case("selinux.mode", "pass", "disabled", HEALTHY),
    case("selinux.mode", "pass", "permissive", replace(HEALTHY, selinux=SeLinux("permissive"))),
    case("selinux.mode", "pass", "does not confine", replace(HEALTHY, selinux=SeLinux("enforcing"))),
    case(
        "selinux.mode",
        "info",
        "confines containers on this host, but for those of onecat",
        replace(with_docker(security_options=("name=seccomp", "name=selinux")), selinux=SeLinux("enforcing")),
    ),
    case("selinux.mode", "skip", "not known", NOTHING_KNOWN),
]
