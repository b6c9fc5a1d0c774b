"""Secrets: rejected as literals, accepted as references, and masked in output.

A parameter that holds a secret is a reference, ``{"$secret": "name"}``, which the worker resolves
when the run starts (`access.secrets`). All input from outside (errors, results) and all output
(logs, reads) passes through `redact`, which masks secrets by the name of their key, by pattern, and
by value once this process has resolved them. Masking is best effort: a secret that was not resolved
here and matches no pattern is not recognised. Pure, except for the registered values.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.core.errors import InvalidInput

MASK: Final = "***"
REFERENCE: Final = "$secret"
REFERENCE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
DEPTH_MAX: Final = 64
VALUE_MIN: Final = 4
LINE_MIN: Final = 16
_UNRESERVED: Final = b"-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""Bytes that URLs do not escape."""
ENCODED_MIN: Final = 8
"""Minimum length in bytes of a value whose base64 and hexadecimal forms are also masked."""

_WORDS = (
    r"passwords?|passwd|passphrases?|pwd|secrets?|token|credentials?|authorization|jwt|cookies?"
    r"|(?:api|access|private|secret|signing|encryption|account|shared|master|ssh|hmac|auth)_?keys?"
    r"|webhook_?urls?|connection_?strings?|conn_?str|dsn"
)
"""Names of secrets, or the last words of such names."""
_JOINED = r"passwords?|passwd|passphrase|pwd|secret|token"
"""Words that are also recognised at the end of a longer one: PGPASSWORD, authtoken."""
_NAME = re.compile(rf"(?:.*_)?(?:{_WORDS})|[a-z0-9]{{1,40}}(?:password|passwd|pwd)")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OURS = frozenset({"token", "fencing_token"})
"""Keys under which an integer is a fencing token, which grants no access and is not masked."""

_IN_TEXT = _WORDS.replace("_?", "[_-]?")
_PREFIX = r"(?<![a-z0-9])(?:[a-z0-9]{1,40}[_-]){0,4}"
_ASSIGNED = rf"{_PREFIX}(?:{_IN_TEXT}|[a-z0-9]{{1,40}}(?:{_JOINED}))"
_HEADED = (
    rf"{_PREFIX}(?:[a-z0-9]{{0,40}}(?:password|passwd|pwd|passphrase)"
    r"|(?:api|access|private|secret|account|auth)[_-]?key)"
    rf"|(?:[a-z0-9]{{1,40}}[_-]){{1,4}}(?:token|secret|password)"
)
"""Names that are followed by a colon and a secret, in headers and in messages of programs."""
_PROSE = (
    r"expected|got|must|may|is|was|are|has|not|no|none|null|nil|true|false|missing|required"
    r"|invalid|unknown|too|the|a|an|it|this|there|use|give|set|see|at|in|of|for|with|given|wrong"
)
"""Words that begin a sentence after a colon, instead of a secret."""
_PATTERNS: Final = (
    (re.compile(r"\bpnk_([0-9a-z]{6,13})_[0-9a-z]{8,}"), rf"pnk_\1_{MASK}"),
    (re.compile(r"\b(bearer|authorization\W{1,6}basic) +[\w.~+/=-]{8,}", re.IGNORECASE),
     rf"\1 {MASK}"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]{1,30}://[^\s:/@]{0,256}):[^\s/?#]{1,512}@", re.IGNORECASE),
     rf"\1:{MASK}@"),
    (re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?"
                r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL),
     f"-----PRIVATE KEY {MASK}-----"),
    (re.compile(r"(\bhttps?://)[^\s:/@?#]{1,512}@", re.IGNORECASE), rf"\1{MASK}@"),
    (re.compile(r"\b((?:set-)?cookie\s{0,2}:\s{0,4})(?=[!-~]{1,256}=)[^\r\n]{1,4096}",
                re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(rf"({_ASSIGNED})"
                r"=(\"[^\"]*\"|'[^']*'|[^\s,;&)}\]\"']+)", re.IGNORECASE), rf"\1={MASK}"),
    (re.compile(rf"({_ASSIGNED}"
                r"(?P<q>[\"'])\s{0,8}:\s{0,8})(?P<v>[\"']).*?(?P=v)", re.IGNORECASE),
     rf"\1\g<v>{MASK}\g<v>"),
    (re.compile(rf"((?<![a-z0-9])(?:{_HEADED})\s{{0,2}}:\s{{1,4}}|{_PREFIX}(?:{_IN_TEXT}):(?=\S))"
                rf"(?!(?:{_PROSE})\b|//)(?:\"[^\"]+\"|'[^']+'|[^\s,;&)}}\]\"'{{\[*]+)",
                re.IGNORECASE), rf"\1{MASK}"),
)  # fmt: skip
_LITERALS = (_PATTERNS[0][0], _PATTERNS[2][0], _PATTERNS[3][0], _PATTERNS[4][0])
_SIGNS = (
    "passw", "passphrase", "secret", "token", "key", "credential", "authorization", "bearer",
    "pnk_", "://", "pwd", "cookie", "jwt", "webhook", "connection", "conn_str", "connstr", "dsn",
)  # fmt: skip
"""A text that contains none of these matches no pattern; this check is ten times as fast."""


