"""What is different between two reports."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from onecat.doctor import STATUSES, Finding, HostReport, Report, changes, remembered


def report(*findings: Finding, host: str = "gpu1") -> Report:
    return Report(None, (HostReport(host, True, 0.1, findings),))


def away(host: str = "gpu1") -> Report:
    return Report(None, (HostReport(host, False, 5.0, reason="no route to host"),))


def found(status: str, check: str = "gpu.xid", subject: str = "GPU 0", title: str = "Xid 79") -> Finding:
    return Finding(check, status, title, subject)  # type: ignore[arg-type]


def kinds(before: Report, after: Report) -> list[tuple[str, str, str]]:
    return [(change.kind, change.check, change.subject) for change in changes(before, after)]


def test_each_kind_of_change() -> None:
    for was, now, kind in (
        ("pass", "warn", "worse"),
        ("warn", "fail", "worse"),
        ("fail", "warn", "better"),
        ("info", "pass", "better"),
        ("fail", "skip", "unknown"),
        ("skip", "warn", "new"),
        (None, "fail", "new"),
        ("fail", None, "gone"),
    ):
        before = report(found(was)) if was else report()
        after = report(found(now)) if now else report()
        assert kinds(before, after) == [(kind, "gpu.xid", "GPU 0")], (was, now)


def test_what_is_no_change() -> None:
    for was, now in (
        ("pass", "pass"),
        ("pass", "skip"),
        ("skip", "pass"),
        (None, "pass"),
        ("pass", None),
        (None, "skip"),
    ):
        before = report(found(was)) if was else report()
        after = report(found(now)) if now else report()
        assert kinds(before, after) == [], (was, now)


def test_other_figures_in_the_same_finding_are_no_change() -> None:
    assert kinds(report(found("warn", title="84 degrees")), report(found("warn", title="86 degrees"))) == []


def test_a_change_holds_the_finding_before_and_after() -> None:
    (change,) = changes(report(found("pass")), report(found("fail")))
    assert change.before is not None and change.after is not None
    assert (change.host, change.before.status, change.after.status) == ("gpu1", "pass", "fail")


def test_several_findings_about_one_subject_are_told_apart() -> None:
    two = report(found("fail", title="Xid 79"), found("warn", title="Xid 63"))
    assert kinds(two, report(found("fail", title="Xid 79"))) == [("gone", "gpu.xid", "GPU 0")]
    assert kinds(report(found("fail", title="Xid 79")), two) == [("new", "gpu.xid", "GPU 0")]


def test_a_host_that_goes_away_and_comes_back_shows_only_what_really_changed() -> None:
    first, back = (
        report(found("warn"), found("fail", "gpu.count", "")),
        report(found("fail"), found("fail", "gpu.count", "")),
    )
    (gone,) = changes(first, away())
    assert (gone.kind, gone.reason) == ("unreachable", "no route to host")
    known = remembered(first, away())
    assert kinds(known, away()) == []
    assert kinds(known, back) == [("reachable", "host.reachable", ""), ("worse", "gpu.xid", "GPU 0")]


def test_a_new_host_shows_its_trouble_as_new() -> None:
    both = Report(None, (*report().hosts, *report(found("fail"), found("pass", "gpu.count"), host="gpu2").hosts))
    assert [(change.host, change.kind) for change in changes(report(), both)] == [("gpu2", "new")]


FINDINGS = st.lists(
    st.builds(Finding, st.sampled_from(["a.b", "c.d"]), st.sampled_from(STATUSES), st.just("t"), st.sampled_from("xy")),
    max_size=6,
)


@given(FINDINGS, st.randoms())
def test_the_order_of_findings_is_no_change(findings: list[Finding], random: object) -> None:
    shuffled = list(findings)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert changes(report(*findings), report(*shuffled)) == ()


@given(FINDINGS, FINDINGS)
def test_worse_one_way_is_better_the_other_way(before: list[Finding], after: list[Finding]) -> None:
    there = [change for change in changes(report(*before), report(*after)) if change.kind in ("worse", "better")]
    back = [change for change in changes(report(*after), report(*before)) if change.kind in ("worse", "better")]
    opposite = {"worse": "better", "better": "worse"}
    assert [
        replace(change, kind=opposite[change.kind], before=change.after, after=change.before) for change in there
    ] == back  # type: ignore[arg-type]
