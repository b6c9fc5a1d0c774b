"""References in prose: modules, files and names that docstrings, comments and documents mention.

Every function takes the repository as a mapping of path to text and returns faults as sentences, so
that a test can feed it a small repository. A reference is one of:

    penstock.runs.store     a dotted name that starts with the package
    runs/store/finish.py    a path with a folder, from the root, the package or its own folder
    `runs.states`           a module or a name in it, without the package's name
    `run_end_many`          a name in backticks, in docstrings, comments and SQL comments
"""

import ast
import builtins
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from posixpath import dirname, join, normpath
from typing import NamedTuple

from tests.tidy.files import nodes_of

Repository = Mapping[str, str]

PACKAGE = "src/penstock/"
CODE = ("src/", "tests/", "benchmarks/", "examples/")
FOLDERS = ("sql/",)
"""Folders that every subject has: a pattern below them names no particular file."""
HISTORY = ("CHANGELOG.md", "docs/benchmarks.md")
"""Documents that describe earlier versions."""
NOT_MODULES = frozenset(
    {
        "alerts",
        "customer",
        "dependency",
        "env",
        "example",
        "orchestration",
        "run",
        "seal",
        "slo",
        "toml",
        "db",
        "rules",
    }
)
"""What follows `penstock.` in file names, topics, settings of PostgreSQL, and hosts."""
OBJECTS = {
    "client": PACKAGE + "client.py",
    "store": PACKAGE + "db/store.py",
    "bus": PACKAGE + "bus/transports/protocol.py",
}
"""Variables that prose names like modules: what follows the dot is an attribute of theirs."""
OLD_PACKAGES = frozenset({"config", "core", "engine", "events", "http", "store", "client"})
"""Packages of the first layout: a reference to one of their modules is stale, not a variable."""
OTHER_LIBRARIES = frozenset({"http.client", "include_router"})
EXAMPLE_NAMES = frozenset({"DeadLetter_ids"})
EXAMPLES = frozenset({"db/migrations/NNNN_name.sql", "path/to/file.py", "penstock/runs/a.py"})
"""Paths that show a form."""

