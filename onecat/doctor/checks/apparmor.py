"""AppArmor."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.doctor import requirements
from onecat.doctor.context import Context
from onecat.doctor.registry import Verdict, check

ROOTLESS = "https://docs.docker.com/engine/security/rootless/"


@check(
    "apparmor.user-namespaces",
    title="AppArmor lets a rootless Docker make its namespaces",
    why="Ubuntu 24.04 lets only programs with an AppArmor profile make user namespaces; a rootless Docker whose "
    "rootlesskit has none does not start. A daemon that runs as root is not concerned.",
    fix=("give rootlesskit its AppArmor profile, as Docker's page on rootless mode shows",),
    source=(ROOTLESS, "https://ubuntu.com/blog/ubuntu-23-10-restricted-unprivileged-user-namespaces"),
    requires=(requirements.container_possible,),
)
def apparmor_user_namespaces(context: Context) -> Iterator[Verdict]:
    """kernel.apparmor_restrict_unprivileged_userns, only where Docker is to run without root."""
    apparmor, docker = context.facts.apparmor, context.facts.docker
    if apparmor is None or (apparmor.enabled and apparmor.user_namespaces_restricted is None):
        reason = context.why_absent("apparmor", "what AppArmor restricts is not known")
        yield Verdict("skip", f"Not checked: {reason}")
    elif docker is None:
        yield Verdict("skip", f"Not checked: {context.why_absent('docker', 'no Docker facts were collected')}")
    elif not apparmor.user_namespaces_restricted:
        yield Verdict("pass", "AppArmor does not restrict user namespaces")
    elif docker.state == "reachable":
        yield Verdict("pass", "AppArmor restricts user namespaces, and the Docker daemon works with that")
    elif docker.state == "unreachable" and "/run/user/" in (docker.socket or ""):
        yield Verdict(
            "warn",
            "AppArmor restricts user namespaces, and the rootless Docker daemon does not run",
            evidence=(
                "kernel.apparmor_restrict_unprivileged_userns = 1",
                ": ".join(filter(None, (docker.socket, docker.error))),
            ),
            fix=("give rootlesskit its AppArmor profile, as Docker's page on rootless mode shows", ROOTLESS),
        )
    else:
        yield Verdict("pass", "AppArmor restricts user namespaces, which concerns a rootless Docker only")
