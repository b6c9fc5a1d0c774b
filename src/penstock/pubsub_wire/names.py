"""Names of Pub/Sub resources: `projects/P/topics/T`. A project is a customer of the bus."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.errors import InvalidInput

DELETED_TOPIC: Final = "_deleted-topic_"
_DELETED: Final = "_deleted_"
"""Prefix of the names that the bus gives to deleted topics."""


class ResourceName(NamedTuple):
    """A parsed name."""

    project: str
    name: str


def parse_project(text: str, field: str = "project") -> str:
    """Return the project of `projects/P`."""
    parts = text.split("/")
    if len(parts) != 2 or parts[0] != "projects" or not parts[1]:
        raise InvalidInput(field, "projects/PROJECT", text)
    return parts[1]


def parse_name(text: str, kind: str, field: str) -> ResourceName:
    """Return the parts of `projects/P/<kind>/NAME`."""
    parts = text.split("/")
    if (
        len(parts) != 4
        or parts[0] != "projects"
        or parts[2] != kind
        or not parts[1] * len(parts[3])
    ):
        raise InvalidInput(field, f"projects/PROJECT/{kind}/NAME", text)
    return ResourceName(parts[1], parts[3])


def format_name(project: str, kind: str, name: str) -> str:
    """Return the full name of a resource."""
    return f"projects/{project}/{kind}/{name}"


def format_topic(project: str, name: str) -> str:
    """Return the full name of a topic; `_deleted-topic_` for a deleted one, as in Google's API."""
    if name.startswith(_DELETED):
        return DELETED_TOPIC
    return format_name(project, "topics", name)


def split_revision(name: str) -> tuple[str, str | None]:
    """Return the name and the revision of `NAME@REVISION`."""
    plain, at, revision = name.partition("@")
    return plain, revision if at else None
