"""Secrets: recognised by name, pattern and value; rejected as literals; never quoted."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.access.api_keys import format_key
from penstock.core import redact as module
from penstock.core.errors import InvalidInput
from penstock.core.ids import new_secret
from penstock.core.redact import (
    KNOWN_SECRETS,
    MASK,
    is_secret_name,
    redact,
    redact_json,
    redact_text,
    reject_literal_secrets,
)
from penstock.pipelines.parameters import validate
from penstock.schedules.config_input import parse_config_input

CANARY = "cnry-8f3a-Zq"
KEY = format_key(7, new_secret(lambda n: bytes(range(n))))
PEM = f"-----BEGIN RSA PRIVATE KEY-----\nMII{CANARY}\nabc\n-----END RSA PRIVATE KEY-----"
NAMES = (
    "password", "db_password", "passwd", "passphrase", "secret", "client_secret", "clientSecret",
    "token", "access_token", "accessToken", "api_key", "apikey", "apiKey", "X-API-Key",
    "AWS_SECRET_ACCESS_KEY", "access_key", "private_key", "credential", "credentials",
    "Authorization", "proxy-authorization", "db.password", "secret_key", "secretKey", "pwd",
    "db_pwd", "passwords", "webhook_url", "slackWebhookUrl", "connection_string",
    "connectionString", "conn_str", "jwt", "id_jwt", "cookie", "Set-Cookie", "cookies",
    "session_cookie", "PGPASSWORD", "pgpassword", "MYSQL_PWD", "signing_key", "encryption_key",
    "account_key", "AccountKey", "shared_key", "master_key", "ssh_key", "hmac_key", "auth_key",
    "api_keys", "secrets", "dsn", "sentry_dsn",
)  # fmt: skip
PLAIN = (
    "token_count", "max_tokens", "tokens", "secret_name", "password_policy", "key", "monkey",
    "keyboard", "cookie_policy", "webhook_url_count", "connection", "passwordless", "ordering_key",
    "idempotency_key", "primary_key", "authorized", "secretary", "",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=20,
)


@pytest.fixture(autouse=True)
def _clear_registered() -> Iterator[None]:
    yield
    KNOWN_SECRETS.clear()


@pytest.mark.parametrize("name", NAMES)
def test_secret_names(name: str) -> None:
    """Texts, numbers and nested values under such a name are masked."""
    assert is_secret_name(name)
    given = {name: CANARY, "deep": [{name: {"user": CANARY, "pin": 1234}}]}
    assert redact(given) == {name: MASK, "deep": [{name: {"user": MASK, "pin": MASK}}]}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_names(name: str) -> None:
    """Values under names that only contain such a word are not masked."""
    assert not is_secret_name(name)
    assert redact({name: "value"}) == {name: "value"}
    reject_literal_secrets({name: "value"})


def test_values_that_are_not_secrets() -> None:
    """References, empty values, booleans and fencing tokens are not masked."""
    given = {
        "password": {"$secret": "db"}, "token": 17, "fencing_token": 17, "secret": None,
        "use_password": True, "api_key": "",
    }  # fmt: skip
    assert redact(given) == given


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"key {KEY}!", f"key {KEY[:12]}_{MASK}!"),
        (f"Authorization: Bearer {CANARY}", f"Authorization: Bearer {MASK}"),
        (f"authorization: basic {CANARY}", f"authorization: basic {MASK}"),
        (f"postgresql://app:{CANARY}@db/x", f"postgresql://app:{MASK}@db/x"),
        (f"postgresql://app:a@{CANARY}@db/x", f"postgresql://app:{MASK}@db/x"),
        (f"redis://:{CANARY}@cache:6379", f"redis://:{MASK}@cache:6379"),
        (f"host=db password={CANARY} user=x", f"host=db password={MASK} user=x"),
        (f"host=db password='{CANARY} b' user=x", f"host=db password={MASK} user=x"),
        (f"/x?api_key={CANARY}&n=1", f"/x?api_key={MASK}&n=1"),
        (f'{{"db_password": "{CANARY}", "n": 1}}', f'{{"db_password": "{MASK}", "n": 1}}'),
        (f"{{'token': '{CANARY}'}}", f"{{'token': '{MASK}'}}"),
        (f"x {PEM} y", f"x -----PRIVATE KEY {MASK}----- y"),
        (PEM[:60], f"-----PRIVATE KEY {MASK}-----"),
        (f"password: {CANARY}", f"password: {MASK}"),
        (f"login failed, Password: {CANARY}, host db", f"login failed, Password: {MASK}, host db"),
        (f"PGPASSWORD={CANARY} psql -h db", f"PGPASSWORD={MASK} psql -h db"),
        (f"MYSQL_PWD={CANARY}", f"MYSQL_PWD={MASK}"),
        (f"X-Api-Key: {CANARY}", f"X-Api-Key: {MASK}"),
        (f"x-auth-token: {CANARY}\nHost: x", f"x-auth-token: {MASK}\nHost: x"),
        (f"https://{CANARY}@host/path", f"https://{MASK}@host/path"),
        (f"Cookie: sid={CANARY}; b=2\nHost: x", f"Cookie: {MASK}\nHost: x"),
        (f"Set-Cookie: sid={CANARY}; Path=/", f"Set-Cookie: {MASK}"),
        (f"pwd={CANARY};", f"pwd={MASK};"),
        (f"AccountName=a;AccountKey={CANARY};", f"AccountName=a;AccountKey={MASK};"),
        (f"client_secret: '{CANARY} b'", f"client_secret: {MASK}"),
        (f"secret_key={CANARY}", f"secret_key={MASK}"),
        (f"jwt={CANARY}", f"jwt={MASK}"),
        (f'{{"webhook_url": "{CANARY}"}}', f'{{"webhook_url": "{MASK}"}}'),
        (f"password:{CANARY}", f"password:{MASK}"),
    ],
)
def test_patterns(text: str, shown: str) -> None:
    """Whatever looks like a secret is masked; the rest of the text is unchanged."""
    assert redact_text(text) == shown
    assert redact({"message": text}) == {"message": shown}


@pytest.mark.parametrize(
    "text",
    [
        "fencing_token: expected a whole number, got 5",
        "http://localhost:8080/a@b",
        "https://example.com/x?max_tokens=5",
        "the secret: there is none",
        "basic training",
        "a bearer of news",
        "no password given",
        "password: expected a text, got nothing",
        "X-Scheduler-Token: expected the configured token.",
        "parameters.db_password: expected no secret in plain text",
        "the connection was closed: try again",
        "ssh://git@github.com/a/b",
        "cookie: there is none",
        "the key: value pairs",
        "token: 5 of 7 parsed",
    ],
)
def test_innocent_texts(text: str) -> None:
    """Sentences that only mention secrets are not changed."""
    assert redact_text(text) == text


def test_registered_values_as_names() -> None:
    """A resolved value is masked where it is a name, and keep two masked names separate."""
    KNOWN_SECRETS.add(CANARY)
    KNOWN_SECRETS.add("another-value-9")
    given = {CANARY: 1, "another-value-9": 2, f"x {CANARY}": {CANARY: [3]}, "n": 4}
    shown = redact(given)
    assert shown == {MASK: 1, f"{MASK}'": 2, f"x {MASK}": {MASK: [3]}, "n": 4}
    assert CANARY not in redact_json(json.dumps(given))


def test_registered_values() -> None:
    """A value that this process has resolved is masked in every text and every escaped form."""
    value = f'{CANARY}"\n\\x'
    KNOWN_SECRETS.add(value)
    assert redact_text(f"failed with {value}.") == f"failed with {MASK}."
    assert CANARY not in redact_text(f"got {value!r}")
    assert CANARY not in redact_json(json.dumps({"echo": [value]}))
    KNOWN_SECRETS.add(f"{CANARY}-and-longer")
    assert redact_text(f"{CANARY}-and-longer") == MASK


ENCODINGS: Mapping[str, Callable[[str], str]] = {
    "query": lambda text: quote(text, safe=""),
    "path": quote,
    "form": quote_plus,
    "lowercase escapes": lambda text: re.sub("%..", lambda m: m[0].lower(), quote(text, safe="")),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "url-safe base64": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "basic": lambda text: base64.b64encode(f"ann:{text}".encode()).decode(),
    "basic, shifted": lambda text: base64.b64encode(f"anna:{text}".encode()).decode(),
    "in a document": lambda text: base64.b64encode(f"{{'p': '{text}'}}".encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "bytes": lambda text: repr(text.encode()),
    "JSON in JSON": lambda text: json.dumps(json.dumps({"p": text})),
    "a text of a text": lambda text: repr(repr(text)),
}
"""How libraries write a secret into URLs, headers and messages."""


@pytest.mark.parametrize("value", [CANARY, f'{CANARY}/ &+=%"\\é-Zq', f"ü{CANARY}?"])
@pytest.mark.parametrize("form", ENCODINGS)
def test_encoded_registered_values(form: str, value: str) -> None:
    """A resolved value is masked as URLs, headers and nested texts write it."""
    KNOWN_SECRETS.add(value)
    written = ENCODINGS[form](value)
    shown = redact_text(f"GET /x?k={written} failed")
    assert MASK in shown
    kept = shown.removeprefix("GET /x?k=").removesuffix(" failed").split(MASK)
    assert all(len(part) <= len(written) // 2 for part in kept), shown
    assert CANARY not in shown


def test_short_registered_values_are_not_searched_encoded() -> None:
    """The base64 of a few bytes would be found in texts that have nothing to do with it."""
    KNOWN_SECRETS.add("abcd")
    assert redact_text(f"{b'abcd'.hex()} YWJjZA") == "61626364 YWJjZA"


def test_long_lines_of_a_registered_value() -> None:
    """Each long line of a multi-line value is masked on its own; short values are not."""
    KNOWN_SECRETS.add(f"first\n{CANARY}{CANARY}\nlast")
    KNOWN_SECRETS.add("ab")
    assert redact_text(f"line {CANARY}{CANARY} and ab") == f"line {MASK} and ab"


@given(value=VALUES)
def test_redact_is_idempotent(value: Any) -> None:
    """Masking is idempotent and does not modify its argument."""
    before = repr(value)
    once = redact(value)
    assert redact(once) == once
    assert repr(value) == before


@given(value=VALUES, name=st.sampled_from(NAMES))
def test_nested_secrets_are_masked(value: Any, name: str) -> None:
    """A text at any depth below a secret's name is masked."""

    def planted(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: planted(inner) for key, inner in part.items()}
        if isinstance(part, list):
            return [planted(inner) for inner in part]
        return CANARY

    given = {"outer": [{name: planted(value)}]}
    assert CANARY not in json.dumps(redact(given)).replace(json.dumps({"$secret": CANARY}), "")
    with pytest.raises(InvalidInput) as caught:
        reject_literal_secrets({name: [CANARY, planted(value)]})
    assert CANARY not in str(caught.value.detail)


