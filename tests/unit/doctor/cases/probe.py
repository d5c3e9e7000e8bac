"""The probe itself."""

from __future__ import annotations

from onecat.facts import Note
from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import HUNG, NOTHING_KNOWN, WITHOUT_GPU
from tests.unit.doctor.host_examples import known

BROKEN = known(notes=(Note("nvml", "error", "AttributeError"),))
REFUSED = known(notes=(Note("kernel-log", "permission", "needs root"), Note("pci", "permission", "needs root")))

CASES: list[Case] = [
    case("probe.sources", "pass", "No source of facts", WITHOUT_GPU),
    case("probe.sources", "warn", "The source nvml hung", HUNG),
    case("probe.sources", "info", "could not be read in full", BROKEN),
    case("probe.sources", "skip", "not collected by the probe", NOTHING_KNOWN),
    case("probe.permissions", "pass", "every fact", WITHOUT_GPU),
    case("probe.permissions", "info", "for root alone", REFUSED),
    case("probe.permissions", "skip", "not collected by the probe", NOTHING_KNOWN),
]
