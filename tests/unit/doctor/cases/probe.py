"""The probe itself."""

from __future__ import annotations

from tests.unit.doctor.cases.form import Case, case
from tests.unit.doctor.examples import HUNG, NOTHING_KNOWN, WITHOUT_GPU

CASES: list[Case] = [
    case("probe.sources", "pass", "Every source", WITHOUT_GPU),
    case("probe.sources", "info", "The source nvml", HUNG),
    case("probe.sources", "skip", "not collected by the probe", NOTHING_KNOWN),
]
