"""Finds retired words in the names that the repository binds and in its prose.

Functions take a path (relative to the repository) and a text, and return uses, so that a test can
feed them a snippet. The rules are in `retired.py`; which words are retired is written in the
glossary.

A name counts where it is bound (definitions, parameters, assignments, module names, names of SQL
statements), so that names of other libraries never count. Prose is docstrings, comments, string
literals with a space, and markdown. Code in backticks is not prose.
"""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tests.tidy.files import nodes_of, walk
from tests.tidy.retired import KEPT_FIELDS, KEPT_NAMES, Rule

SCANNED = ("src/", "docs/", "tests/", "benchmarks/", "examples/", "README.md", "CHANGELOG.md")
NOT_SCANNED = (
    "tests/tidy/retired.py",
    "tests/tidy/test_words.py",
    "src/penstock/db/migrations/",  # an applied migration is stored with a checksum of its text
)
HEADING = "## Words we no longer use"

_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_CODE_SPAN = re.compile(r"(`+)[^`]+\1")
_LINK_TARGET = re.compile(r"(?<=\])\([^)\s]*\)")
_ADDRESS = re.compile(r"\b(?:https?|sqlite|postgresql)://?\S+")
_FENCE = re.compile(r"^ *(```|~~~)([a-z]*)[^\n]*\n(.*?)^ *\1 *$", re.DOTALL | re.MULTILINE)
_FENCE_COMMENT = re.compile(r"(?:^|\s)#\s.*$", re.MULTILINE)
_STATEMENT = re.compile(r"^-- (?:name|fragment): *(\w+)", re.MULTILINE)
_SQL_COMMENT = re.compile(r"--(?! *(?:name|fragment|batch|only|migration|breaking):)(.*)$")
_SQL_TEXT = re.compile(
    r"\s*(?:--.*\n\s*)*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|WITH|PRAGMA|BEGIN|SET)\s",
)

_BINDING = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arg, ast.Name, ast.Attribute,
    ast.alias, ast.ExceptHandler, ast.MatchAs, ast.MatchStar,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Text:
    """A name or a piece of prose, and where it stands."""

    line: int
    text: str
    is_name: bool


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Use:
    """One use of a retired word."""

    path: str
    line: int
    word: str
    found: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} uses the retired word {self.word!r} ({self.found})"


