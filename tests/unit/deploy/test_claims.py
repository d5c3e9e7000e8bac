"""What deployments of one host claim, and that no two get the same."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from onecat.config import load_profile
from onecat.deploy.claims import (
    Accelerator,
    Address,
    Claim,
    accelerators_of,
    check_addresses,
    choose,
    claiming,
    claims_of_others,
    needed,
    with_accelerators,
    write_node_claim,
)
from onecat.deploy.releases import Release
from onecat.deploy.store import DeploymentStore, write_json
from onecat.errors import ExitCode, OnecatError
from onecat.facts import Ascend, Facts, Gpu, GpuProcess, Npu, Nvidia
from onecat.hosts import LocalMachine
from onecat.planner.records import ContainerPlan, Layout, Plan

CARDS = tuple(Accelerator(index, "Tesla V100", f"GPU-{index}aa") for index in range(4))


def ids(chosen: tuple[Accelerator, ...]) -> list[int]:
    return [each.index for each in chosen]


# --- which accelerators -----------------------------------------------------------------------------------------------


def test_by_default_the_first_free_ones() -> None:
    assert ids(choose(None, 2, CARDS, {})) == [0, 1]
    assert ids(choose(None, 2, CARDS, {"GPU-0aa": "deployment chat (release 1)"})) == [1, 2]


def test_those_it_had_before_come_first() -> None:
    assert ids(choose(None, 2, CARDS, {}, preferred=frozenset({"GPU-3aa", "GPU-2aa"}))) == [2, 3]


def test_one_that_does_not_answer_is_passed_over() -> None:
    broken = (replace(CARDS[0], error="GPU is lost"), *CARDS[1:])
    assert ids(choose(None, 1, broken, {})) == [1]
    with pytest.raises(OnecatError, match="GPU 0 cannot be used: GPU is lost"):
        choose([0], 1, broken, {})


@pytest.mark.parametrize("wanted", [[2, 0], ["2", "0"], ["GPU-2aa", "GPU-0aa"], ["gpu-2", 0]])
def test_by_index_or_uuid_in_the_order_given(wanted: list[int | str]) -> None:
    assert ids(choose(wanted, 2, CARDS, {})) == [2, 0]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([7], "GPU 7 is not on this host"),
        (["GPU-x"], "GPU GPU-x is not on this host"),
        (["GPU-"], "GPU GPU- means several"),
        ([1, "GPU-1aa"], "GPU GPU-1aa is named twice"),
    ],
)
def test_an_unknown_one_is_refused_with_the_list(wanted: list[int | str], found: str) -> None:
    with pytest.raises(OnecatError) as refused:
        choose(wanted, 1, CARDS, {})
    assert (refused.value.found, refused.value.code) == (found, ExitCode.USAGE)
    assert refused.value.expected == "one of: 0, 1, 2, 3"
    assert "GPU 2: Tesla V100, GPU-2aa" in refused.value.details


def test_too_few_named_is_refused() -> None:
    with pytest.raises(OnecatError, match="gpus names 1 and the plan needs 2"):
        choose([0], 2, CARDS, {})


def test_one_of_another_deployment_is_refused_with_how_to_end_it() -> None:
    with pytest.raises(OnecatError) as refused:
        choose([1], 1, CARDS, {"GPU-1aa": Claim("chat", 3).words})
    assert refused.value.found == "GPU 1 is taken by deployment chat (release 3)"
    assert refused.value.expected == "gpus of onecat.yaml that no other deployment has; free: 0, 2, 3"
    assert refused.value.next_steps == ("onecat down chat",)


def test_when_too_few_are_free_everyone_who_has_one_is_named() -> None:
    held = {f"GPU-{index}aa": Claim(name, 1).words for index, name in ((0, "a"), (2, "b"), (3, "b"))}
    with pytest.raises(OnecatError) as refused:
        choose(None, 2, CARDS, held)
    assert refused.value.found == "the plan needs 2 GPUs and 1 of 4 is free"
    assert refused.value.details == (
        "GPU 0: deployment a (release 1)",
        "GPU 2: deployment b (release 1)",
        "GPU 3: deployment b (release 1)",
    )
    assert refused.value.next_steps == ("onecat down a", "onecat down b")


def test_gpus_and_npus_are_read_from_facts() -> None:
    process = GpuProcess(41, "python", 2**30)
    nvidia = Nvidia(gpus=(Gpu(1, "Tesla V100", uuid="GPU-b"), Gpu(0, "Tesla V100", uuid="GPU-a", processes=(process,))))
    facts = Facts("here", nvidia=nvidia, ascend=Ascend(npus=(Npu(4, "910B4", "OK"), Npu(2, "910B4", "Alarm"))))
    first, second = accelerators_of(facts, "nvidia") or ()
    assert (first.id, first.processes, second.id) == ("GPU-a", ("pid 41 (python), 1.0 GiB",), "GPU-b")
    npus = accelerators_of(facts, "ascend") or ()
    assert [(each.id, each.error) for each in npus] == [("2", "its health is Alarm"), ("4", None)]
    assert accelerators_of(Facts("here"), "nvidia") is None


def plan(container: ContainerPlan | None) -> Plan:
    runtime = "native" if container is None else "container"
    return Plan("demo", "p", "vllm", "1", runtime, "/m", "m", "127.0.0.1", 8000, (), container=container)  # type: ignore[arg-type]


def test_a_native_server_sees_only_its_own() -> None:
    changed = with_accelerators(plan(None), load_profile("cpu"), CARDS[2:])
    assert dict(changed.env)["CUDA_VISIBLE_DEVICES"] == "GPU-2aa,GPU-3aa"


def test_how_many_a_host_gives() -> None:
    nvidia, ascend, cpu = (load_profile(name) for name in ("v100x2-pcie", "ascend910b", "cpu"))
    boxed = plan(ContainerPlan("i", "/m", 64, 2, devices=("/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager")))
    two = replace(plan(None), layout=Layout(tensor_parallel=2))
    assert [needed(boxed, each) for each in (nvidia, ascend, cpu)] == [2, 2, 0]
    assert [needed(two, each) for each in (nvidia, cpu)] == [2, 0]


def test_npus_are_handed_over_by_their_numbers() -> None:
    profile = load_profile("ascend910b")
    made = ContainerPlan("i", "/m", 64, 0, devices=("/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager"))
    npus = [Accelerator(3, "910B4"), Accelerator(5, "910B4")]
    changed = with_accelerators(plan(made), profile, npus)
    assert changed.container is not None
    nodes = set(changed.container.devices)
    assert {"/dev/davinci3", "/dev/davinci5", "/dev/davinci_manager"} <= nodes
    assert not {"/dev/davinci0", "/dev/davinci1"} & nodes


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        (Address("127.0.0.1", 80), Address("127.0.0.1", 80), True),
        (Address("127.0.0.1", 80), Address("127.0.0.1", 81), False),
        (Address("127.0.0.1", 80), Address("10.0.0.5", 80), False),
        (Address("127.0.0.1", 80), Address("0.0.0.0", 80), True),
        (Address("::", 80), Address("10.0.0.5", 80), True),
        (Address("0.0.0.0", 80, "a.test"), Address("0.0.0.0", 80, "b.test"), False),
        (Address("0.0.0.0", 80, "a.test b.test"), Address("0.0.0.0", 80, "b.test"), True),
        (Address("0.0.0.0", 80, "a.test"), Address("0.0.0.0", 80), True),
    ],
)
def test_which_addresses_overlap(first: Address, second: Address, overlap: bool) -> None:
    assert first.overlaps(second) == overlap
    assert second.overlaps(first) == overlap


def test_a_port_of_another_deployment_is_refused_by_its_setting() -> None:
    other = Claim("chat", 2, addresses=(Address("127.0.0.1", 8080),))
    with pytest.raises(OnecatError) as refused:
        check_addresses([("proxy.listen", Address("127.0.0.1", 8080))], [other])
    assert refused.value.found == "port 8080 is taken by deployment chat (release 2)"
    assert refused.value.where == "127.0.0.1:8080 (proxy.listen)"
    assert refused.value.next_steps[-1] == "or end the other one: onecat down chat"


def test_a_server_name_of_another_deployment_is_refused() -> None:
    other = Claim("chat", 2, addresses=(Address("0.0.0.0", 80, "llm.test"),))
    with pytest.raises(OnecatError, match="server name llm.test at port 80 is taken by deployment chat"):
        check_addresses([("proxy.listen", Address("0.0.0.0", 80, "llm.test"))], [other])


# --- on a host --------------------------------------------------------------------------------------------------------


def release_of(machine: LocalMachine, name: str, outcome: str = "serving", **changes: object) -> Release:
    store = DeploymentStore(machine, name)
    number, directory = store.new_directory()
    release = Release(
        deployment=name,
        number=number,
        directory=directory,
        runtime="container",
        profile="v100x2-pcie",
        model="m",
        host="127.0.0.1",
        port=8000,
        endpoint="http://127.0.0.1:8080",
        protected=False,
        fingerprint="abc",
        created_at="2026-11-29T16:00:00.000Z",
        proxy_kind="own",
        gpus=("GPU-0aa",),
        outcome=outcome,  # type: ignore[arg-type]
    )
    write_json(machine, f"{directory}/site.json", {"listen": "127.0.0.1:8080"})
    return store.save(replace(release, **changes))  # type: ignore[arg-type]


def test_what_may_run_is_claimed_and_what_has_ended_is_not(tmp_path: Path) -> None:
    machine = LocalMachine(tmp_path)
    release_of(machine, "chat", "stopped")
    release_of(machine, "chat", "failed")
    release_of(machine, "chat")
    release_of(machine, "mine")
    (claim,) = claims_of_others(machine, "mine")
    addresses = (Address("127.0.0.1", 8000), Address("127.0.0.1", 8080))
    assert claim == Claim("chat", 3, frozenset({"GPU-0aa"}), addresses)


def test_two_that_start_at_once_take_turns(tmp_path: Path) -> None:
    machine, order = LocalMachine(tmp_path), []
    inside = threading.Event()

    def first() -> None:
        with claiming(machine):
            inside.set()
            order.append("first")
            threading.Event().wait(0.3)
            order.append("first is done")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(5)
    with claiming(LocalMachine(tmp_path)):
        order.append("second")
    thread.join()
    assert order == ["first", "first is done", "second"]


def test_a_host_that_only_works_for_a_cluster_knows_what_the_cluster_has_there(tmp_path: Path) -> None:
    worker = LocalMachine(tmp_path)
    release = replace(release_of(LocalMachine(tmp_path / "head"), "large"), gpus=("GPU-1aa",))
    node = f"{DeploymentStore(worker, 'large').directory}/ray/0001-b"
    worker.make_directory(node)
    write_node_claim(worker, replace(release, directory=node))
    (claim,) = claims_of_others(worker, "mine")
    assert (claim.words, claim.accelerators) == ("deployment large (release 1)", frozenset({"GPU-1aa"}))
    assert claims_of_others(worker, "large") == ()