@given(text=st.text(max_size=300))
def test_any_text(text: str) -> None:
    """No text raises, and redaction is idempotent."""
    assert isinstance(redact_text(text), str)
    assert isinstance(redact_json(text), str)


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"password": CANARY}, "parameters.password"),
        ({"db": {"apiKey": CANARY}}, "parameters.db.apiKey"),
        ({"all": [1, {"token": CANARY}]}, "parameters.all[1].token"),
        ({"pin_secret": 1234}, "parameters.pin_secret"),
        ({"credentials": {"user": CANARY}}, "parameters.credentials.user"),
        ({"dsn": f"postgresql://u:{CANARY}@h/d"}, "parameters.dsn"),
        ({"note": KEY}, "parameters.note"),
        ({"pem": PEM}, "parameters.pem"),
    ],
)
def test_literals_are_rejected(parameters: dict[str, Any], field: str) -> None:
    """The error names the location and the fix, and never the value."""
    draft = {"pipeline_template": "p", "schedule_cron": "0 2 * * *", "parameters": parameters}
    for call in (lambda: reject_literal_secrets(parameters), lambda: parse_config_input(draft)):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.field == field
        assert '{"$secret": "name"}' in caught.value.message
        for shown in (CANARY, KEY, "1234"):
            assert shown not in f"{caught.value.message} {caught.value.detail}"


