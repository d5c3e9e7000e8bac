"""The main loop of a kernel: the one with the tensor core instructions."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from bench.gpu.sass import Function, Instruction
from bench.gpu.units import is_tensor


@dataclass(frozen=True)
class Block:
    """Instructions that are executed one after the other, and the starts of the blocks that may follow."""

    instructions: tuple[Instruction, ...]
    followers: tuple[int, ...]


def blocks(function: Function) -> dict[int, Block]:
    """The function's basic blocks by their first address. Calls count as one instruction."""
    addresses = [instruction.address for instruction in function.instructions]
    after = dict(zip(addresses, addresses[1:], strict=False))
    ends = [each for each in function.instructions if each.target is not None or not each.falls_through]
    starts = {addresses[0], *(after[each.address] for each in ends if each.address in after)}
    starts |= {function.labels[target] for each in ends if (target := each.target) in function.labels and target}
    found: dict[int, Block] = {}
    current: list[Instruction] = []
    for instruction in function.instructions:
        current.append(instruction)
        following = after.get(instruction.address)
        if following is None or following in starts or instruction in ends:
            followers = []
            if instruction.target is not None and instruction.target in function.labels:
                followers.append(function.labels[instruction.target])
            if instruction.falls_through and following is not None:
                followers.append(following)
            found[current[0].address] = Block(tuple(current), tuple(dict.fromkeys(followers)))
            current = []
    return found


def dominators(graph: Mapping[int, Block], entry: int) -> dict[int, frozenset[int]]:
    """For each block that `entry` reaches: the blocks that every way from `entry` to it passes, itself among them."""
    reached = [entry]
    for start in reached:
        reached += [each for each in graph[start].followers if each not in reached]
    before: dict[int, list[int]] = {start: [] for start in reached}
    for start in reached:
        for follower in graph[start].followers:
            before[follower].append(start)
    everything = frozenset(reached)
    found = {start: everything for start in reached} | {entry: frozenset((entry,))}
    changed = True
    while changed:
        changed = False
        for start in reached[1:]:
            common = frozenset.intersection(*(found[each] for each in before[start])) | {start}
            if common != found[start]:
                found[start], changed = common, True
    return found


@dataclass(frozen=True)
class Loop:
    """The main loop of a kernel.

    always: instructions of every round. sometimes: those in branches of it. around: those of the loop around it that
    writes activations to shared memory, without other inner loops; none when there is no such loop.
    """

    always: tuple[Instruction, ...]
    sometimes: tuple[Instruction, ...]
    around: tuple[Instruction, ...]


@dataclass(frozen=True)
class _NaturalLoop:
    """latches: the blocks that go back to the first one. members: all that lead to them from there."""

    latches: tuple[int, ...]
    members: frozenset[int]


def _natural_loops(graph: Mapping[int, Block], dominated_by: Mapping[int, frozenset[int]]) -> list[_NaturalLoop]:
    """One for each first block."""
    latches: dict[int, list[int]] = {}
    for start in dominated_by:
        for follower in graph[start].followers:
            if follower in dominated_by[start]:
                latches.setdefault(follower, []).append(start)
    loops = []
    for header, ends in latches.items():
        members, growing = {header}, [*ends]
        while growing:
            block = growing.pop()
            if block not in members:
                members.add(block)
                growing += [start for start in dominated_by if block in graph[start].followers]
        loops.append(_NaturalLoop(tuple(ends), frozenset(members)))
    return loops


def _innermost_with_tensors(
    graph: Mapping[int, Block], loops: Iterable[_NaturalLoop], name: str
) -> tuple[_NaturalLoop, list[_NaturalLoop]]:
    """The innermost loop with tensor core instructions, of several the one with most; and all loops."""
    every = list(loops)

    def tensor(loop: _NaturalLoop) -> int:
        return sum(is_tensor(each) for start in loop.members for each in graph[start].instructions)

    holding = [loop for loop in every if tensor(loop)]
    innermost = [loop for loop in holding if not any(other.members < loop.members for other in holding)]
    if not innermost:
        raise ValueError(f"{name} has no loop with tensor core instructions")
    return max(innermost, key=tensor), every


