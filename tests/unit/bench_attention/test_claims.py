"""Claims that are made up here: what is counted, kept and shown."""

from __future__ import annotations

import math

from bench.gpu.claims import Claim, claims_table, try_claims


def holds(bench: str, claim: Claim) -> None:
    claim.note("error", 1e-4)
    claim.note("error", 2e-4)
    claim.note("error", 1.5e-4)
    claim.see(bench == "a bench", "the bench is handed on")


def breaks(bench: str, claim: Claim) -> None:
    claim.see(True, "fine")
    raise ValueError("out of order")


def test_an_error_is_a_finding_and_the_others_are_still_tried() -> None:
    settled: list[int] = []
    tried = try_claims("a bench", {"breaks": breaks, "holds": holds}, Claim, lambda: settled.append(1))
    assert [(claim.name, claim.cases, len(claim.wrong)) for claim in tried] == [("breaks", 2, 1), ("holds", 1, 0)]
    assert "ValueError: out of order" in tried[0].wrong[0]
    assert settled == [1]
    lines = claims_table("Title", tried, {"error": ".1e"})
    assert [line.split() for line in lines[1:4]] == [
        ["claim", "cases", "wrong", "error", "s"],
        ["breaks", "2", "1", "0.0"],
        ["holds", "1", "-", "2.0e-04", "0.0"],
    ]


def test_a_figure_that_is_no_number_stays_one() -> None:
    claim = Claim("a claim")
    for figure in (0.5, math.nan, 3.0):
        claim.note("error", figure)
    assert math.isnan(claim.worst["error"])
