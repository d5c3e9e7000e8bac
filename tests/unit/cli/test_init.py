"""The profile that `onecat init` takes where none is named."""

from __future__ import annotations

import pytest

from onecat.cli.init import detected
from onecat.errors import ExitCode, OnecatError
from onecat.facts import Cpu, Facts, Gpu, Memory, Nvidia


def machine(monkeypatch: pytest.MonkeyPatch, *cards: str) -> None:
    """What init sees of this machine: these cards, an ordinary processor and 16 GiB."""
    gpus = tuple(Gpu(index, name) for index, name in enumerate(cards))
    facts = Facts(
        "here", cpu=Cpu(flags=("avx2",)), memory=Memory(total=16 * 2**30), nvidia=Nvidia(gpus=gpus, library_found=True)
    )
    monkeypatch.setattr("onecat.probe.collect_local", lambda: facts)


def test_the_profile_of_the_machines_cards_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "NVIDIA H200")
    assert detected() == ("h200", "this machine has 1 x NVIDIA H200")


def test_without_cards_it_is_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    assert detected() == ("cpu", "a machine without GPU")


def test_where_none_fits_the_profiles_to_choose_from_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "NVIDIA GeForce RTX 4080 SUPER")
    with pytest.raises(OnecatError, match="no profile fits this machine") as caught:
        detected()
    assert caught.value.code == ExitCode.NO
    assert caught.value.details == ("this host has 1 x NVIDIA GeForce RTX 4080 SUPER",)
    assert caught.value.next_steps == (
        "onecat profile detect, for the reasons",
        "onecat init --profile cpu",
        "onecat init --profile rtx3090x2",
    )
