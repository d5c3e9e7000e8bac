"""An experiment that was cut off goes on under the conditions that it was begun under, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.experiments.records import Environment
from onecat.experiments.resuming import check_same_conditions
from tests.measured import ARM, a_run

HARDWARE = {"driver": "580.82", "kernel": "6.8"}
BEGUN = a_run(requests=10)
BEGUN = replace(
    BEGUN,
    environment=replace(BEGUN.environment, arms={"A": {**ARM, "hardware": HARDWARE}, "B": {**ARM, "patches": None}}),
)
AGAIN = "onecat bench ab --resume x.jsonl"


def environment(driver: dict[str, Any] | None = None, **changed: Any) -> Environment:
    """As at the begin, but for what is named: of arm A."""
    before = BEGUN.environment
    arms = {**before.arms, "A": {**before.arms["A"], **changed}}
    return replace(before, arms=arms, driver={**before.driver, **(driver or {})})


def test_the_same_goes_on() -> None:
    assert check_same_conditions(BEGUN, environment(), AGAIN) == []


@pytest.mark.parametrize(
    ("what", "now", "values"),
    [
        ("engine version", environment(engine_version="0.28.0"), ("0.27.1", "0.28.0")),
        ("checkpoint", environment(checkpoint="sha256:other"), (ARM["checkpoint"], "sha256:other")),
        ("--dtype", environment(server_args=[*ARM["server_args"][:-1], "bfloat16"]), ("float16", "bfloat16")),
        ("GPUs", environment(gpus=["Tesla V100-PCIE-32GB"]), ("2x Tesla", "Tesla V100-PCIE-32GB")),
        ("load driver", environment({"version": "9.9"}), ("", "9.9")),
    ],
)
def test_a_change_of_what_is_measured_ends_it(what: str, now: Environment, values: tuple[str, str]) -> None:
    with pytest.raises(OnecatError, match=rf"since it was begun, {what} changed") as raised:
        check_same_conditions(BEGUN, now, AGAIN)
    assert raised.value.code is ExitCode.NO
    (begun,) = [line for line in raised.value.details if line.startswith("  begun")]
    (later,) = [line for line in raised.value.details if line.startswith("  now")]
    assert values[0] in begun and values[1] in later
    assert raised.value.next_steps[0].endswith(AGAIN)


def test_what_does_not_change_the_servers_is_told() -> None:
    told = check_same_conditions(BEGUN, environment(hardware={**HARDWARE, "driver": "590.1"}, facts="other"), AGAIN)
    assert told == ["since it was begun, hardware driver changed: 580.82; not known, now 590.1; not known"]


def test_nothing_is_said_of_what_is_not_known_now() -> None:
    assert check_same_conditions(BEGUN, environment(patches="of another"), AGAIN, unsure=("patches",)) == []