class KnownSecrets:
    """Secret values that this process has resolved; masked in all texts. Thread-safe."""

    def __init__(self) -> None:
        self._forms: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._forms)

    def add(self, value: str) -> None:
        """Mask a value from now on, plain and as encoded in JSON, Python, URLs and headers."""
        lines = [line for line in value.splitlines() if len(line) >= LINE_MIN]
        plain = {value, value.strip(), *lines}
        forms = {form for one in plain for form in (one, *_escaped(one), *_encoded(one))}
        kept = {form for form in forms if len(form) >= VALUE_MIN} | set(self._forms)
        # Longest first, so that a value that contains another one is masked as a whole.
        self._forms = tuple(sorted(kept, key=lambda form: (-len(form), form)))

    def clear(self) -> None:
        """Remove all values (for tests)."""
        self._forms = ()

    def masked(self, text: str) -> str:
        """Return the text with all registered values masked."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text


KNOWN_SECRETS: Final = KnownSecrets()
"""The secret values of this process."""


def is_secret_name(name: object) -> bool:
    """Return whether a name, or the end of it, suggests a secret: `db_password`, `apiKey`."""
    if not isinstance(name, str) or len(name) > 200:
        return False
    words = _HUMP.sub("_", name).replace("-", "_").replace(" ", "_").replace(".", "_").lower()
    return _NAME.fullmatch(words) is not None


def is_reference(value: object) -> bool:
    """Return whether a value is `{"$secret": …}`, well-formed or not."""
    return isinstance(value, Mapping) and REFERENCE in value


def check_reference(value: Mapping[str, Any], field: str) -> str:
    """Return the name in a reference. Raise InvalidInput if it is malformed."""
    name = value.get(REFERENCE)
    if len(value) != 1 or not isinstance(name, str) or not REFERENCE_NAME.fullmatch(name):
        raise InvalidInput(
            field,
            'a reference {"$secret": "name"} with a name of 1 to 63 lowercase letters, digits or _',
            "another object",
        )
    return name


def reject_literal_secrets(parameters: object, field: str = "parameters") -> None:
    """Raise InvalidInput for a literal secret, naming its location and never its value."""
    _refuse(parameters, field, is_secret=False, depth=0)


def redact(value: Any) -> Any:
    """Return a copy of a plain value with secrets masked: by key, by pattern, by value."""
    return _redact(value, is_secret=False, depth=0)


def redact_text(text: str) -> str:
    """Return the text with known secrets, and everything that looks like one, masked."""
    if KNOWN_SECRETS:
        text = KNOWN_SECRETS.masked(text)
    if not _is_suspect(text):
        return text
    for pattern, mask in _PATTERNS:
        text = pattern.sub(mask, text)
    return text


def redact_json(text: str) -> str:
    """Return the JSON text with secrets masked; a text without any is returned unchanged."""
    if not KNOWN_SECRETS and not _is_suspect(text):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return redact_text(text)
    return json.dumps(redact(value), ensure_ascii=False, separators=(",", ":"))


def _redact(value: Any, *, is_secret: bool, depth: int) -> Any:
    if depth > DEPTH_MAX:
        return MASK
    if isinstance(value, Mapping):
        if is_reference(value) and len(value) == 1:
            return dict(value)
        masked: dict[Any, Any] = {}
        for name, part in value.items():
            hidden = is_secret or (is_secret_name(name) and not _is_ours(name, part))
            shown = redact_text(name) if isinstance(name, str) else name
            if shown is not name and shown != name:
                while shown in value or shown in masked:  # keep two masked names separate
                    shown += "'"
            masked[shown] = _redact(part, is_secret=hidden, depth=depth + 1)
        return masked
    if isinstance(value, list | tuple):
        return [_redact(part, is_secret=is_secret, depth=depth + 1) for part in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if is_secret:
        return MASK
    return redact_text(value) if isinstance(value, str) else value


def _refuse(value: object, field: str, *, is_secret: bool, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidInput(field[:200], f"at most {DEPTH_MAX} levels", "more")
    if isinstance(value, Mapping):
        if is_reference(value):
            check_reference(value, field[:200])
            return
        for name, part in value.items():
            here = is_secret or is_secret_name(name)
            _refuse(part, f"{field}.{name}", is_secret=here, depth=depth + 1)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            _refuse(part, f"{field}[{index}]", is_secret=is_secret, depth=depth + 1)
    elif value is None or isinstance(value, bool) or value == "":
        return
    elif is_secret or (isinstance(value, str) and any(p.search(value) for p in _LITERALS)):
        raise InvalidInput(
            field[:200],
            "no secret in plain text",
            "a literal value (not shown)",
            'Use a reference instead, {"$secret": "name"}, and provide the value to the workers: '
            "PENSTOCK_SECRET_NAME or a file in secrets_dir.",
        )


def _escaped(value: str) -> Iterator[str]:
    """Return a value as JSON and Python escape it, including when escaped twice."""
    once = {json.dumps(value)[1:-1], repr(value)[1:-1], repr(_bytes(value))[2:-1]}
    yield from once
    for form in once:
        yield json.dumps(form)[1:-1]
        yield repr(form)[1:-1]


def _encoded(value: str) -> Iterator[str]:
    """Return a value as URLs write it, in hexadecimal, and as part of a base64 text."""
    raw = _bytes(value)
    for escape in ("%{:02X}", "%{:02x}"):
        for kept, blank in ((_UNRESERVED, "%20"), (_UNRESERVED + b"/", "%20"), (_UNRESERVED, "+")):
            parts = (chr(b) if b in kept else blank if b == 32 else escape.format(b) for b in raw)
            yield "".join(parts)
    if len(raw) < ENCODED_MIN:
        return
    yield raw.hex()
    for before in range(3):  # a header encodes user:password, so any number of bytes may precede
        # Characters that also depend on the bytes before or after the value are left out.
        first, last = (before * 8 + 5) // 6, (before + len(raw)) * 8 // 6
        for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
            yield alphabet(bytes(before) + raw).decode()[first:last]


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _is_suspect(text: str) -> bool:
    lower = text.lower()
    return any(sign in lower for sign in _SIGNS)


def _is_ours(name: object, value: object) -> bool:
    return name in _OURS and isinstance(value, int) and not isinstance(value, bool)