def busy_round(function: Function, most_of: str) -> tuple[Instruction, ...]:
    """The shortest way once round the main loop that passes all of its tensor core instructions, and the block with
    the most instructions whose opcode begins with `most_of` (MUFU.EX2: the exponentials of a softmax).

    A round with work takes no fewer instructions; branches for rare cases are left out. Raises ValueError when no loop
    has such instructions, or no way passes them all.
    """
    graph = blocks(function)
    dominated_by = dominators(graph, function.instructions[0].address)
    main, _ = _innermost_with_tensors(graph, _natural_loops(graph, dominated_by), function.name)
    header = next(start for start in main.members if all(start in dominated_by[each] for each in main.members))
    stops = [start for start in main.members if any(map(is_tensor, graph[start].instructions))]
    counts = {
        start: sum(each.opcode.startswith(most_of) for each in graph[start].instructions) for start in main.members
    }
    stops.append(max(counts, key=lambda start: counts[start]))
    # Within a round, a block that others cannot be reached from without going back to the header comes later.
    after = {start: len(_reachable(graph, start, main.members, header).intersection(stops)) for start in stops}
    stops.sort(key=lambda start: -after[start])
    way = [header]
    for stop in stops:
        way += _shortest(graph, way[-1], {stop}, main.members, header, function.name)
    way += _shortest(graph, way[-1], set(main.latches), main.members, header, function.name)
    return tuple(each for start in way for each in graph[start].instructions)


def _followers(graph: Mapping[int, Block], start: int, members: Set[int], header: int) -> list[int]:
    return [each for each in graph[start].followers if each in members and each != header]


def _reachable(graph: Mapping[int, Block], start: int, members: Set[int], header: int) -> set[int]:
    found: set[int] = set()
    growing = [start]
    while growing:
        for follower in _followers(graph, growing.pop(), members, header):
            if follower not in found:
                found.add(follower)
                growing.append(follower)
    return found


def _shortest(
    graph: Mapping[int, Block], start: int, ends: Set[int], members: Set[int], header: int, name: str
) -> list[int]:
    """Blocks after `start` up to one of `ends`, with the fewest instructions; none when it is one itself."""
    queue: list[tuple[int, int, list[int]]] = [(0, start, [])]
    done: set[int] = set()
    while queue:
        length, block, way = heapq.heappop(queue)
        if block in ends:
            return way
        if block not in done:
            done.add(block)
            for follower in _followers(graph, block, members, header):
                heapq.heappush(queue, (length + len(graph[follower].instructions), follower, [*way, follower]))
    raise ValueError(f"no way through the main loop of {name} passes all of its tensor core instructions")


def main_loop(function: Function) -> Loop:
    """The innermost loop with tensor core instructions; of several the one with most of them.

    Raises ValueError when no loop has any.
    """
    graph = blocks(function)
    dominated_by = dominators(graph, function.instructions[0].address)
    main, loops = _innermost_with_tensors(graph, _natural_loops(graph, dominated_by), function.name)

    def listing(starts: Iterable[int]) -> tuple[Instruction, ...]:
        return tuple(each for start in sorted(starts) for each in graph[start].instructions)

    always = main.members.intersection(*(dominated_by[latch] for latch in main.latches))
    outer = [loop.members for loop in loops if main.members < loop.members]
    staging = [members for members in outer if any(each.mnemonic == "STS" for each in listing(members))]
    around = min(staging, key=len, default=frozenset[int]())
    inner = frozenset[int]().union(*(loop.members for loop in loops if loop.members < around))
    return Loop(listing(always), listing(main.members - always), listing(around - inner))
