"""A plan as text for a terminal of 80 columns: arguments with reasons, memory of each GPU, layouts, refusals."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onecat.planner import Layout, Plan, Reason

COLUMNS = 80
BAR = 48
MODEL, CUT = "MODEL", "..."
MOST_SHOWN = 6
PARTS = (
    ("weights", "weights_gib"),
    ("KV cache", "kv_cache_gib"),
    ("activations", "activations_gib"),
    ("overhead", "overhead_gib"),
    ("others", "other_gib"),
)
BLOCKS = "█▓▒░╳ "
ASCII = "#=+-x "
"""Of each part in that order, and of what is free."""


def plan_text(plan: Plan, *, unicode: bool = False) -> str:
    """A plan for a person: one row per argument with its origin, the reason below it, then what it takes of the GPUs.

    Parameters:
        unicode: whether bars may be drawn with block elements.
    """
    lines = _head(plan)
    width = max(len(reason.arg) for reason in plan.reasons) + 2
    lines += ["", f"{'ARGUMENT':<{width}}{'VALUE':<{COLUMNS - width - 14}}  FROM"]
    for reason in plan.reasons:
        lines += _row(reason, width)
    lines += _layouts(plan)
    lines += memory_lines(plan, unicode=unicode)
    lines += candidate_lines(plan)
    lines += ["", *_command(["vllm", "serve", *plan.server_args])]
    for warning in plan.warnings:
        lines += ["", *wrapped(f"note: {warning}", "")]
    for refusal in plan.refusals:
        lines += ["", *wrapped(f"REFUSED ({refusal.code}): {refusal.why}", "")]
        lines += [line for step in refusal.fix for line in wrapped(f"fix: {step}", "  ")]
    return "\n".join(lines)


def _head(plan: Plan) -> list[str]:
    if plan.profile is None:
        name = next((each["name"] for each in plan.per_gpu if each.get("name")), None)
        cards = "" if name is None else f" on {plan.layout.cards} x {name}"
        return [f"{plan.deployment}: {plan.engine} {plan.engine_version}{cards}"]
    lines = [
        f"{plan.deployment}: {plan.engine} {plan.engine_version}, profile {plan.profile}, {plan.runtime}, "
        f"at {plan.host}:{plan.port}"
    ]
    if plan.container is not None:
        gpus = f"{plan.container.gpus} GPU{'s' if plan.container.gpus > 1 else ''}" if plan.container.gpus else ""
        shm = f"/dev/shm of {plan.container.shm_bytes // 2**20} MiB"
        parts = [f"image {plan.container.image}", gpus, " ".join(plan.container.devices), shm]
        lines += wrapped(", ".join(filter(None, parts)), "")
    return lines


def memory_lines(plan: Plan, *, unicode: bool = False) -> list[str]:
    """A bar for each GPU of a replica, and what the KV cache comes to."""
    if plan.fits is None or not plan.per_gpu:
        return []
    glyphs = BLOCKS if unicode else ASCII
    is_cpu = plan.per_gpu[0].get("gpu") is None
    copies = f", of each of {plan.layout.replicas} copies" if plan.layout.replicas > 1 else ""
    verdict = "it fits" if plan.fits else f"IT DOES NOT FIT: {plan.short_of_gib:.2f} GiB are missing"
    lines = ["", f"MEMORY{copies}, in GiB: {verdict}" + (" (estimated)" if plan.estimated else "")]
    before: list[str] = []
    for each in plan.per_gpu:
        name = "host " if is_cpu else f"GPU {each['gpu']}"
        memory = "" if each["memory_gib"] is None else f"{each['memory_gib']:7.2f}"
        lines.append(f"{name:<7}[{_bar(each, glyphs)}] {memory}".rstrip())
        numbers = _numbers(each, glyphs)
        if numbers != before:
            lines += numbers
        before = numbers
    if plan.kv_tokens:
        told = (
            f"The KV cache holds {plan.kv_tokens:,} tokens: {plan.max_concurrency:g} requests of "
            f"{plan.max_model_len:,} tokens at once. "
        )
    else:
        told = "Nothing is left for a KV cache. "
    longest = plan.largest_max_model_len or 0
    told += f"The longest context that fits: {longest:,} tokens." if longest else ""
    return [*lines, *wrapped(told.strip(), "")]


def _bar(used: Mapping[str, Any], glyphs: str) -> str:
    """Parts in proportion to the memory; what exceeds it is cut."""
    memory = used["memory_gib"] or sum(max(0.0, used[field]) for _, field in PARTS) or 1.0
    text, total = "", 0.0
    for (_, field), glyph in zip(PARTS, glyphs, strict=False):
        total += max(0.0, used[field])
        text += glyph * max(0, min(BAR, round(BAR * total / memory)) - len(text))
    return f"{text:<{BAR}}"


def _numbers(used: Mapping[str, Any], glyphs: str) -> list[str]:
    told = [
        f"{glyph} {name} {max(0.0, used[field]):.2f}"
        for (name, field), glyph in zip(PARTS, glyphs, strict=False)
        if used[field] or field != "other_gib"
    ]
    free = [] if used["free_gib"] is None else [f"free {used['free_gib']:.2f}"]
    return wrapped("  ".join([*told, *free]), "       ")


def candidate_lines(plan: Plan) -> list[str]:
    """The layouts that were compared, where there is a choice."""
    if len(plan.candidates) < 2:
        return []
    lines = ["", f"{'LAYOUT':<18}{'HOLDS':<9}{'KV TOKENS':>11}{'LONGEST':>10}{'AT ONCE':>9}{'COST':>7}{'LATENCY':>9}"]
    first = plan.candidates[0]
    own = [each for each in plan.candidates[MOST_SHOWN:] if each.layout == plan.layout]
    for each in [*plan.candidates[:MOST_SHOWN], *own]:
        mark = "*" if each.layout == plan.layout else " "
        lines.append(
            f"{mark}{layout_name(each.layout):<17}{each.holds:<9}{each.kv_tokens or 0:>11,}"
            f"{each.largest_max_model_len:>10,}{each.max_concurrency or 0:>9.1f}{each.cost:>7.2f}{each.latency:>9.2f}"
        )
    wanted = f"{first.wanted:,} tokens" if first.wanted else "tokens that are wanted"
    note = (
        f"* is planned. Best first: the cheapest of those that hold the whole context of {wanted}, then those that "
        "hold a shorter one, then none. LONGEST: context that fits. AT ONCE: requests of the whole context. COST: of a "
        "token when all cards are busy; LATENCY: of a single request; both rough, against the first. Each layout's "
        "reason is in --json (candidates)."
    )
    return [*lines, *wrapped(note, "")]


def layout_name(layout: Layout) -> str:
    """A layout in a few characters: TP2 PP1 x4."""
    parts = [f"TP{layout.tensor_parallel}"]
    if layout.pipeline_parallel > 1:
        parts.append(f"PP{layout.pipeline_parallel}")
    if layout.replicas > 1:
        parts.append(f"x{layout.replicas}")
    return " ".join(parts)


def what_if_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Cases side by side."""
    names = [each["case"] for each in rows]
    width = max(18, min(34, max(map(len, names)) + 2))
    head = f"{'CASE':<{width}}{'LAYOUT':<11}{'FITS':<5}{'KV TOKENS':>11}{'AT ONCE':>9}{'LONGEST':>10}"
    lines = [head + (f"{'COST':>7}" if width + 53 <= COLUMNS else "")]
    for each in rows:
        fits = {True: "yes", False: "no", None: "?"}[each["fits"] if not each["refusals"] else False]
        cost = "" if each["cost"] is None else f"{each['cost']:.2f}"
        layout = layout_name(Layout(**each["layout"]))
        row = f"{each['case'][: width - 1]:<{width}}{layout:<11}{fits:<5}{each['kv_tokens'] or 0:>11,}"
        row += f"{each['max_concurrency'] or 0:>9.1f}{each['largest_max_model_len'] or 0:>10,}"
        lines.append((row + (f"{cost:>7}" if width + 53 <= COLUMNS else "")).rstrip())
        lines += [line for code in each["refusals"] for line in wrapped(f"refused: {code}", "    ")]
    note = "COST of a token when the cards are busy, rough, against the cheapest that fits. KV tokens: of one copy."
    return [*lines, *wrapped(note, "")]


