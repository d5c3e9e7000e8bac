"""`onecat bench run` on a real vLLM."""

from __future__ import annotations

import httpx
import pytest

from tests.testbed.served import Served

pytestmark = pytest.mark.engine


def test_the_shared_deployment_answers(served: Served) -> None:
    body = {"model": served.model, "max_tokens": 4, "messages": [{"role": "user", "content": "In the beginning"}]}
    for url in (served.endpoint, served.server):
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text
    assert served.log.stat().st_size > 0
