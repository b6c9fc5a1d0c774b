"""A browser without scripts: a cookie, links and forms."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection
from urllib.parse import urlencode

from tests.server.kit import ServedApi


@dataclass(slots=True)
class Shown:
    """A response."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def heading(self) -> str:
        """Return the text of the heading."""
        found = re.search(r"<h1>(.*?)</h1>", self.text, re.DOTALL)
        assert found is not None, self.text
        return re.sub(r"<[^>]*>", "", found[1]).strip()

    @property
    def forms(self) -> list[Form]:
        """Return the forms of the page."""
        return _parsed(self.text).forms

    @property
    def links(self) -> list[str]:
        """Return the addresses of the links."""
        return _parsed(self.text).links


@dataclass(slots=True)
class Form:
    """A form with the values it would send."""

    method: str
    action: str
    values: dict[str, str] = field(default_factory=dict)


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form":
            self.forms.append(Form(given.get("method") or "get", given.get("action") or ""))
        elif tag in ("input", "textarea", "select") and self.forms and given.get("name"):
            self.forms[-1].values[str(given["name"])] = given.get("value") or ""
        elif tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))


def _parsed(text: str) -> _Parser:
    made = _Parser()
    made.feed(text)
    return made


class Browser:
    """A browser with one session."""

    def __init__(self, served: ServedApi, key: str | None = "operator") -> None:
        """Log in with the named key; None for a browser without a session."""
        self._port = served.server.port
        self.cookie = ""
        if key is not None:
            opened = self.post("/login", {"key": served.keys[key]})
            assert opened.status == 303, opened.text

    def get(self, path: str, **headers: str) -> Shown:
        """Open a page."""
        return self._send("GET", path, None, headers)

    def post(self, path: str, values: dict[str, str], **headers: str) -> Shown:
        """Send a form."""
        headers.setdefault("Content_Type", "application/x-www-form-urlencoded")
        return self._send("POST", path, urlencode(values).encode(), headers)

    def submit(self, shown: Shown, **changed: str) -> Shown:
        """Send the form of an action as the page has it, with some fields filled in."""
        form = next(one for one in shown.forms if one.action.startswith("/do/"))
        return self.post(form.action, {**form.values, **changed})

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Shown:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent["Cookie"] = self.cookie
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        if found.get("content-encoding") == "gzip":
            raw = gzip.decompress(raw)
        if "set-cookie" in found:
            self.cookie = found["set-cookie"].partition(";")[0]
        return Shown(response.status, found, raw.decode())
