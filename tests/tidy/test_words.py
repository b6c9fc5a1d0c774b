"""No retired word is in use; every rule is proved on examples that it must and must not report."""

from pathlib import Path

import pytest

from tests.tidy import retired, words
from tests.tidy.retired import Rule

ROOT = Path(__file__).parents[2]
GLOSSARY = "docs/reference/glossary.md"


def example_uses(rule: Rule, example: str) -> list[tuple[int, str]]:
    """Apply one rule to one example: without a space it is a name, otherwise prose."""
    piece = words.Text(line=1, text=example, is_name=" " not in example)
    return [
        use
        for chosen in words.candidates(words.grouped([rule]), example)
        for use in words.matches(chosen, piece)
    ]


def word_of(rule: Rule) -> str:
    return rule.word


class TestRepository:
    """The rules, applied to the repository."""

    def test_the_glossary_and_the_rules_agree(self) -> None:
        """Every old word of the glossary has a rule, and every rule a row."""
        glossary = (ROOT / GLOSSARY).read_text(encoding="utf-8")
        assert words.glossary_words(glossary) == sorted({r.word for r in retired.NAMES_OF_THINGS})

    def test_every_kept_name_has_a_reason(self) -> None:
        """An exemption says why, and is needed."""
        for key, reason in (*retired.KEPT_NAMES.items(), *retired.KEPT_FIELDS.items()):
            assert reason, key
            path, _, name = key.rpartition(":")
            rules = [rule for rule in retired.RULES if not path or words.applies(rule, path)]
            assert any(example_uses(rule, name) for rule in rules), key


class TestRules:
    """Each rule, on its own examples."""

    @pytest.mark.parametrize("rule", retired.RULES, ids=word_of)
    def test_reported(self, rule: Rule) -> None:
        """The examples of the retired meaning are reported."""
        assert rule.reported
        assert [e for e in rule.reported if not example_uses(rule, e)] == []

    @pytest.mark.parametrize("rule", retired.RULES, ids=word_of)
    def test_innocent(self, rule: Rule) -> None:
        """The examples of ordinary use are not reported."""
        assert [e for e in rule.innocent if example_uses(rule, e)] == []

    def test_paths(self) -> None:
        """A rule with paths applies to those paths only."""
        of_round = next(rule for rule in retired.RULES if rule.word == "round")
        of_wall = next(rule for rule in retired.RULES if rule.word == "wall")
        assert words.applies(of_round, "src/penstock/bus/store/replay.py")
        assert not words.applies(of_round, "benchmarks/queue.py")
        assert words.applies(of_wall, "tests/tenancy/test_cases.py")
        assert not words.applies(of_wall, "src/penstock/schedules/cron/search.py")


