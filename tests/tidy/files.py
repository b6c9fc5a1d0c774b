"""Sizes, banned calls, stray SQL and stray text: rules that keep every file like its neighbours.

Functions take a path (relative to the repository) and a text, and return faults as sentences, so
that a test can feed them an offending snippet. Words a rule forbids are spelled in pieces here,
because the rules read this file too.
"""

import ast
import functools
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MODULE_LINES_WARN = 450
MODULE_LINES_MAX = 500
TEST_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
CLASS_LINES_MAX = 250
POSITIONAL_MAX = 6
PARAMETERS_MAX = 8
USE_CASE_PARAMETERS_MAX = 17
"""Keyword parameters of a use case are the fields or filters of its request."""

_CLOCKS = {
    "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns localtime gmtime",
    "datetime.datetime": "now utcnow today",
    "datetime.date": "today",
}
_SLEEPS = {"time": "sleep", "asyncio": "sleep"}
_CHANCE = {"uuid": "uuid1 uuid4 uuid6 uuid7", "os": "urandom getrandom"}
_CHANCE_MODULES = ("random.", "secrets.")
# A generator that the caller seeds is not global, and a comparison needs no chance.
_CHANCE_ALLOWED = frozenset({"random.Random", "secrets.compare_digest"})


def _dotted(table: dict[str, str]) -> frozenset[str]:
    return frozenset(f"{base}.{name}" for base, names in table.items() for name in names.split())


CLOCK_CALLS = _dotted(_CLOCKS)
SLEEP_CALLS = _dotted(_SLEEPS)
CHANCE_CALLS = _dotted(_CHANCE)
MAY_READ_CLOCK = frozenset({"src/penstock/core/clock.py"})
MAY_DRAW_CHANCE = frozenset({"src/penstock/core/ids.py"})

SHOWN_SQL = frozenset({"src/penstock/flows/advance/messages.py"})
"""Modules that build a query for people to run; Penstock never runs it."""
_SQL_PLACE = re.compile(
    r"src/penstock/(?:db|probes|sinks|testing|.*/store)/|.*/(?:store|write|load)\.py$"
)
_OBJECTS = "TABLE|INDEX|UNIQUE|VIEW|DATABASE|SCHEMA|TRIGGER|FUNCTION|TEMP|TEMPORARY|TYPE|SEQUENCE"
_OPENING = r"^\s*(?:--[^\n]*\n\s*)*"
_SQL_CAPITALS = re.compile(
    rf"{_OPENING}(?:"
    r"SELECT\s+(?:[\d*:%?]|\w+\s*\(|.+?\sFROM\s)|INSERT\s+(?:OR\s+\w+\s+)?INTO\s|"
    r"UPDATE\s+[\w.\"]+\s+(?:AS\s+\w+\s+)?SET\s|DELETE\s+FROM\s|"
    rf"(?:CREATE|DROP|ALTER)\s+(?:OR\s+REPLACE\s+)?(?:{_OBJECTS})\b|"
    r"WITH\s+(?:RECURSIVE\s+)?\w+\s*(?:\([^)]*\)\s*)?AS\s|PRAGMA\s+\w|TRUNCATE\s+\w|"
    r"BEGIN\s+(?:IMMEDIATE|EXCLUSIVE|DEFERRED)|(?:LISTEN|NOTIFY)\s+\w|VACUUM\b)",
    re.DOTALL,
)
# In small letters more structure is asked for, because messages are written so too.
_SQL_SMALL = re.compile(
    rf"{_OPENING}(?:"
    r"select\s+(?:[\d*:%?]|\w+\s*\(|[\w.,\s]+?\sfrom\s+[\w.]+(?:\s+where\s|;?\s*$))|"
    r"insert\s+into\s+[\w.]+\s*(?:\(|values|select)|update\s+[\w.]+\s+set\s+\w+\s*=|"
    r"delete\s+from\s+[\w.]+(?:\s+where\s|;?\s*$)|pragma\s+\w+\s*[=(]|"
    r"(?:create|drop|alter)\s+(?:table|index|view|trigger)\s+\w+\s*(?:\(|on\s|as\s|;?\s*$)|"
    r"with\s+\w+\s+as\s*\()",
    re.DOTALL,
)

