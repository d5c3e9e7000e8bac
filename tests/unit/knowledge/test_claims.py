"""The claims of how-to articles: every row is whole, belongs to checks that there are, and is found."""

from __future__ import annotations

import typing

import pytest

from onecat.doctor import all_checks
from onecat.knowledge.claims import Claim, Verdict, all_claims, claims_about, find_claims


@pytest.mark.parametrize("claim", all_claims(), ids=lambda claim: claim.id)
def test_every_claim_is_whole(claim: Claim) -> None:
    assert claim.verdict in typing.get_args(Verdict)
    assert claim.claim.endswith(".") and claim.truth.endswith(".")
    assert claim.topics and all(isinstance(topic, str) and topic == topic.lower() for topic in claim.topics)
    assert claim.source and all(address.startswith("https://") for address in claim.source)
    assert set(claim.checks) <= {check.id for check in all_checks()}
    assert claim in find_claims(claim.id)
    assert all(claim in find_claims(topic) for topic in claim.topics)


def test_ids_stand_once() -> None:
    ids = [claim.id for claim in all_claims()]
    assert len(ids) == len(set(ids))


def test_claims_are_found_by_check_by_topic_and_by_a_word_in_them() -> None:
    assert "link-width-by-lspci" in {claim.id for claim in claims_about("pcie.link-width")}
    assert "selinux-off" in {claim.id for claim in find_claims("SELinux")}
    assert [claim.id for claim in find_claims("setsebool-nonsense")] == []
    assert "healthz" in {claim.id for claim in find_claims("POST")}
