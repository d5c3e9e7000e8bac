"""What stands in for vLLM on a CPU, where vLLM refuses Ray: it places workers as vLLM 0.27.1 does, then answers HTTP.

vllm/v1/executor/ray_executor_v2.py: one bundle of one GPU per worker, packed; an actor of class RayWorkerProc in each.
The words are those of `vllm serve`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path


class RayWorkerProc:
    def told(self) -> dict[str, str]:
        import ray

        names = ("VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
        return {"node": ray.util.get_node_ip_address(), **{name: os.environ.get(name, "") for name in names}}


def place(size: int) -> list[object]:
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray.init(address=None, logging_level="ERROR")
    group = placement_group([{"GPU": 1.0}] * size, strategy="PACK")
    ray.get(group.ready())
    workers = []
    for rank in range(size):
        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        options = {"name": f"vllm_Worker_0_PP{rank}", "num_cpus": 0, "num_gpus": 1, "scheduling_strategy": where}
        workers.append(ray.remote(RayWorkerProc).options(**options).remote())
    for each in ray.get([worker.told.remote() for worker in workers]):
        print("worker:", json.dumps(each, sort_keys=True), flush=True)
    return workers


def value(name: str) -> int:
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else 1


if __name__ == "__main__":
    assert sys.argv[sys.argv.index("--distributed-executor-backend") + 1] == "ray"
    print("the engine sees", os.environ["RAY_ADDRESS"], flush=True)
    kept = place(value("--tensor-parallel-size") * value("--pipeline-parallel-size"))
    runpy.run_path(str(Path(__file__).with_name("openai_server.py")), run_name="__main__")
