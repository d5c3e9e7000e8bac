"""Which profile fits a host: what decides, what speaks against, and the right answer for every capture there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from onecat.config import Profile, list_profiles, load_profile
from onecat.facts import Ascend, Cpu, Facts, Gpu, GpuPair, Memory, Npu, Nvidia, PciDevice
from onecat.planner import Detection, detect_profile
from onecat.probe import read_hosts
from tests.unit.planner.examples import V100, host

FIXTURES = Path(__file__).parents[4] / "shared" / "fixtures"
TABLE: dict[str, dict[str, str | None]] = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures" / "profiles" / "detected.yaml").read_text(encoding="utf-8")
)
ROOMS = ("nvidia-smi", "lspci", "dmesg", "topo", "collect_env", "misc")
PROFILES = [load_profile(name) for name in list_profiles()]
H200, H100, A100 = ("NVIDIA H200", "9.0"), ("NVIDIA H100 PCIe", "9.0"), ("NVIDIA A100-SXM4-80GB", "8.0")
RTX3090, T4, P400 = ("NVIDIA GeForce RTX 3090", "8.6"), ("Tesla T4", "7.5"), ("Quadro P400", "6.1")
GIB = 2**30
PROCESSOR = Facts(
    "here", nvidia=Nvidia(library_found=False), cpu=Cpu(flags=("sse4_2", "avx2")), memory=Memory(total=16 * GIB)
)

needs_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason="shared/fixtures is not on this machine")


def detect(facts: Facts) -> Detection:
    return detect_profile(facts, PROFILES)


def sxm2(count: int, connection: str | None = "NV2", name: str = "Tesla V100-SXM2-16GB") -> Facts:
    """A host with V100 on a board, every two of them joined alike."""
    facts = host(*[(name, "7.0")] * count)
    assert facts.nvidia is not None
    pairs = [(first, second) for first in range(count) for second in range(first + 1, count)]
    rows = tuple(GpuPair(*pair, connection) for pair in pairs) if connection else ()
    return replace(facts, nvidia=replace(facts.nvidia, pairs=rows))


@needs_fixtures
def test_the_table_names_exactly_the_captures_there_are() -> None:
    files = {f"{room}/{each.name}" for room in ROOMS for each in (FIXTURES / room).glob("*") if each.suffix != ".url"}
    assert set(TABLE) == files


@needs_fixtures
@pytest.mark.parametrize("file", sorted(TABLE))
def test_every_capture_gets_its_profile_or_is_told_that_none_fits(file: str) -> None:
    (facts,) = read_hosts([str(FIXTURES / file)])
    found = detect(facts)
    assert (found.profile, found.nearest) == (TABLE[file]["profile"], TABLE[file].get("nearest"))
    assert found.reasons


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        pytest.param(host((V100, "7.0"), (V100, "7.0")), "v100x2-pcie", id="two V100"),
        pytest.param(host((V100, "7.0"), ("Tesla V100S-PCIE-32GB", "7.0")), "v100x2-pcie", id="V100 and V100S"),
        pytest.param(host(*[(V100, "7.0")] * 3), "v100x2-pcie", id="three V100: two of them"),
        pytest.param(sxm2(4), "v100x4-sxm2", id="four on a board"),
        pytest.param(sxm2(4, None), "v100x4-sxm2", id="four on a board, links not known"),
        pytest.param(sxm2(4, "PHB"), "v100-16g", id="four without NVLink: one of them"),
        pytest.param(sxm2(8, "NV1"), "v100x4-sxm2", id="eight on a board"),
        pytest.param(sxm2(2), "v100-16g", id="two 16 GB: one of them"),
        pytest.param(sxm2(4, "NV2", "Tesla V100-SXM2-32GB"), "v100x4-sxm2", id="four with 32 GB"),
        pytest.param(host(("Tesla V100-PCIE-16GB", "7.0")), "v100-16g", id="one with 16 GB"),
        pytest.param(host(T4), "t4", id="T4"),
        pytest.param(host(RTX3090, RTX3090), "rtx3090x2", id="two RTX 3090"),
        pytest.param(host(RTX3090, RTX3090, P400), "rtx3090x2", id="a display card behind them"),
        pytest.param(host(*[A100] * 2), "a100x2-80g", id="two A100"),
        pytest.param(host(*[A100] * 4), "a100x2-80g", id="four A100: two of them"),
        pytest.param(host(*[A100] * 8), "a100x8-pairs", id="eight A100"),
        pytest.param(host(*[("A100-SXM4-80GB", "8.0")] * 8), "a100x8-pairs", id="named as older drivers do"),
        pytest.param(host(H100, H100), "h100x2", id="two H100"),
        pytest.param(host(H200), "h200", id="H200"),
        pytest.param(
            Facts("npu", ascend=Ascend(npus=tuple(Npu(n, "910B4") for n in range(8)))), "ascend910b", id="NPUs"
        ),
        pytest.param(PROCESSOR, "cpu", id="no GPU"),
    ],
)
def test_the_profile_for_the_cards_that_are_there(facts: Facts, name: str) -> None:
    found = detect(facts)
    assert (found.profile, found.nearest, found.against) == (name, None, ())


@pytest.mark.parametrize(
    ("facts", "nearest", "against"),
    [
        pytest.param(host((V100, "7.0")), "v100x2-pcie", "it is for 2 such cards and 1 is here", id="too few"),
        pytest.param(
            sxm2(2, "NV2", "Tesla V100-SXM2-32GB"), "v100x4-sxm2", "4 such cards and 2 are here", id="two 32 GB"
        ),
        pytest.param(host(P400, T4), "t4", "before the profile's cards in number", id="mixed"),
        pytest.param(host(P400, RTX3090, RTX3090), "rtx3090x2", "also has 1 x Quadro P400", id="display card in front"),
        pytest.param(host(("NVIDIA GeForce RTX 5090", "12.0")), "h200", "it is for NVIDIA H200", id="newer than all"),
        pytest.param(
            host(("NVIDIA A10", "8.6")), "rtx3090x2", "it is for NVIDIA GeForce RTX 3090", id="same capability"
        ),
        pytest.param(host(("NVIDIA L4", "8.9")), "rtx3090x2", "it is for NVIDIA GeForce RTX 3090", id="next below"),
        pytest.param(host(("Some new card", "")), None, None, id="of no known class"),
        pytest.param(host(("Quadro P400", "6.1")), None, None, id="older than all"),
    ],
)
def test_none_fits_and_the_nearest_is_told_with_what_speaks_against_it(
    facts: Facts, nearest: str | None, against: str | None
) -> None:
    found = detect(facts)
    assert (found.profile, found.nearest) == (None, nearest)
    assert against is None or any(against in each for each in found.against)


def test_a_card_that_mig_divides_fits_no_profile() -> None:
    gpu = Gpu(0, "NVIDIA H200", compute_capability="9.0", mig_enabled=True, memory_total=140 * GIB)
    found = detect(Facts("gpu1", nvidia=Nvidia(library_found=True, gpus=(gpu,))))
    assert (found.profile, found.nearest) == (None, "h200")
    assert "MIG divides GPU 0" in found.against[0]


def test_a_card_that_does_not_answer_does_not_count() -> None:
    gpus = (Gpu(0, V100, compute_capability="7.0"), Gpu(1, V100, error="GPU is lost"))
    found = detect(Facts("gpu1", nvidia=Nvidia(library_found=True, gpus=gpus)))
    assert (found.profile, found.nearest) == (None, "v100x2-pcie")
    assert "GPU 1 does not answer: GPU is lost" in found.remarks


def test_a_card_with_less_memory_than_its_name_promises_is_told() -> None:
    gpus = tuple(Gpu(n, "NVIDIA H100 PCIe", compute_capability="9.0", memory_total=40 * GIB) for n in range(2))
    found = detect(Facts("gpu1", nvidia=Nvidia(library_found=True, gpus=gpus)))
    assert found.profile is None
    assert "shows 40 GiB and the profile is for 80" in found.against[0]


def test_profiles_for_other_uses_of_the_same_hardware_are_told_with_when_to_take_them() -> None:
    found = detect(host((V100, "7.0"), (V100, "7.0")))
    assert [each.profile for each in found.alternatives] == ["1cat-v100", "v100x2-pcie-longctx"]
    assert all(each.when for each in found.alternatives)


def test_runners_up_are_told_with_what_speaks_for_or_against_them() -> None:
    found = detect(sxm2(3))
    assert found.profile == "v100-16g"
    (other,) = found.runners_up
    assert other.profile == "v100x4-sxm2"
    assert other.against[0].startswith("it is for 4 such cards and 3 are here; a smaller layout under serve")


def test_devices_on_the_bus_stand_for_cards_that_no_driver_shows() -> None:
    devices = tuple(PciDevice(f"0000:0{n}:00.0", "10de", "1db6") for n in (1, 2))
    found = detect(Facts("gpu1", nvidia=Nvidia(pci_devices=devices, library_found=False)))
    assert found.profile == "v100x2-pcie"
    assert any("the driver shows no card" in each for each in found.remarks)


def test_without_facts_nothing_is_proposed_not_even_the_processor() -> None:
    for facts in (Facts("gpu1"), replace(PROCESSOR, nvidia=None)):
        found = detect(facts)
        assert (found.profile, found.nearest, found.runners_up) == (None, None, ())


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (replace(PROCESSOR, cpu=Cpu(flags=("sse4_2",))), "the processor lacks avx2"),
        (replace(PROCESSOR, cpu=None), "what the processor can do is not known"),
        (replace(PROCESSOR, memory=Memory(total=GIB)), "it needs 4 GiB of memory and 1.0 GiB are here"),
        (replace(PROCESSOR, memory=None), "how much memory there is is not known"),
    ],
)
def test_a_machine_without_gpus_that_is_too_weak_is_told_why(facts: Facts, why: str) -> None:
    found = detect(facts)
    assert found.profile is None
    assert why in found.reasons


def test_the_processor_is_told_as_a_way_out_where_no_profile_is_for_the_cards() -> None:
    facts = replace(PROCESSOR, nvidia=Nvidia(library_found=True, gpus=(Gpu(0, "Quadro P400"),)))
    assert [each.profile for each in detect(facts).runners_up] == ["cpu"]


def test_a_profile_of_ones_own_is_matched_by_its_hardware_alone() -> None:
    own = load_profile("h200")
    card = own.hardware.model_copy(update={"gpu_names": ("NVIDIA B200",)})
    mine: Profile = own.model_copy(update={"name": "mine", "hardware": card})
    assert detect_profile(host(("NVIDIA B200", "10.0")), [*PROFILES, mine]).profile == "mine"
