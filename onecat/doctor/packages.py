"""How software is installed on the host that is looked at: what to type differs between distributions."""

from __future__ import annotations

from typing import Literal

from onecat.facts import OperatingSystem

Family = Literal["debian", "redhat", "suse"]

_FAMILIES: dict[str, Family] = {
    "debian": "debian",
    "ubuntu": "debian",
    "rhel": "redhat",
    "fedora": "redhat",
    "centos": "redhat",
    "rocky": "redhat",
    "almalinux": "redhat",
    "openeuler": "redhat",
    "kylin": "redhat",
    "anolis": "redhat",
    "amzn": "redhat",
    "suse": "suse",
    "sles": "suse",
    "opensuse": "suse",
}
_INSTALL: dict[Family, tuple[str, str]] = {
    "debian": ("Debian, Ubuntu", "sudo apt-get install"),
    "redhat": ("RHEL, Fedora, openEuler", "sudo dnf install"),
    "suse": ("SUSE", "sudo zypper install"),
}


def family(system: OperatingSystem | None) -> Family | None:
    """The family of distributions a system belongs to by ID and ID_LIKE of os-release; None when it is not known."""
    if system is None:
        return None
    words = [system.id or "", *system.id_like]
    if words[0].lower() == "kylin":
        words.reverse()  # Its server is made of RPMs, its desktop of Debian's packages: ID_LIKE tells.
    return next((_FAMILIES[word.lower()] for word in words if word.lower() in _FAMILIES), None)


def is_image(system: OperatingSystem | None) -> bool:
    """Whether the system is an image over which packages are laid: Fedora Silverblue, CoreOS and their like."""
    return system is not None and "ostree=" in (system.kernel_command_line or "")


def rebuild_initramfs(system: OperatingSystem | None) -> str:
    """The command after which the next boot knows what was written to /etc/modprobe.d."""
    if is_image(system):
        return "sudo rpm-ostree initramfs-etc --track=/etc/modprobe.d"
    debian, dracut = "sudo update-initramfs -u", "sudo dracut --force"
    known = family(system)
    if known is None:
        return f"{debian} (Debian, Ubuntu) or {dracut} (RHEL, SUSE)"
    return debian if known == "debian" else dracut


def kernel_argument(system: OperatingSystem | None, argument: str) -> str:
    """How the kernel gets an argument at every boot from the next one on."""
    known = family(system)
    if is_image(system):
        return f"sudo rpm-ostree kargs --append={argument}, then: sudo reboot"
    if known == "redhat":
        return f"sudo grubby --update-kernel=ALL --args={argument}, then: sudo reboot"
    rebuild = {"debian": "sudo update-grub", "suse": "sudo grub2-mkconfig -o /boot/grub2/grub.cfg"}.get(known or "")
    write = f"add {argument} to GRUB_CMDLINE_LINUX in /etc/default/grub"
    return (
        f"{write}, then: {rebuild} && sudo reboot"
        if rebuild
        else f"{write}, have GRUB write its menu, then: sudo reboot"
    )


def install(system: OperatingSystem | None, **names: str) -> tuple[str, ...]:
    """The commands that install a package.

    Parameters:
        system: the host's; where its family is not known, the commands of all families are given, each with its name.
        names: the package's name in each family, as debian="nginx", redhat="nginx".
    """
    known = family(system)
    if known == "redhat" and known in names and is_image(system):
        return (f"sudo rpm-ostree install {names[known]}, then: sudo reboot",)
    if known is not None and known in names:
        return (f"{_INSTALL[known][1]} {names[known]}",)
    return tuple(f"{label}: {command} {names[each]}" for each, (label, command) in _INSTALL.items() if each in names)
