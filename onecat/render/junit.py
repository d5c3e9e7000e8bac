"""JUnit XML, for CI systems."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable

from onecat.doctor import Finding, HostReport, Report, Status, reaches

_TOTALS = ("tests", "failures", "skipped", "errors")
_NOT_XML = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def doctor_junit(report: Report, fail_on: Status = "fail") -> str:
    """Doctor's report as JUnit XML: one suite per host, one case per finding.

    Findings at or above `fail_on` are failures, skipped checks are skipped, all else passes.
    """
    return hosts_junit(report.hosts, "onecat doctor", fail_on)


def hosts_junit(hosts: Iterable[HostReport], name: str, fail_on: Status = "fail") -> str:
    """Findings about hosts as JUnit XML; see doctor_junit. name: of all suites."""
    suites = [_suite(host, fail_on) for host in hosts]
    totals = {total: str(sum(int(suite.get(total, "0")) for suite in suites)) for total in _TOTALS}
    root = ElementTree.Element("testsuites", {"name": name, **totals})
    root.extend(suites)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(host: HostReport, fail_on: Status) -> ElementTree.Element:
    failures = [finding for finding in host.findings if _is_failure(finding, fail_on)]
    skipped = [finding for finding in host.findings if finding.status == "skip"]
    suite = ElementTree.Element(
        "testsuite",
        name=_clean(host.name),
        tests=str(len(host.findings) + (not host.reachable)),
        failures=str(len(failures)),
        skipped=str(len(skipped)),
        errors="0" if host.reachable else "1",
        time=f"{host.seconds:.3f}",
    )
    if not host.reachable:
        case = ElementTree.SubElement(suite, "testcase", classname="host", name="reachable")
        error = ElementTree.SubElement(case, "error", message=_clean(host.reason or ""))
        error.text = _clean("\n".join([*host.evidence, *(f"fix: {step}" for step in host.fix)]))
    for finding in host.findings:
        area, _, name = finding.check.partition(".")
        subject = f" [{finding.subject}]" if finding.subject else ""
        case = ElementTree.SubElement(suite, "testcase", classname=area, name=_clean(name + subject))
        details = _clean("\n".join([*finding.evidence, *(f"fix: {step}" for step in finding.fix)]))
        if _is_failure(finding, fail_on):
            failure = ElementTree.SubElement(case, "failure", type=finding.status, message=_clean(finding.title))
            failure.text = details
        elif finding.status == "skip":
            ElementTree.SubElement(case, "skipped", message=_clean(finding.title))
        elif finding.status in ("warn", "info"):
            ElementTree.SubElement(case, "system-out").text = _clean(f"{finding.status}: {finding.title}\n{details}")
    return suite


def _is_failure(finding: Finding, fail_on: Status) -> bool:
    return finding.status in ("fail", "warn", "info") and reaches(finding, fail_on)


def _clean(text: str) -> str:
    """Text without the control characters that XML cannot hold or a terminal obeys."""
    return _NOT_XML.sub("?", text)