@pytest.mark.parametrize(
    "reference",
    [
        {"$secret": ""}, {"$secret": "Upper"}, {"$secret": "../x"}, {"$secret": 5},
        {"$secret": "a" * 64}, {"$secret": "ok", "more": 1}, {"$secret": "a-b"}, {"$secret": None},
    ],
)  # fmt: skip
def test_bad_references(reference: dict[str, Any]) -> None:
    """A reference has one name of lowercase letters, digits and underscores, and nothing else."""
    with pytest.raises(InvalidInput, match=r"parameters\.password"):
        reject_literal_secrets({"password": reference})


def test_references_pass_a_schema() -> None:
    """A reference is valid where the schema expects a string, and nowhere else."""
    schema = {
        "type": "object",
        "properties": {
            "password": {"type": "string", "minLength": 50},
            "days": {"type": "integer"},
        },
    }
    given = {"password": {"$secret": "db_password"}}
    reject_literal_secrets(given)
    assert validate(schema, given) == given
    with pytest.raises(InvalidInput, match=r"parameters\.days"):
        validate(schema, {"days": {"$secret": "db_password"}})


def test_depth() -> None:
    """Values nested too deeply are masked in output and rejected as input."""
    deep: Any = CANARY
    for _ in range(module.DEPTH_MAX + 5):
        deep = {"x": deep}
    assert CANARY not in json.dumps(redact(deep))
    with pytest.raises(InvalidInput, match="levels"):
        reject_literal_secrets(deep)
