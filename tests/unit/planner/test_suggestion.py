"""Which profile `onecat init` takes for a host."""

from __future__ import annotations

import pytest

from onecat.config import list_profiles, load_profile
from onecat.facts import Facts
from onecat.planner import suggest_profile
from tests.unit.planner.examples import V100, host

H200, A100 = ("NVIDIA H200", "9.0"), ("NVIDIA A100-SXM4-80GB", "8.0")


@pytest.mark.parametrize(
    ("facts", "name", "why"),
    [
        (host((V100, "7.0"), (V100, "7.0")), "v100x2-pcie", "this machine has 2 x Tesla V100-PCIE-32GB"),
        (host(*[A100] * 8), "a100x2-80g", "this machine has 8 x NVIDIA A100-SXM4-80GB"),
        (host(H200), "h200", "this machine has 1 x NVIDIA H200"),
        (host((V100, "7.0")), "cpu", "no profile is for 1 x Tesla V100-PCIE-32GB"),
        (host(("Tesla T4", "7.5")), "cpu", "no profile is for 1 x Tesla T4"),
        (Facts("here"), "cpu", "no GPU was found on this machine"),
    ],
)
def test_the_profile_for_the_cards_that_are_there(facts: Facts, name: str, why: str) -> None:
    assert suggest_profile(facts, [load_profile(each) for each in list_profiles()]) == (name, why)
