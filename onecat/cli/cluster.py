"""How commands show the hosts that share one model through Ray."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

COLUMNS = 80


def cluster_lines(cluster: Mapping[str, Any]) -> list[str]:
    """A cluster in lines of at most 80 columns. cluster: as `onecat.planner.ray.to_document` makes it."""
    nodes = cluster["nodes"]
    lines = [f"CLUSTER of {len(nodes)} hosts with {cluster['gpus']} GPUs, joined through Ray at {cluster['address']}"]
    rows = [(each["role"], each["host"], each["address"], each["interface"], _gpus(each["gpus"])) for each in nodes]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        lines.append("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    lines += _wrapped("layout:", cluster["layout"]["why"])
    for opened in dict.fromkeys(each["firewall"] for each in nodes):
        who = ", ".join(each["host"] for each in nodes if each["firewall"] == opened)
        lines += _wrapped("firewall:", f"{opened} of {who}, for the other hosts alone; and their ephemeral ports")
    for index, first in enumerate(nodes[0]["environment"]):
        same = [each["environment"][index] for each in nodes]
        values = dict.fromkeys(each["value"] for each in same)
        if len(values) == 1:
            lines += _wrapped("variable:", f"{first['arg']}={first['value']}: {first['why']}")
        else:
            each_on = ", ".join(f"{own['value']} on {node['host']}" for own, node in zip(same, nodes, strict=True))
            lines += _wrapped("variable:", f"{first['arg']}: {each_on}")
    for warning in cluster["warnings"]:
        lines += _wrapped("warning:", warning)
    return lines


def _gpus(count: int) -> str:
    return f"{count} GPU" + ("" if count == 1 else "s")


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent=f"  {label:<10}", subsequent_indent=" " * 12, break_on_hyphens=False
    )