_MACHINE_PATH = re.compile(
    r"(?<![\w./~:}-])/(?:" + "|".join(("work", "root", "home", "farm")) + r")(?=/|[\"'`\s),;]|$)",
    re.MULTILINE,
)
_REGISTRY = re.compile(
    "|".join(
        (
            r"\bpypi\.(?:org|python\.org)",
            r"pythonhosted\.org",
            r"registry\.(?:npmjs|yarnpkg)\.",
            r"\bdeb\.debian\.org",
            "--(?:extra-)?" + "index-url",
            "file:" + "//",
        )
    )
)
_UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
_LEAVES = frozenset(
    {"ctx", "id", "attr", "name", "arg", "asname", "module", "level", "kind", "conversion",
     "simple", "is_async", "type_comment", "tag", "rest"}
)  # fmt: skip
_SKIPPED_FOLDERS = frozenset({".git", ".venv", "__pycache__", "build", "dist"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One text file of the repository."""

    path: str
    text: str


def sources_read(root: Path) -> list[Source]:
    """Return the repository's text files: tracked, or new and not ignored."""
    return list(_texts(root, _paths(root)))


def module_faults(path: str, text: str) -> dict[str, list[str]]:
    """Return the faults of a module by rule."""
    return {rule.__name__: rule(path, text) for rule in MODULE_RULES}


def size_faults(path: str, text: str) -> list[str]:
    """Return modules, functions, classes and parameter lists that are too long."""
    faults = []
    lines = len(text.splitlines())
    limit = TEST_LINES_MAX if path.startswith("tests/") else MODULE_LINES_MAX
    if lines > limit:
        faults.append(f"{path}: {lines} lines, the limit is {limit}: split it by idea")
    for node in nodes_of(text):
        if isinstance(node, ast.ClassDef) and _length(node) > CLASS_LINES_MAX:
            faults.append(_too_long(path, node, "class", CLASS_LINES_MAX))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if _length(node) > FUNCTION_LINES_MAX:
                faults.append(_too_long(path, node, "function", FUNCTION_LINES_MAX))
            faults.extend(_parameter_faults(path, node))
    return faults


def nearly_too_long(sources: list[Source]) -> list[str]:
    """Return modules past the warning line, longest first; they are not faults yet."""
    counted = [
        (len(source.text.splitlines()), source.path)
        for source in sources
        if source.path.endswith(".py") and not source.path.startswith("tests/")
    ]
    counted.sort(key=lambda item: (-item[0], item[1]))
    return [f"{path}: {lines} lines" for lines, path in counted if lines > MODULE_LINES_WARN]


def call_faults(path: str, text: str) -> list[str]:
    """Return uses of the real clock, of sleeping and of global chance.

    A mention counts as a use: passing `time.time` as an argument reads the clock just the same.
    Benchmarks may measure and wait; only the two owners may do the rest.
    """
    names = _imported_names(nodes_of(text))
    measuring = path.startswith("benchmarks/")
    faults = []
    for node in nodes_of(text):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        used = _resolved(node, names)
        if used is None:
            continue
        if used in CLOCK_CALLS | SLEEP_CALLS:
            if path not in MAY_READ_CLOCK and not measuring:
                faults.append(f"{path}:{node.lineno} uses {used}: take `now` or a Clock")
        elif _is_chance(used) and path not in MAY_DRAW_CHANCE:
            faults.append(f"{path}:{node.lineno} uses {used}: take a seeded generator")
    return sorted(set(faults))


def sql_faults(path: str, text: str) -> list[str]:
    """Return string literals that look like SQL statements outside the packages that own SQL."""
    if not path.startswith(("src/", "examples/")) or _SQL_PLACE.match(path) or path in SHOWN_SQL:
        return []
    nodes = nodes_of(text)
    passed_over = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            passed_over.update(id(part) for part in node.values)
    faults = []
    for node in nodes:
        literal = _literal(node)
        if literal is None or id(node) in passed_over:
            continue
        if _SQL_CAPITALS.match(literal) or _SQL_SMALL.match(literal):
            start = " ".join(literal.split())[:40]
            line = getattr(node, "lineno", 0)
            faults.append(f"{path}:{line} holds SQL ({start!r}): it belongs to the store")
    return faults


def docstring_faults(path: str, text: str) -> list[str]:
    """Return modules of the package that do not open with a docstring."""
    module = nodes_of(text)[0]
    assert isinstance(module, ast.Module)
    if path.startswith("src/") and not ast.get_docstring(module):
        return [f"{path}: a module opens with what it is for, what it never does, who calls it"]
    return []


MODULE_RULES = (size_faults, call_faults, sql_faults, docstring_faults)


def text_faults(path: str, text: str) -> list[str]:
    """Return machine paths, registry addresses and unfinished business, in any kind of file."""
    faults = []
    for pattern, advice in (
        (_MACHINE_PATH, "names a path of one machine: use a relative path or a setting"),
        (_REGISTRY, "names a package registry: that is the user's configuration"),
        (_UNFINISHED, "leaves something unfinished: open an issue instead"),
    ):
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            faults.append(f"{path}:{line} {advice} ({match.group()!r})")
    return faults


def title_faults(path: str, text: str) -> list[str]:
    """Return markdown files without exactly one title, or with something before it."""
    outside = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^# .+$", outside, flags=re.MULTILINE)
    if len(titles) != 1:
        return [f"{path}: {len(titles)} titles, one expected"]
    first = next(line for line in outside.splitlines() if line.startswith("#"))
    return [] if first == titles[0] else [f"{path}: the title is not the first heading"]


def _paths(root: Path) -> list[str]:
    """Ask git; without git (an unpacked archive, another owner) walk the folders."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        return sorted(set(listing.stdout.split("\0")) - {""})
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in found if not _is_skipped(path))


def _is_skipped(path: Path) -> bool:
    return any(part in _SKIPPED_FOLDERS or part.endswith("_cache") for part in path.parts)


def _texts(root: Path, paths: list[str]) -> Iterator[Source]:
    for path in paths:
        try:
            yield Source(path=path, text=(root / path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # an image, or a file deleted but not yet committed


@functools.lru_cache(maxsize=1)
def nodes_of(text: str) -> list[ast.AST]:
    """Return the nodes of a module, its root first. One module is kept: the rules share a walk."""
    return walk(ast.parse(text))


def walk(root: ast.AST) -> list[ast.AST]:
    """Return what `ast.walk` yields, without the contexts of names, in a third of its time."""
    found = [root]
    for node in found:
        for field in _branches(type(node)):
            value = getattr(node, field, None)
            if isinstance(value, ast.AST):
                found.append(value)
            elif value:
                found.extend([one for one in value if isinstance(one, ast.AST)])
    return found


def _branches(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the fields of a kind of node that hold nodes."""
    known = _BRANCHES.get(kind)
    if known is None:
        is_value = kind in (ast.Constant, ast.MatchSingleton)
        fields = () if is_value else kind._fields
        known = _BRANCHES[kind] = tuple(field for field in fields if field not in _LEAVES)
    return known


_BRANCHES: dict[type[ast.AST], tuple[str, ...]] = {}


def _length(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _too_long(
    path: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, kind: str, limit: int
) -> str:
    return f"{path}:{node.lineno} {kind} {node.name} has {_length(node)} lines, limit {limit}"


def _parameter_faults(path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if path.startswith("tests/"):
        return  # fixtures are parameters there
    most = USE_CASE_PARAMETERS_MAX if "/client" in path else PARAMETERS_MAX
    positional = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
    if positional[:1] in (["self"], ["cls"]):
        positional = positional[1:]
    total = len(positional) + len(node.args.kwonlyargs)
    if len(positional) > POSITIONAL_MAX or total > most:
        yield (
            f"{path}:{node.lineno} {node.name} takes {total} parameters ({len(positional)} by "
            f"position), limit {most} ({POSITIONAL_MAX}): use a frozen options record"
        )


def _imported_names(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return local name → dotted origin, for every import anywhere in the module."""
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _resolved(node: ast.Attribute | ast.Name, names: dict[str, str]) -> str | None:
    """Return the dotted origin of a name or attribute chain that starts at an import."""
    parts: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.Attribute):
        parts.append(current.attr)
        current = current.value
    if not isinstance(current, ast.Name) or current.id not in names:
        return None
    return ".".join([names[current.id], *reversed(parts)])


def _is_chance(used: str) -> bool:
    if used in CHANCE_CALLS:
        return True
    if not used.startswith(_CHANCE_MODULES):
        return False
    return ".".join(used.split(".")[:2]) not in _CHANCE_ALLOWED


def _literal(node: ast.AST) -> str | None:
    """Return the text of a string literal; the holes of an f-string read as `x`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        return "".join(str(part) for part in parts)
    return None
