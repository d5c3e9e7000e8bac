"""Layouts and offloaded weights in words."""

from __future__ import annotations

from onecat.knowledge.pcie import pcie_generation
from onecat.planner.hardware import GIB
from onecat.planner.questions import Question
from onecat.planner.records import Layout


def told_layout(layout: Layout, experts_whole: bool = False) -> str:
    """The flags of a layout, as under serve."""
    parts = [f"tensor-parallel-size: {layout.tensor_parallel}"]
    if layout.pipeline_parallel > 1:
        parts.append(f"pipeline-parallel-size: {layout.pipeline_parallel}")
    if layout.replicas > 1:
        parts.append(f"data-parallel-size: {layout.replicas}")
    if experts_whole:
        parts.append("enable-expert-parallel: true")
    return ", ".join(parts)


def told_offload(question: Question, count: int) -> str:
    """What weights in the host's memory cost: they cross the bus for each step of the engine."""
    pcie = next((each.pcie for each in question.hardware.cards if each.pcie is not None), (3, 16))
    row = pcie_generation(pcie[0])
    rate = row.gigabytes_per_second(pcie[1]) if row is not None else 16.0
    seconds = count / (rate * 1e9)
    return (
        f"{count / GIB:.1f} GiB per card cross PCIe {pcie[0]}.0 x{pcie[1]} ({rate:.1f} GB/s) for every token of a "
        f"single request, which alone takes {seconds:.2f} s"
    )
