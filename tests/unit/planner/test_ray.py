"""One model across hosts: which addresses the nodes get, what is refused, and the exact commands."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from onecat.cli.cluster import cluster_lines
from onecat.config import Deployment
from onecat.facts import Facts, Gpu, Interface, Nvidia
from onecat.planner.ray import (
    RayCluster,
    RayNode,
    RayPorts,
    choose_addresses,
    environment,
    head_argv,
    node_argv,
    plan_cluster,
    server_args,
    to_document,
    worker_argv,
)
from onecat.planner.records import Layout, Plan

LOOPBACK = Interface("lo", True, True, ("127.0.0.1/8", "::1/128"))
DOCKER = Interface("docker0", True, False, ("172.17.0.1/16",))


def host(name: str, *interfaces: Interface, gpus: int = 2) -> Facts:
    cards = tuple(Gpu(index=index, name="Tesla V100-PCIE-32GB") for index in range(gpus))
    return Facts(name, interfaces=(LOOPBACK, DOCKER, *interfaces), nvidia=Nvidia(gpus=cards))


def lan(number: int, name: str = "eth0", speed: int | None = 1000) -> Interface:
    return Interface(name, True, False, (f"10.0.0.{number}/24", "fe80::1/64"), speed)


def fast(number: int, name: str = "ens8", speed: int | None = 100_000) -> Interface:
    return Interface(name, True, False, (f"10.9.0.{number}/24",), speed)


def deployment(**ray: object) -> Deployment:
    values = {"name": "demo", "profile": "v100x2-pcie", "model": {"path": "/models/m"}, "hosts": ["a", "b"], "ray": ray}
    return Deployment.model_validate(values)


def planned(layout: Layout, facts: Mapping[str, Facts], **ray: object) -> RayCluster:
    cluster, refused = plan_cluster(deployment(**ray), layout, facts)
    assert cluster is not None, refused
    return cluster


def refused(layout: Layout, facts: Mapping[str, Facts], **ray: object) -> list[str]:
    cluster, refusals = plan_cluster(deployment(**ray), layout, facts)
    assert cluster is None
    return [each.why for each in refusals]


TWO = {"a": host("a", lan(2)), "b": host("b", lan(3))}


def test_the_first_host_is_the_head_and_each_gives_its_share_of_the_gpus() -> None:
    cluster = planned(Layout(2, 2), TWO)
    assert cluster.nodes == (
        RayNode("a", "10.0.0.2", "eth0", 2, RayPorts(6379)),
        RayNode("b", "10.0.0.3", "eth0", 2, RayPorts(6379)),
    )
    assert (cluster.address, cluster.gpus) == ("10.0.0.2:6379", 4)


def test_loopback_and_dockers_bridge_are_no_network_between_hosts() -> None:
    facts = {"a": host("a"), "b": host("b")}
    chosen, why = choose_addresses(["a", "b"], facts, None)
    assert chosen is None and why is not None
    assert why.why == ("the hosts have no network in common (a: docker0 172.17.0.1; b: docker0 172.17.0.1)")
    assert choose_addresses(["a", "b"], facts, "lo")[0] is None


def test_hosts_in_different_networks_are_told_with_what_they_have() -> None:
    other = Interface("enp1s0", True, False, ("192.168.7.3/24",))
    (why,) = refused(Layout(2, 2), {"a": host("a", lan(2)), "b": host("b", other)})
    assert "a: docker0 172.17.0.1, eth0 10.0.0.2; b: docker0 172.17.0.1, enp1s0 192.168.7.3" in why


def test_of_two_networks_the_faster_one_is_taken_and_the_interface_may_have_two_names() -> None:
    facts = {"a": host("a", lan(2), fast(2)), "b": host("b", lan(3), fast(3, "ib0"))}
    cluster = planned(Layout(2, 2), facts)
    assert [(each.interface, each.address) for each in cluster.nodes] == [("ens8", "10.9.0.2"), ("ib0", "10.9.0.3")]
    assert any("different names (ens8, ib0)" in each for each in cluster.warnings)


def test_two_networks_of_unknown_speed_are_asked_about() -> None:
    facts = {
        name: host(name, lan(number, speed=None), fast(number, speed=None)) for name, number in (("a", 2), ("b", 3))
    }
    _, why = choose_addresses(["a", "b"], facts, None)
    assert why is not None and why.fix == ("ray.interface: ens8", "ray.interface: eth0")
    assert choose_addresses(["a", "b"], facts, "eth0")[0] == {"a": ("10.0.0.2", "eth0"), "b": ("10.0.0.3", "eth0")}


def test_a_named_interface_may_lead_through_a_router() -> None:
    facts = {"a": host("a", lan(2)), "b": host("b", Interface("eth0", True, False, ("10.1.0.3/24",)))}
    assert choose_addresses(["a", "b"], facts, "eth0")[0] == {"a": ("10.0.0.2", "eth0"), "b": ("10.1.0.3", "eth0")}


def test_a_named_interface_must_be_up_on_each_host() -> None:
    down = Interface("eth0", False, False, ("10.0.0.3/24",))
    (why,) = refused(Layout(2, 2), {"a": host("a", lan(2)), "b": host("b", down)}, interface="eth0")
    assert why == "b has no interface eth0 that is up and has an address"


def test_unknown_interfaces_are_no_reason_to_guess() -> None:
    assert refused(Layout(2, 2), {"a": TWO["a"], "b": Facts("b")}) == ["the network interfaces of b are not known"]


@pytest.mark.parametrize(
    ("layout", "gpus", "told"),
    [
        (Layout(1, 3), 2, "tensor-parallel-size 1 x pipeline-parallel-size 3 is 3 GPUs, which 2 hosts cannot share"),
        (Layout(4, 2), 2, "each host must give 4 GPUs: a has 2, b has 2"),
        (Layout(2, 3), 4, "3 GPUs of a host do not hold whole groups of tensor-parallel-size 2"),
        (Layout(2, 2, 2), 4, "data-parallel-size and ray cannot go together"),
    ],
)
def test_layouts_that_do_not_multiply_out(layout: Layout, gpus: int, told: str) -> None:
    facts = {name: host(name, lan(number), gpus=gpus) for name, number in (("a", 2), ("b", 3))}
    (why,) = refused(layout, facts)
    assert why.startswith(told)


def test_tensor_parallelism_over_the_network_is_possible_and_told() -> None:
    cluster = planned(Layout(4, 1), TWO)
    assert any("Better: tensor-parallel-size 2, pipeline-parallel-size 2." in each for each in cluster.warnings)
    assert not any("Better" in each for each in planned(Layout(2, 2), TWO).warnings)


def test_the_plan_names_the_ports_and_the_risk() -> None:
    (warning,) = planned(Layout(2, 2), TWO).warnings
    assert "TCP 6379-6386 and 6479-6978" in warning and "nothing is encrypted" in warning


def test_the_commands_of_head_and_worker() -> None:
    cluster = planned(Layout(2, 2), TWO, port=7000)
    common = [
        "--node-manager-port=7001",
        "--object-manager-port=7002",
        "--runtime-env-agent-port=7003",
        "--dashboard-agent-grpc-port=7004",
        "--dashboard-agent-listen-port=7005",
        "--metrics-export-port=7006",
        "--min-worker-port=7100",
        "--max-worker-port=7599",
        "--num-gpus=2",
        "--num-cpus=2",
        "--object-store-memory=536870912",
        "--disable-usage-stats",
        "--log-style=record",
        "--log-color=false",
        "--block",
    ]
    head = ["ray", "start", "--head", "--node-ip-address=10.0.0.2", "--port=7000", "--ray-client-server-port=7007"]
    head += ["--include-dashboard=true", "--dashboard-host=127.0.0.1", "--dashboard-port=7008", *common]
    worker = ["ray", "start", "--address=10.0.0.2:7000", "--node-ip-address=10.0.0.3", *common]
    assert head_argv(cluster) == head
    assert worker_argv(cluster, cluster.nodes[1]) == worker
    program = ["python3", "/run/onecat/ray_node.py"]
    waits = ["--address", "10.0.0.2:7000", "--silence", "600"]
    expected = ["--nodes", "10.0.0.2,10.0.0.3", "--gpus", "4"]
    server = ["/entrypoint.sh", "/models/m"]
    assert node_argv(cluster, cluster.head, server, 600) == [
        *(*program, "head", *waits, *expected, "--", *head, "--", *server)
    ]
    assert node_argv(cluster, cluster.nodes[1], server, 600) == [*program, "worker", *waits, "--", *worker]


def test_ipv6_addresses_are_joined_in_brackets() -> None:
    node = RayNode("a", "fd00::2", "eth0", 1, RayPorts(6379))
    assert RayCluster((node,)).address == "[fd00::2]:6379"


def test_each_node_has_its_own_address_and_interface_and_no_secret() -> None:
    cluster = planned(Layout(2, 2), {"a": host("a", lan(2)), "b": host("b", lan(3, "enp3s0"))})
    found = [{each.arg: each.value for each in environment(cluster, node)} for node in cluster.nodes]
    assert [each["VLLM_HOST_IP"] for each in found] == ["10.0.0.2", "10.0.0.3"]
    assert [each["NCCL_SOCKET_IFNAME"] for each in found] == ["=eth0", "=enp3s0"]
    assert [each["GLOO_SOCKET_IFNAME"] for each in found] == ["eth0", "enp3s0"]
    assert all(each["RAY_AUTH_MODE"] == "token" and "RAY_AUTH_TOKEN" not in each for each in found)
    assert all(reason.why for reason in environment(cluster, cluster.head))


def test_the_server_listens_where_the_plan_says_and_works_through_ray() -> None:
    words = ("/models/m", "--host", "0.0.0.0", "--port", "8000", "--dtype", "half")
    plan = Plan("demo", "p", "vllm", "0.27.1", "container", "/m", "m", "127.0.0.1", 8123, words)
    assert server_args(plan) == (
        *("/models/m", "--host", "127.0.0.1", "--port", "8123", "--dtype", "half"),
        *("--distributed-executor-backend", "ray"),
    )


def test_the_cluster_is_shown_with_everything_that_the_operator_must_know() -> None:
    layout = Layout(2, 2)
    document = to_document(planned(layout, TWO), layout)
    assert [(each["role"], each["host"], each["address"], each["gpus"]) for each in document["nodes"]] == [
        ("head", "a", "10.0.0.2", 2),
        ("worker", "b", "10.0.0.3", 2),
    ]
    lines = cluster_lines(document)
    assert lines[:3] == [
        "CLUSTER of 2 hosts with 4 GPUs, joined through Ray at 10.0.0.2:6379",
        "  head    a  10.0.0.2  eth0  2 GPUs",
        "  worker  b  10.0.0.3  eth0  2 GPUs",
    ]
    told = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "tensor-parallel-size 2 within each host and 2 pipeline stages across" in told
    assert "TCP 6379-6386 and 6479-6978 of a, b" in told
    assert "VLLM_HOST_IP: 10.0.0.2 on a, 10.0.0.3 on b" in told
    assert "NCCL_SOCKET_IFNAME==eth0" in told and "warning:  Ray listens on all addresses" in told


def test_a_host_whose_gpus_are_not_seen_is_looked_at_and_not_divided_by() -> None:
    facts = {**TWO, "b": host("b", lan(3), gpus=0)}
    cluster, (refusal,) = plan_cluster(deployment(), Layout(1, 2), facts)
    assert (cluster, refusal.why) == (None, "each host must give 1 GPU: b has 0")
    assert refusal.fix == ("onecat doctor --host b",)
