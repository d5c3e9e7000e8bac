"""SELinux and AppArmor."""

from __future__ import annotations

from dataclasses import replace

from onecat.facts import AppArmor, Facts, KernelEvent, Note, SeLinux
from tests.unit.doctor.cases.ascend import PROFILE as ASCEND
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import CPU, HEALTHY, NOTHING_KNOWN, with_docker
from tests.unit.doctor.host_examples import KNOWN, NATIVE, docker, known

ENFORCING = SeLinux(
    "enforcing",
    "targeted",
    booleans=(("container_use_devices", False), ("container_use_xserver_devices", False)),
    device_labels=(("/dev/nvidia0", "system_u:object_r:xserver_misc_device_t:s0"),),
)
ALLOWED = replace(ENFORCING, booleans=(("container_use_xserver_devices", True),))
MISLABELLED = replace(ENFORCING, device_labels=(("/dev/nvidia0", "unconfined_u:object_r:device_t:s0"),))
SMI_DENIED = (
    'avc:  denied  { read write } for  pid=812 comm="python" path="/dev/nvidia0" dev="devtmpfs" '
    "scontext=system_u:system_r:container_t:s0:c380,c597 tcontext=system_u:object_r:xserver_misc_device_t:s0 "
    "tclass=chr_file permissive=0"
)
HOST_DENIED = SMI_DENIED.replace("container_t", "staff_t")
MODULE_DENIED = (
    'avc:  denied  { module_load } for  pid=99 comm="modprobe" path="/opt/driver/nvidia.ko" dev="sda1" '
    "scontext=system_u:system_r:container_t:s0 tcontext=system_u:object_r:var_lib_t:s0 tclass=system permissive=0"
)
FILE_DENIED = (
    'avc:  denied  { read } for pid=7 comm="nginx" name="index.html" dev="sda1" '
    "scontext=system_u:system_r:httpd_t:s0 tcontext=unconfined_u:object_r:user_home_t:s0 tclass=file permissive=0"
)

AUDIT_LOG_CLOSED = Note(
    "selinux", "permission", "what SELinux has denied (/var/log/audit/audit.log): needs root (--sudo)"
)


def denied(text: str, selinux: SeLinux = ENFORCING) -> Facts:
    return known(selinux=selinux, kernel_events=(KernelEvent("selinux-denial", text, process="python"),))


CASES: list[Case] = [
    case("selinux.mode", "pass", "disabled", HEALTHY),
    case("selinux.mode", "pass", "permissive", replace(HEALTHY, selinux=SeLinux("permissive"))),
    case("selinux.mode", "pass", "does not confine", replace(HEALTHY, selinux=SeLinux("enforcing"))),
    case(
        "selinux.mode",
        "info",
        "confines containers on this host, but for those of onecat",
        replace(with_docker(security_options=("name=seccomp", "name=selinux")), selinux=ENFORCING),
    ),
    case("selinux.mode", "skip", "not known", NOTHING_KNOWN),
    case("selinux.denials", "pass", "SELinux is disabled", KNOWN),
    case("selinux.denials", "pass", "SELinux has denied no GPU", denied(FILE_DENIED)),
    case("selinux.denials", "skip", "needs root", replace(denied(FILE_DENIED), notes=(AUDIT_LOG_CLOSED,))),
    case("selinux.denials", "skip", "not among the captures", replace(denied(FILE_DENIED), collected_at=None)),
    case("selinux.denials", "skip", "whether SELinux is at work", replace(denied(FILE_DENIED), selinux=None)),
    case("selinux.denials", "info", "denied /dev/nvidia0 to python", denied(SMI_DENIED), ASCEND),
    case("selinux.denials", "fail", "denied /dev/nvidia0 to python", denied(SMI_DENIED), None),
    case("selinux.denials", "warn", "denied /dev/nvidia0 to python", denied(SMI_DENIED)),
    case("selinux.denials", "info", "denied /dev/nvidia0 to python", denied(SMI_DENIED), CPU),
    case("selinux.denials", "warn", "denied /dev/nvidia0", denied(HOST_DENIED)),
    case("selinux.denials", "fail", "loading the driver", denied(MODULE_DENIED)),
    case("selinux.denials", "info", "would deny", denied(SMI_DENIED, SeLinux("permissive"))),
    case("selinux.denials", "info", "would deny", denied(SMI_DENIED.replace("permissive=0", "permissive=1"))),
    case("selinux.denials", "info", "allows it now", denied(SMI_DENIED, ALLOWED)),
    case("selinux.denials", "skip", "kernel log", HEALTHY),
    case("selinux.device-labels", "pass", "a label of their own", known(selinux=ENFORCING)),
    case("selinux.device-labels", "warn", "/dev/nvidia0 has not", known(selinux=MISLABELLED)),
    case(
        "selinux.device-labels", "info", "/dev/nvidia0 has not", known(selinux=replace(MISLABELLED, mode="permissive"))
    ),
    case("selinux.device-labels", "skip", "SELinux is disabled", HEALTHY),
    case("selinux.device-labels", "skip", "not known", NOTHING_KNOWN),
    case("apparmor.user-namespaces", "pass", "does not restrict", KNOWN),
    case("apparmor.user-namespaces", "pass", "does not restrict", known(apparmor=AppArmor(False))),
    case("apparmor.user-namespaces", "skip", "is not known", known(apparmor=AppArmor(True))),
    case("apparmor.user-namespaces", "pass", "works with that", known(apparmor=AppArmor(True, True))),
    case(
        "apparmor.user-namespaces",
        "warn",
        "rootless Docker daemon does not run",
        replace(
            docker(state="unreachable", socket="unix:///run/user/1000/docker.sock", error="Connection refused"),
            apparmor=AppArmor(True, True),
        ),
    ),
    case(
        "apparmor.user-namespaces",
        "pass",
        "a rootless Docker only",
        replace(docker(state="unreachable"), apparmor=AppArmor(True, True)),
    ),
    case("apparmor.user-namespaces", "skip", "is not known", HEALTHY),
    case("apparmor.user-namespaces", "skip", "runs natively", KNOWN, CPU, NATIVE),
]