class TestTexts:
    """Names and prose are found in every kind of file, and nothing else is."""

    @pytest.mark.parametrize(
        "code",
        [
            "def nudge(): ...",
            "async def nudge(): ...",
            "class Nudge: ...",
            "class NudgeRow: ...",
            "nudge = 1",
            "nudge: int = 1",
            "self.last_nudge = 1",
            "(a, nudge) = b",
            "for nudge in b: ...",
            "with a as nudge: ...",
            "if (nudge := 1): ...",
            "x = [1 for nudge in b]",
            "def f(nudge): ...",
            "def f(*, nudge=1): ...",
            "f = lambda nudge: 1",
            "import a as nudge",
            "from a import b as nudge",
            "try: ...\nexcept E as nudge: ...",
            "match a:\n    case [nudge]: ...",
            "match a:\n    case [*nudge]: ...",
            "NUDGES = 1",
        ],
    )
    def test_bound_names(self, code: str) -> None:
        """Every way to bind a name counts, once."""
        assert [use.word for use in words.uses("src/a.py", code, retired.RULES)] == ["nudge"]

    @pytest.mark.parametrize(
        "code",
        [
            "a.nudge()",
            "f(nudge=1)",
            "from a import nudge",
            "x = nudge",
            "x = 'nudge'",
            "x = {'nudge': 1}",
            "x = 'SELECT nudge FROM flows'",
            "f'{nudge} {b}'",
            '"""See `nudge` and ``a nudge`` there."""',
        ],
    )
    def test_used_names_and_values(self, code: str) -> None:
        """A name that is only used, a value without a space, SQL and code in backticks do not."""
        assert words.uses("src/a.py", code, retired.RULES) == []

    @pytest.mark.parametrize(
        ("path", "text", "line"),
        [
            ("src/a.py", '"""Takes a nudge."""', 1),
            ("src/a.py", '"""First.\n\nTakes a nudge.\n"""', 3),
            ("src/a.py", "x = 1\n# Takes a nudge.", 2),
            ("src/a.py", "x = 1  # takes a nudge", 1),
            ("src/a.py", "x = 'takes a nudge'", 1),
            ("src/a.py", "x = f'takes {n} nudges'", 1),
            ("src/nudge.py", "", 1),
            ("src/a.sql", "-- name: nudge_take\nSELECT 1;", 1),
            ("src/a.sql", "SELECT 1;\n-- fragment: nudges\n", 2),
            ("src/a.sql", "SELECT 1;\n-- Takes a nudge.\n", 2),
            ("docs/a.md", "# A\n\nTakes a nudge.\n", 3),
            ("docs/a.md", "```python\nx = 1\nnudge = 1\n```\n", 3),
            ("docs/a.md", "```console\nx  # takes a nudge\n```\n", 2),
            ("README.md", "A nudge.", 1),
        ],
    )
    def test_prose(self, path: str, text: str, line: int) -> None:
        """Docstrings, comments, messages, names of files and statements, and markdown count."""
        found = words.uses(path, text, retired.RULES)
        assert [(use.word, use.line) for use in found] == [("nudge", line)]

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("src/a.sql", "SELECT nudge FROM nudges;"),
            ("docs/a.md", "See `nudge` and [the list](nudge.md#nudge)."),
            ("docs/a.md", "```console\npenstock nudge\n```\n"),
            ("docs/reference/glossary.md", f"# G\n\n{words.HEADING}\n\n| nudge | flow event |\n"),
            ("src/penstock/db/migrations/0001_a.sql", "-- Takes a nudge."),
            ("tests/tidy/retired.py", "nudge = 1"),
            ("LICENSE", "A nudge."),
            ("requirements.lock", "nudge==1"),
        ],
    )
    def test_not_read(self, path: str, text: str) -> None:
        """Columns, code, links, the table itself, migrations and other files do not count."""
        assert words.uses(path, text, retired.RULES) == []

    def test_kept_fields(self) -> None:
        """A kept field may be annotated in a class; another binding of its name counts."""
        field = "class A:\n    slot_from: int\n    __slots__ = ()"
        assert words.uses("src/penstock/schedules/a.py", field, retired.RULES) == []
        for code in ("slot_from: int = 1", "class A:\n    slot_from = 1", "def f(slot_from): ..."):
            assert words.uses("src/penstock/schedules/a.py", code, retired.RULES)

    def test_names_of_tests_are_sentences(self) -> None:
        """The patterns for prose apply to them, so that an ordinary verb is not reported."""
        assert (
            words.uses("tests/a.py", "def test_stuck_tells_its_story(): ...", retired.RULES) == []
        )
        assert words.uses("tests/a.py", "def tell_story(): ...", retired.RULES)
        assert words.uses("tests/a.py", "def test_nobody_starves(): ...", retired.RULES)

    def test_phrases_across_lines(self) -> None:
        """A phrase counts when the line breaks inside of it, in comments and in docstrings."""
        assert words.uses("src/a.py", '"""It is\n    told once."""', retired.RULES)
        assert words.uses("src/a.py", "# It is\n# told once.", retired.RULES)

    def test_the_report(self) -> None:
        """A use names the file, the line, the word and what was found."""
        (use,) = words.uses("src/a.py", "x = 1\nnudge = 1", retired.RULES)
        assert str(use) == "src/a.py:2 uses the retired word 'nudge' (name nudge)"


def test_glossary_words() -> None:
    """The old words are read from the table; what narrows them down is left out."""
    glossary = (
        f"# G\n\n| term | meaning |\n| --- | --- |\n| run | One. |\n\n{words.HEADING}\n\nText.\n\n"
        "| old | new |\n| --- | --- |\n| slot, of a schedule | occurrence |\n"
        "| turn, pass | rank |\n\n## More\n\n| a | b |\n"
    )
    assert words.glossary_words(glossary) == ["pass", "slot", "turn"]


@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("dead_letter_ids", "dead letter ids"),
        ("DeadLetterIDs", "dead letter i ds"),
        ("HTTPResponse", "http response"),
        ("_Lane2", "lane 2"),
        ("URGENT_AFTER", "urgent after"),
    ],
)
def test_spoken(name: str, spoken: str) -> None:
    """Names are split at underscores and capitals."""
    assert words.spoken(name) == spoken
