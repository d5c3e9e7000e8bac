"""Reports over result files, and lists of them, as JSON documents."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecat.experiments.report import Report
from onecat.render import benchmark_figures as figures
from onecat.render.benchmark_documents import experiment_document

if TYPE_CHECKING:
    from onecat.experiments.places import Listing


def report_document(report: Report) -> dict[str, Any]:
    """The onecat.bench-report/1 document: runs as onecat.bench/1 each, with `name`, and what differs in them."""
    return {
        "schema": "onecat.bench-report/1",
        "comparable": not report.mattering,
        "differences": [asdict(each) for each in report.differences],
        "runs": [{"name": run.name, **experiment_document(run.experiment, Path(run.file))} for run in report.runs],
    }


def listing_document(listing: Listing) -> dict[str, Any]:
    """The onecat.bench-list/1 document."""
    return {
        "schema": "onecat.bench-list/1",
        "directory": str(listing.directory),
        "files": [
            {
                "name": each.path.stem,
                "file": str(each.path),
                "bytes": each.bytes,
                "id": each.experiment.id,
                "kind": each.experiment.kind,
                "started_at": each.experiment.started_at,
                "finished_at": each.experiment.finished_at,
                "state": each.state,
                "sentence": next(figures.verdict_lines(each.experiment.verdict), None),
            }
            for each in listing.files
        ],
        "others": [{"file": str(path), "why": why} for path, why in listing.others],
    }