def glossary_words(glossary: str) -> list[str]:
    """Return the old words in the glossary's table, without the part that narrows them down.

    "slot, of a schedule" is the word "slot"; "turn, pass" are two words.
    """
    table = glossary.partition(HEADING)[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")][2:]
    words = [word.strip() for row in rows for word in row.split(",")]
    return sorted({w for w in words if not w.startswith(("of ", "in ", "as "))})


def uses(path: str, text: str, rules: Sequence[Rule]) -> list[Use]:
    """Return the retired words in one file, in order."""
    covering = [rule for rule in rules if applies(rule, path)]
    lines: dict[tuple[str, bool], list[int]] = {}  # a name or a text may occur many times
    for piece in texts(path, text):
        lines.setdefault((piece.text, piece.is_name), []).append(piece.line)
    groups = grouped(covering)
    found = {
        Use(path=path, line=line + offset, word=rule.word, found=shown)
        for (of_piece, is_name), places in lines.items()
        if not (is_name and f"{path}:{of_piece}" in KEPT_NAMES)
        for rule in candidates(groups, of_piece)
        for offset, shown in matches(rule, Text(line=1, text=of_piece, is_name=is_name))
        for line in places
    }
    return sorted(found)


def grouped(rules: Sequence[Rule]) -> dict[str, list[Rule]]:
    """Return rules by the first letters of their word."""
    groups: dict[str, list[Rule]] = {}
    for rule in rules:
        groups.setdefault(rule.word[:3].strip(), []).append(rule)
    return groups


def candidates(groups: Mapping[str, Sequence[Rule]], text: str) -> list[Rule]:
    """Return the rules whose word may occur: searching for its first letters is cheap."""
    small = text.lower()
    return [rule for start, rules in groups.items() if start in small for rule in rules]


def texts(path: str, text: str) -> Iterator[Text]:
    """Return the names and the prose of a file, by its kind."""
    if not path.startswith(SCANNED) or path.startswith(NOT_SCANNED):
        return
    kind = PurePosixPath(path).suffix
    if kind in {".py", ".sql"}:
        yield Text(line=1, text=PurePosixPath(path).stem, is_name=True)
    if kind == ".py":
        yield from _python_texts(text)
    elif kind == ".sql":
        yield from _sql_texts(text)
    elif kind == ".md":
        yield from _markdown_texts(text)


def applies(rule: Rule, path: str) -> bool:
    """Return whether a rule covers the files at a path."""
    if rule.outside and rule.outside.search(path):
        return False
    return rule.within is None or bool(rule.within.search(path))


def matches(rule: Rule, piece: Text) -> Iterator[tuple[int, str]]:
    """Return where a rule reports a piece of text: (line within the piece, what was found)."""
    if piece.is_name:
        # The name of a test is a sentence.
        pattern = rule.prose if _is_test(piece.text) else rule.names
        if pattern and pattern.search(_blanked(rule, spoken(piece.text))):
            yield 0, f"name {piece.text}"
        return
    if rule.prose is None:
        return
    prose = _blanked(rule, _without_code(piece.text))
    for match in rule.prose.finditer(prose):
        around = prose[max(0, match.start() - 30) : match.end() + 30]
        yield prose.count("\n", 0, match.start()), " ".join(around.split())


def spoken(name: str) -> str:
    """Return a name as its words in small letters: `DeadLetter_ids` is "dead letter ids"."""
    return " ".join(part.lower() for part in _PARTS.findall(name))


def _is_test(name: str) -> bool:
    return name.startswith("test_") or (name.startswith("Test") and name[4:5].isupper())


def _blanked(rule: Rule, text: str) -> str:
    """Replace what the rule allows with marks that no pattern matches, keeping every line."""
    if rule.allowed is None:
        return text
    return rule.allowed.sub(lambda match: re.sub(r"\S", "·", match.group()), text)


@functools.lru_cache(maxsize=1)
def _without_code(text: str) -> str:
    for pattern in (_CODE_SPAN, _LINK_TARGET, _ADDRESS):
        text = pattern.sub(lambda match: re.sub(r"[^\s]", "·", match.group()), text)
    return text


def _python_texts(text: str) -> Iterator[Text]:
    nodes = nodes_of(text)
    yield from _names(nodes)
    yield from _comments(text, nodes)
    inside = {
        id(part)
        for node in nodes
        if isinstance(node, ast.JoinedStr)
        for part in walk(node)
        if part is not node
    }
    for node in nodes:
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in inside:
            continue
        literal = _literal(node)
        if literal and " " in literal.strip() and not _SQL_TEXT.match(literal):
            yield Text(line=getattr(node, "lineno", 1), text=literal, is_name=False)


def _names(nodes: Sequence[ast.AST]) -> Iterator[Text]:
    """Return the names that a module binds, except names that Python defines (`__slots__`)."""
    fields = {id(target) for target in _fields(nodes)}
    for node in nodes:
        for name in _bound(node) if isinstance(node, _BINDING) else ():
            if name in KEPT_NAMES or (name in KEPT_FIELDS and id(node) in fields):
                continue
            if name.startswith("__") and name.endswith("__"):
                continue
            yield Text(line=getattr(node, "lineno", 1), text=name, is_name=True)


def _fields(nodes: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Return the targets of the annotated fields of classes."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield from (part.target for part in node.body if isinstance(part, ast.AnnAssign))


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name


def _comments(text: str, nodes: Sequence[ast.AST]) -> Iterator[Text]:
    """Return comments; comments on consecutive lines are one piece."""
    block: list[str] = []
    first = last = 0
    for line, comment in _comment_lines(text, nodes):
        if block and line != last + 1:
            yield Text(line=first, text="\n".join(block), is_name=False)
            block = []
        if not block:
            first = line
        block.append(comment.lstrip("#! "))
        last = line
    if block:
        yield Text(line=first, text="\n".join(block), is_name=False)


def _comment_lines(text: str, nodes: Sequence[ast.AST]) -> list[tuple[int, str]]:
    """Return the comments by line; reading tokens is slow, and needed only for a # in a string."""
    if "#" not in text:
        return []
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    if any("#" in str(value) for value in values):
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return [(one.start[0], one.string) for one in tokens if one.type == tokenize.COMMENT]
    lines = enumerate(text.split("\n"), 1)
    return [(number, line[line.index("#") :].rstrip()) for number, line in lines if "#" in line]


def _literal(node: ast.AST) -> str | None:
    """Return the text of a string literal; the holes of an f-string read as `x`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        return "".join(str(part) for part in parts)
    return None


def _sql_texts(text: str) -> Iterator[Text]:
    for match in _STATEMENT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Text(line=line, text=match.group(1), is_name=True)
    lines = [
        (found.group(1).strip() if (found := _SQL_COMMENT.search(line)) else "")
        for line in text.split("\n")
    ]
    yield Text(line=1, text=_paragraphs(lines), is_name=False)


def _paragraphs(lines: Sequence[str]) -> str:
    """Join lines so that a line without a comment ends the sentence before it."""
    return "\n".join(line or "·" for line in lines)


def _markdown_texts(text: str) -> Iterator[Text]:
    """Return the prose of a page, and names and comments of its code blocks."""
    prose = text
    if HEADING in text:
        before, table = text.split(HEADING, 1)
        prose = before + re.sub(r"[^\n]", "·", table.partition("\n## ")[0])
        prose += table[len(table.partition("\n## ")[0]) :]
    for fence in _FENCE.finditer(text):
        first = text.count("\n", 0, fence.start(3)) + 1
        if fence.group(2) in {"python", "py"}:
            yield from _code_block_names(fence.group(3), first)
        comments = [
            found.group().strip(" #\t") if (found := _FENCE_COMMENT.search(line)) else ""
            for line in fence.group(3).split("\n")
        ]
        yield Text(line=first, text=_paragraphs(comments), is_name=False)
    yield Text(
        line=1,
        text=_FENCE.sub(lambda match: re.sub(r"[^\n]", "·", match.group()), prose),
        is_name=False,
    )


def _code_block_names(code: str, first: int) -> Iterator[Text]:
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return  # a fragment; the tests of the documentation run the complete ones
    for name in _names(list(ast.walk(tree))):
        yield Text(line=first + name.line - 1, text=name.text, is_name=True)