def _layouts(plan: Plan) -> list[str]:
    """The other ways that the profile knows to use the cards, with the flags that choose them."""
    others = [each for each in plan.layouts if not each.selected]
    if not others:
        return []
    chosen = next((each.name for each in plan.layouts if each.selected), "one of its own")
    lines = ["", f"LAYOUT {chosen}; the profile also knows:"]
    for each in others:
        flags = ", ".join(f"{name}: {value}" for name, value in each.serve)
        lines += wrapped(f"{each.name}, when {each.when}", "  ")
        lines += wrapped(f"serve: {{{flags}}}" if flags else "no flags under serve: it is the default", "    ")
    return lines


def _row(reason: Reason, width: int) -> list[str]:
    room = COLUMNS - width - 14
    if reason.arg == MODEL:
        reason = replace(reason, value=short_path(reason.value, room))
    head = f"{reason.arg:<{width}}{reason.value:<{room}}  {reason.origin}"
    if len(reason.value) > room:
        return [
            f"{reason.arg:<{width}}{reason.value}",
            f"{'':<{width + room}}  {reason.origin}",
            *wrapped(reason.why, "    "),
        ]
    return [head, *wrapped(reason.why, "    ")]


def short_path(path: str, room: int) -> str:
    """The end of a path, in `room` characters, from the first part of it that can be shown whole."""
    if len(path) <= room:
        return path
    end = path[len(path) - room + len(CUT) :]
    slash = end.find("/", 0, -1)
    return CUT + (end[slash:] if slash >= 0 else end)


def _command(argv: Sequence[str]) -> list[str]:
    """A command for a shell, continued with backslashes."""
    lines = [""]
    for word in map(shlex.quote, argv):
        if lines[-1] and len(lines[-1]) + len(word) > COLUMNS - 3:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of at most 80 columns."""
    return textwrap.wrap(text, COLUMNS, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
