"""What `onecat model dequantize` prints: the plan, the result for a person, and as JSON."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from onecat.checkpoints.numbering import counted, first_of
from onecat.render.columns import harmless
from onecat.render.pulls import duration, size

if TYPE_CHECKING:
    from onecat.nvfp4.dequantisation import Dequantisation
    from onecat.nvfp4.rewriting import Rewritten


def document(plan: Dequantisation, done: Rewritten | None) -> dict[str, Any]:
    """The result as a JSON-ready document (onecat.model-dequantize/1). done: None for a plan that was not carried out.

    modules: turned back, by scheme. kept: plain tensors that went along; dropped: tensors that did not. bytes are those
    of tensors.
    """
    return {
        "schema": "onecat.model-dequantize/1",
        "source": str(plan.rewrite.source.absolute()),
        "target": str(plan.rewrite.target.absolute()),
        "dry_run": done is None,
        "dtype": plan.dtype,
        "modules": dict(plan.modules),
        "kept": plan.kept,
        "dropped": list(plan.dropped),
        "files": [shard.file for shard in plan.rewrite.shards],
        "source_bytes": plan.source_bytes,
        "target_bytes": plan.target_bytes,
        "reused": list(done.reused) if done is not None else [],
        "seconds": round(done.seconds, 3) if done is not None else None,
    }


def lines(plan: Dequantisation, done: Rewritten | None) -> list[str]:
    """The result for a person."""
    schemes = ", ".join(f"{counted(count, 'module')} of {scheme}" for scheme, count in sorted(plan.modules.items()))
    would = "would become" if done is None else "became"
    text = [f"{schemes} {would} {plan.dtype}, beside {counted(plan.kept, 'plain tensor')}"]
    if plan.dropped:
        text.append(
            f"left out: {counted(len(plan.dropped), 'scale')} of activations or of the KV cache, as "
            f"{harmless(first_of(plan.dropped, 1))}"
        )
    files = counted(len(plan.rewrite.shards), "weight file")
    grown = f"{size(plan.source_bytes)} -> {size(plan.target_bytes)} in {files}"
    if done is None:
        return [*text, f"{grown}; nothing was written"]
    speed = ""
    if done.seconds > 0 and (fresh := done.bytes_read - done.bytes_reused) > 0:
        speed = f", {size(fresh / done.seconds)}/s read"
    text.append(f"{harmless(str(plan.rewrite.target))} is complete: {grown}; {duration(done.seconds)}{speed}")
    return [*text, f"next: onecat plan --model {shlex.quote(harmless(str(plan.rewrite.target)))}"]
