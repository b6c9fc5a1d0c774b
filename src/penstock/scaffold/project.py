"""Write a new project from a template.

Templates are folders of text files next to this module. `$name` in a file is replaced by the name
of the project; comments of commands are then aligned. Either every file is written or none: an
existing file is an error before the first write.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import NamedTuple

from penstock.core.errors import InvalidInput
from penstock.exports import DISTRIBUTION

SUFFIX = ".txt"
"""Suffix of template files, so that tools do not treat them as modules of the package."""
HIDDEN = "dot-"
"""Prefix of template files whose names begin with a dot in a project."""
TEMPLATES = {
    "daily": "a daily data pipeline: load, check, total, report",
    "schedules": "one pipeline on a separate schedule for each customer",
    "consumer": "a service that consumes messages and keeps dead letters",
}
_NAME = re.compile(r"[a-z][a-z0-9_]{1,39}")
_COMMANDS = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
_COMMENT = "  # "


class ProjectFile(NamedTuple):
    """A file of a new project."""

    path: Path
    text: str


def project_files(name: str, template: str, folder: Path) -> list[ProjectFile]:
    """Return the files of a new project, sorted by name; raise InvalidInput for a bad name or
    template.
    """
    if not _NAME.fullmatch(name):
        expected = "2 to 40 lower-case letters, digits and underscores, a letter first"
        raise InvalidInput(
            "name", expected, name, f"For example: penstock init {_suggestion(name)}"
        )
    if template not in TEMPLATES:
        raise InvalidInput("template", ", ".join(TEMPLATES), template)
    values = {"name": name, "distribution": DISTRIBUTION}
    source = resources.files(__package__).joinpath("templates", template)
    return [
        ProjectFile(
            folder / _target(entry.name),
            _align_comments(Template(entry.read_text("utf-8")).substitute(values)),
        )
        for entry in sorted(source.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(SUFFIX)
    ]


def write_project(files: list[ProjectFile]) -> None:
    """Write the files of a new project; raise an error if one of them exists."""
    existing = [file.path for file in files if file.path.exists()]
    if existing:
        names = ", ".join(path.name for path in existing)
        fix = "Choose another name or folder, or remove these files."
        raise InvalidInput("folder", f"none of the new files in {existing[0].parent}", names, fix)
    try:
        for file in files:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            file.path.write_text(file.text, "utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        folder = str(file.path.parent)
        fix = "Change to a folder that you own, or specify one with --folder."
        expected = f"a folder that this user can write to ({reason})"
        raise InvalidInput("folder", expected, folder, fix) from None


def _target(name: str) -> str:
    plain = name.removesuffix(SUFFIX)
    return "." + plain.removeprefix(HIDDEN) if plain.startswith(HIDDEN) else plain


def _align_comments(text: str) -> str:
    """Move the comments in each block of commands to one column, whatever the project's name."""

    def aligned(block: re.Match[str]) -> str:
        parts = [line.partition(_COMMENT) for line in block[0].splitlines()]
        width = max((len(command.rstrip()) for command, mark, _ in parts if mark), default=0)
        lines = [
            f"{command.rstrip():<{width}}{mark}{comment}" if mark else command
            for command, mark, comment in parts
        ]
        return "".join(f"{line}\n" for line in lines)

    return _COMMANDS.sub(aligned, text)


def _suggestion(name: str) -> str:
    """Turn an invalid name into a valid one."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:40]
    return plain if _NAME.fullmatch(plain) else "my_pipeline"
