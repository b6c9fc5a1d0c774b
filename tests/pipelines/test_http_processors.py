"""Declarations of HTTP processors: forms, options, and errors that name the mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Pipeline
from penstock.assembly.endpoints import check_endpoints
from penstock.assembly.settings import load
from penstock.core.errors import DeclarationError
from penstock.pipelines.declare.endpoint import HttpEndpoint
from penstock.pipelines.declare.pipeline import Phase

URL = "https://score.example.com/run"


def _with_body(run: Any) -> Any:
    return run.partition


def phase() -> Phase:
    return Pipeline("scores").phase("main")


def test_a_function_without_a_body_declares_a_processor() -> None:
    main = phase()

    @main.http(URL, signing_secrets=["hook", "hook_old"], reply_within="10s", timeout="1h")
    def score(run: Any) -> None:
        """Score one season."""

    (made,) = main.processors
    assert (made.name, made.runs, made.body, made.timeout_us) == (
        "score",
        "http",
        None,
        3_600_000_000,
    )
    assert made.pool == "http/scores/main/score"
    assert made.terms.endpoint == HttpEndpoint(
        url=URL, signing_secrets=("hook", "hook_old"), reply_within_us=10_000_000
    )
    assert callable(score), "the function is returned unchanged"


def test_every_form_declares_the_same() -> None:
    first, second, third = phase(), phase(), phase()
    first.http(URL, name="score")
    second.processor("score", kind="http", url=URL)

    @third.processor(kind="http", url=URL)
    def score(run: Any) -> None: ...

    definitions = [one.definition() for one in (first, second, third)]
    assert definitions[0] == definitions[1] == definitions[2]


def test_a_pipeline_without_phases_takes_an_http_processor() -> None:
    made = Pipeline("scores")
    made.processor("score", kind="http", url=URL)
    made.check()
    assert [p.path for p in made.processors] == ["scores/main/score"]


def test_a_definition_without_endpoints_is_unchanged() -> None:
    plain = Pipeline("scores")
    plain.processor("work")(_with_body)
    (processor,) = plain.definition()["phases"][0]["processors"]
    assert "endpoint" not in processor


@pytest.mark.parametrize(
    ("declare", "kind", "text"),
    [
        (lambda p: p.http("ftp://x.example.com", name="a"), DeclarationError, "url: expected http"),
        (
            lambda p: p.http("https://u:pw@x.example.com", name="a"),
            DeclarationError,
            "without user",
        ),
        (lambda p: p.http("https://x.example.com#a", name="a"), DeclarationError, "no fragment"),
        (lambda p: p.http(None, name="a"), DeclarationError, "url: expected"),
        (lambda p: p.http(URL, name="a", pool="fast"), TypeError, "'pool' is not an option"),
        (lambda p: p.http(URL, name="a", headers={}), TypeError, "reply_within"),
        (lambda p: p.http(URL)(_with_body), DeclarationError, "leave its body empty"),
        (lambda p: p.http(URL)(print), DeclarationError, "without a body"),
        (lambda p: p.processor("a", kind="http"), DeclarationError, "url: expected"),
        (lambda p: p.processor("a", url=URL), DeclarationError, "takes kind='http'"),
        (
            lambda p: p.processor("a", kind="http", url=URL, pool="x"),
            DeclarationError,
            "neither pool",
        ),
        (lambda p: p.processor(runs="http")(_with_body), DeclarationError, "@phase.http(url)"),
        (
            lambda p: p.http(URL, name="a", signing_secrets="hook"),
            DeclarationError,
            "list of names",
        ),
        (
            lambda p: p.http(URL, name="a", signing_secrets=["whsec_x"]),
            DeclarationError,
            "not their",
        ),
        (
            lambda p: p.http(URL, name="a", signing_secrets=list("abcde")),
            DeclarationError,
            "at most 4",
        ),
        (lambda p: p.http(URL, name="a", oidc="nobody"), DeclarationError, "e-mail address"),
        (
            lambda p: p.http(URL, name="a", oidc={"mail": "x"}),
            DeclarationError,
            "email and audience",
        ),
        (lambda p: p.http(URL, name="a", reply_within="2h"), DeclarationError, "at most an hour"),
        (lambda p: p.http(URL, name="a", reply_within="soon"), DeclarationError, "reply_within"),
        (lambda p: [p.http(URL, name="a"), p.http(URL, name="a")], DeclarationError, "twice"),
    ],
)
def test_a_wrong_declaration_names_the_mistake(
    declare: Callable[[Any], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as raised:
        declare(phase())
    assert text in str(raised.value)
    assert "whsec_" not in str(raised.value)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "given", "is_allowed"),
    [
        ("http://score.example.com/", {}, False),
        ("http://score.example.com/", {"PENSTOCK_EGRESS_HTTP": "allowed"}, True),
        ("https://127.0.0.1/", {}, False),
        ("https://127.0.0.1/", {"PENSTOCK_EGRESS_PRIVATE": "allowed"}, True),
        (URL, {}, True),
    ],
)
def test_a_process_refuses_urls_that_its_settings_forbid(
    url: str, given: dict[str, str], is_allowed: bool
) -> None:
    main = phase()
    main.http(url, name="score")
    if is_allowed:
        check_endpoints([main.pipeline], load(given))
        return
    with pytest.raises(DeclarationError, match=r"scores/main/score: url: .*PENSTOCK_EGRESS_"):
        check_endpoints([main.pipeline], load(given))
