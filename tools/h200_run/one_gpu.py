"""Lets the ranks of tensor and pipeline parallelism share one GPU; a plugin of the group `vllm.general_plugins`.

It does nothing unless H200_ONE_GPU is 1. NCCL refuses two ranks on one GPU, so that what they tell each other goes
through gloo in host memory: attention, matmuls, weights and caches are split as on two GPUs, only the transport is
another. No CUDA graphs: the exchange is none of the GPU's work.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

SWITCH = "H200_ONE_GPU"
MOST_RANKS = 2


class _Received:
    """What is on its way to a tensor on the GPU."""

    def __init__(self, work: Any, host: Any, tensor: Any) -> None:
        self._work, self._host, self._tensor = work, host, tensor

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    def wait(self) -> None:
        self._work.wait()
        self._tensor.copy_(self._host)


class _Sent:
    """What is on its way from a copy in host memory, which has to live until it has arrived."""

    def __init__(self, work: Any, host: Any) -> None:
        self._work, self._host = work, host

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    def wait(self) -> None:
        self._work.wait()


@functools.cache
def install() -> None:
    """Let all ranks use the first GPU, and exchange tensors through host memory."""
    if os.environ.get(SWITCH) != "1":
        return
    import torch
    import torch.distributed as distributed
    from vllm.platforms import current_platform

    platform = type(current_platform)
    platform.dist_backend = "gloo"
    platform.device_count = classmethod(lambda cls: MOST_RANKS)
    platform.logical_device_id_to_visible_device_id = classmethod(lambda cls, device_id: 0)
    platform.get_device_communicator_cls = classmethod(lambda cls: f"{__name__}.communicator")
    torch.accelerator.device_count = lambda: MOST_RANKS
    send, receive, broadcast = distributed.isend, distributed.irecv, distributed.broadcast

    @functools.wraps(send)
    def send_from_host(tensor: Any, *arguments: Any, **options: Any) -> Any:
        host = tensor.cpu()
        return _Sent(send(host, *arguments, **options), host)

    @functools.wraps(receive)
    def receive_to_host(tensor: Any, *arguments: Any, **options: Any) -> Any:
        host = torch.empty(tensor.shape, dtype=tensor.dtype)
        return _Received(receive(host, *arguments, **options), host, tensor)

    @functools.wraps(broadcast)
    def broadcast_by_host(tensor: Any, *arguments: Any, **options: Any) -> Any:
        host = tensor.cpu()
        broadcast(host, *arguments, **options)
        tensor.copy_(host)

    distributed.isend = _for_gpu(send, send_from_host)
    distributed.irecv = _for_gpu(receive, receive_to_host)
    distributed.broadcast = _for_gpu(broadcast, broadcast_by_host)


def _for_gpu(original: Callable[..., Any], by_host: Callable[..., Any]) -> Callable[..., Any]:
    """`by_host` for tensors on a GPU, the original for all others."""

    @functools.wraps(original)
    def chosen(tensor: Any, *arguments: Any, **options: Any) -> Any:
        return (by_host if tensor.is_cuda else original)(tensor, *arguments, **options)

    return chosen


def communicator(**options: Any) -> Any:
    """What vLLM makes for each group of ranks: its base class, whose exchanges go through host memory."""
    import torch
    from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase

    class HostCommunicator(DeviceCommunicatorBase):  # type: ignore[misc]
        def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
            host = input_.cpu()
            torch.distributed.all_reduce(host, group=self.cpu_group)
            return host.to(input_.device)

        def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
            return torch.cat(self._parts(input_), dim=dim).to(input_.device)

        def gather(self, input_: torch.Tensor, dst: int = 0, dim: int = -1) -> torch.Tensor | None:
            parts = self._parts(input_)
            return torch.cat(parts, dim=dim).to(input_.device) if self.rank_in_group == dst else None

        def _parts(self, input_: torch.Tensor) -> list[torch.Tensor]:
            host = input_.cpu().contiguous()
            parts = [torch.empty_like(host) for _ in range(self.world_size)]
            torch.distributed.all_gather(parts, host, group=self.cpu_group)
            return parts

    return HostCommunicator(**options)