_DOTTED = re.compile(r"\bpenstock(?:\.[A-Za-z_]\w*)+")
_PATH = re.compile(r"(?<![\w./:*-])(?:\.\./)*[\w*-][\w.*-]*(?:/[\w.*-]+)+\.(?:py|sql|md|toml)\b")
_FOLDER = re.compile(
    r"(?<![\w./*{<-])(?:src|tests|benchmarks|examples|docs)(?:/[\w-]+)+(?:\.\w+)?(?![\w/*{<])"
)
_TICKED = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\(\))?")
_MODULE = re.compile(r"([a-z_]\w*)((?:[./][A-Za-z_]\w*)+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"(?:^|\s)#\s.*$")
_SQL_MARK = re.compile(r"-- (?:name|fragment|batch):")


@dataclass(frozen=True, slots=True)
class Prose:
    """A docstring, comment or document: what people read and no tool resolves."""

    path: str
    line: int
    text: str

    def at(self, position: int) -> str:
        """Return `path:line` of a position in the text."""
        return f"{self.path}:{self.line + self.text.count(chr(10), 0, position)}"


class Docstring(NamedTuple):
    """A string that stands alone: its lines and its text."""

    first: int
    last: int
    text: str


@functools.cache
def prose_of(path: str, text: str) -> tuple[Prose, ...]:
    """Return the prose of a file."""
    return tuple(_prose(path, text))


def _prose(path: str, text: str) -> Iterator[Prose]:
    if path.endswith(".md"):
        yield Prose(path, 1, text)
    elif path.endswith(".sql"):
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("--") and not _SQL_MARK.match(line):
                yield Prose(path, number, line)
    elif path.endswith(".py"):
        for string in docstrings(text):
            yield Prose(path, string.first, string.text)
        for number, line in enumerate(text.splitlines(), 1):
            if "#" in line and (comment := _COMMENT.search(line)):
                yield Prose(path, number, comment[0])


def dotted_faults(repository: Repository) -> list[str]:
    """Return dotted names below `penstock` that are neither modules nor names in one."""
    return [
        f"{prose.at(match.start())} names {match.group()}, which does not exist"
        for prose in _all_prose(repository)
        for match in _DOTTED.finditer(prose.text)
        if match.group().split(".")[1] not in NOT_MODULES
        and not _resolves(repository, match.group().split(".")[1:])
    ]


def path_faults(repository: Repository) -> list[str]:
    """Return paths with a folder that name no file of the repository."""
    faults = []
    for prose in _all_prose(repository):
        for match in _PATH.finditer(prose.text):
            bases = ("", PACKAGE, dirname(prose.path))
            wanted = [normpath(join(base, match.group())) for base in bases]
            if match.group() in EXAMPLES or match.group().startswith(FOLDERS):
                continue
            if not any(_exists(repository, path) for path in wanted):
                faults.append(f"{prose.at(match.start())} names {match.group()}: no such file")
    return faults


def folder_faults(repository: Repository) -> list[str]:
    """Return paths from the root, to a file or a folder, that do not exist."""
    folders = {path[:end] for path in repository for end in _ends(path)}
    return [
        f"{prose.at(match.start())} names {match.group()}: no such file or folder"
        for prose in (*_all_prose(repository), Prose("Makefile", 1, repository.get("Makefile", "")))
        for match in _FOLDER.finditer(prose.text)
        if match.group() not in folders and f"{match.group()}.py" not in repository
    ]


def module_faults(repository: Repository) -> list[str]:
    """Return names in backticks such as `runs.states` or `flows/advance` that do not resolve."""
    packages = {path.removeprefix(PACKAGE).split("/")[0] for path in _modules(repository)}
    literals = {
        literal
        for path in _modules(repository)
        for literal in re.findall(r'"[\w.]+"', repository[path])
    }
    faults = []
    for prose in _all_prose(repository):
        for match in _TICKED.finditer(prose.text):
            module = _MODULE.fullmatch(match[1])
            if module is None or module[1] not in packages | OLD_PACKAGES:
                continue
            if match[1] in OTHER_LIBRARIES or match[1].endswith(
                (".py", ".sql", ".mjs", ".sh", ".env")
            ):
                continue  # `path_faults` checks files
            if f'"{match[1]}"' in literals:
                continue  # an error code or another value that code spells the same way
            parts = re.split(r"[./]", match[1])
            known = OBJECTS.get(parts[0]) if module[2].startswith(".") else None
            if known and parts[1] in _WORD.findall(repository.get(known, "")):
                continue
            if not (_resolves(repository, parts) or _is_use_case(repository, parts)):
                faults.append(f"{prose.at(match.start())} names `{match[1]}`: no such module")
    return faults


def name_faults(repository: Repository) -> list[str]:
    """Return names in backticks, in code and SQL, that occur nowhere in code or SQL."""
    known = {*dir(builtins), *OTHER_LIBRARIES, *EXAMPLE_NAMES}
    for path, text in repository.items():
        known |= words_of(path, text)
    return [
        f"{prose.at(match.start())} names `{match[1]}`, which no code does"
        for prose in _all_prose(repository)
        if not prose.path.endswith(".md")
        for match in _TICKED.finditer(prose.text)
        if _NAME.fullmatch(match[1]) and match[1].removesuffix("()") not in known
    ]


RULES = (dotted_faults, path_faults, folder_faults, module_faults, name_faults)


@functools.cache
def words_of(path: str, text: str) -> set[str]:
    """Return the words of a file outside its prose: names, literals, SQL, parts of its path."""
    words = set(_WORD.findall(path))
    if path.endswith(".sql"):
        for line in text.splitlines():
            if not line.lstrip().startswith("--") or _SQL_MARK.match(line):
                words.update(_WORD.findall(line))
    elif path.endswith(".py"):
        lines = [_COMMENT.sub("", line) if "#" in line else line for line in text.splitlines()]
        for string in docstrings(text):
            lines[string.first - 1 : string.last] = [""] * (string.last - string.first + 1)
        words.update(_WORD.findall("\n".join(lines)))
    elif path.endswith((".toml", "Makefile", ".json")):
        words.update(_WORD.findall(text))
    return words


def _all_prose(repository: Repository) -> Iterator[Prose]:
    for path, text in repository.items():
        if path not in HISTORY and (path.startswith(CODE) or path.endswith(".md")):
            yield from prose_of(path, text)


def _ends(path: str) -> list[int]:
    """Return where a path and each of its folders end."""
    return [*(match.start() for match in re.finditer("/", path)), len(path)]


@functools.cache
def docstrings(text: str) -> tuple[Docstring, ...]:
    """Return every string that stands alone, as docstrings of modules to attributes do."""
    return tuple(
        Docstring(node.value.lineno, node.value.end_lineno or node.value.lineno, node.value.value)
        for node in nodes_of(text)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _modules(repository: Repository) -> list[str]:
    return [p for p in repository if p.startswith(PACKAGE) and p.endswith(".py")]


def _resolves(repository: Repository, parts: list[str]) -> bool:
    """Return whether parts lead to a module below the package, or to a name in it."""
    for length in range(len(parts), -1, -1):
        stem = "/".join(parts[:length])
        folder = f"{PACKAGE}{stem}/" if stem else PACKAGE
        for path in (f"{PACKAGE}{stem}.py", f"{folder}__init__.py"):
            if path in repository:
                rest = parts[length:]
                return not rest or rest[0] in words_of(path, repository[path])
        if length and any(path.startswith(folder) for path in repository):
            return length == len(parts)
    return False


def _is_use_case(repository: Repository, parts: list[str]) -> bool:
    """Return whether parts are a use case of a subject, as in `flows.trigger` of a client."""
    folder = f"{PACKAGE}{parts[0]}/client"
    return any(
        parts[1] in words_of(path, text)
        for path, text in repository.items()
        if path.startswith(folder)
    )


def _exists(repository: Repository, path: str) -> bool:
    if "*" in path:
        return any(fnmatch(known, path) for known in repository)
    return path in repository
