"""The reference page of transports: a table of capabilities, generated from the flags."""

from __future__ import annotations

from typing import Final

from penstock.bus.transports.capabilities import TRANSPORTS, TransportCapabilities

INTRODUCTION: Final = """\
Every transport delivers at least once, under ack ids with a deadline, with nacks and their delay,
extensions, redelivery with backoff, dead letters, and policies that are declared from code and
read back. One conformance suite (`tests/bus/transports`) runs on all of them and reads these flags
before it relies on more.
"""


def transports_page(note: str) -> str:
    """Return the table of transports; `note` says how the page is generated."""
    names = [one.name for one in TRANSPORTS]
    lines = ["# Transports", "", note, "", INTRODUCTION]
    lines.append(f"| flag | {' | '.join(names)} | meaning |")
    lines.append(f"| --- | {' | '.join('---' for _ in names)} | --- |")
    for flag, meaning in TransportCapabilities.meanings().items():
        if flag == "name":
            continue
        values = " | ".join(_shown(getattr(one, flag)) for one in TRANSPORTS)
        lines.append(f"| `{flag}` | {values} | {meaning} |")
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "–" if value is None or value == "" else f"`{value}`"
