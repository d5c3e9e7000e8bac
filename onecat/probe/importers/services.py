"""What services and firmware say in one line: timedatectl, mokutil, systemctl status, modinfo nvidia."""

from __future__ import annotations

import re

from onecat.probe.importers.registry import Capture, Part, importer

_CLOCK = re.compile(r"^ {0,20}(?:System clock|NTP) synchronized: (yes|no)", re.MULTILINE)
_SECURE_BOOT = re.compile(r"^SecureBoot (enabled|disabled)", re.MULTILINE)
_FABRIC_MANAGER = re.compile(
    r"nvidia-fabricmanager\.service(?: - [^\n]{0,100})?\n"
    r"(?:[^\n]{0,300}\n){0,4}?\s{1,10}Active: (active|inactive|failed)"
)
_MODULE = re.compile(
    r"^filename: {1,40}\S{0,200}/nvidia(?:-\w{1,20})?\.ko\S{0,10}\n"
    r"(?:[^\n]{0,300}\n){0,8}?version: {1,40}([0-9.]{3,20})",
    re.MULTILINE,
)


@importer("timedatectl", recognises=lambda text: _CLOCK.search(text) is not None, hints=("timedatectl", "ntp"))
def clock(capture: Capture) -> Part:
    match = _CLOCK.search(capture.text)
    return {"clock": {"synchronized": match.group(1) == "yes"}} if match else {}


@importer("mokutil --sb-state", recognises=lambda text: _SECURE_BOOT.search(text) is not None, hints=("secureboot",))
def secure_boot(capture: Capture) -> Part:
    match = _SECURE_BOOT.search(capture.text)
    return {"operating_system": {"secure_boot": match.group(1) == "enabled"}} if match else {}


@importer(
    "systemctl status nvidia-fabricmanager",
    recognises=lambda text: "nvidia-fabricmanager.service" in text,
    hints=("fabricmanager",),
)
def fabric_manager(capture: Capture) -> Part:
    match = _FABRIC_MANAGER.search(capture.text)
    return {"nvidia": {"fabric_manager": {"running": match.group(1) == "active"}}} if match else {}


@importer("modinfo nvidia", recognises=lambda text: _MODULE.search(text) is not None, hints=("modinfo",))
def module_on_disk(capture: Capture) -> Part:
    """The module that the next boot loads."""
    match = _MODULE.search(capture.text)
    return {"nvidia": {"kernel_module_file_version": match.group(1)}} if match else {}
