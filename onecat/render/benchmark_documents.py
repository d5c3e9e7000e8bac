"""What a benchmark measured as one JSON document (onecat.bench/1): its result file's first line, and its figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from onecat.experiments.records import Experiment
from onecat.experiments.report import Run, make_report
from onecat.experiments.result_lines import header_document, with_nulls


def experiment_document(experiment: Experiment, path: Path, note: str = "") -> dict[str, Any]:
    """The document. note: what is to be known of it, as that it was cut short."""
    report = make_report([Run("", str(path), experiment)])
    return {
        **header_document(experiment),
        "finished_at": experiment.finished_at,
        "resumed_at": list(experiment.resumed_at),
        "file": str(path),
        "note": note,
        "series": [
            {
                "label": each.label,
                "arm": each.arm,
                "arrivals": asdict(each.arrivals),
                "workload": asdict(each.workload),
                "blocks": [block.number for block in each.blocks],
                "summary": with_nulls(each.summary.document()),
            }
            for each in report.series
        ],
        "verdict": with_nulls(experiment.verdict),
    }
