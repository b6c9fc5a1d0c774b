"""The same requests to servers on both engines; different responses fail the test."""

from __future__ import annotations

import json
from typing import Any

from tests.server.kit import Reply, ServedApi

Verdict = tuple[int, str, tuple[str, ...]]


class Pair:
    """Two servers, one over each engine."""

    def __init__(self, sqlite: ServedApi, postgres: ServedApi, *tables: str) -> None:
        """`tables` must not grow by a refusal; all tables of use cases when omitted."""
        self.sqlite, self.postgres = sqlite, postgres
        self.each = (sqlite, postgres)
        self._tables = tables
        self._counts = [served.harness.counts(*tables) for served in self.each]

    def ask(
        self, method: str, path: str, body: Any = None, *, role: str | None = "admin", **more: str
    ) -> Reply:
        """Send a request to both: equal results, no 5xx, and no change by a refusal."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        replies = []
        for place, served in enumerate(self.each):
            reply = served.by(role).call(method, path, body, dict(headers))
            assert reply.status < 500, (path, reply.body)
            counts = served.harness.counts(*self._tables)
            if reply.status >= 400:
                assert counts == self._counts[place], (path, "a refusal changed something")
            self._counts[place] = counts
            replies.append(reply)
        verdicts = [verdict(reply) for reply in replies]
        assert verdicts[0] == verdicts[1], path
        return replies[0]


def verdict(reply: Reply) -> Verdict:
    """Return the machine-readable part of a response: status, code, invalid fields."""
    if reply.headers.get("content-type", "").startswith("application/problem+json") and reply.body:
        problem = json.loads(reply.body)
        fields = tuple(one["field"] for one in problem.get("errors") or ())
        return reply.status, str(problem["code"]), fields
    return reply.status, "", ()
