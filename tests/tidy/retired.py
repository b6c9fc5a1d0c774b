"""The rules for retired words: where each counts as retired, and where it is ordinary English.

A rule has patterns and examples that prove them. In a pattern a space stands for any run of
spaces, hyphens or line breaks. An example without a space is a name; all others are prose. Names
are matched as words in small letters (`DeadLetter_ids` is "dead letter ids").
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

Pattern = re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Where one retired word counts; the word is spelled as in the glossary.

    `names` and `prose` are reported, except inside of what `allowed` matches. `within` restricts
    the rule to paths that it matches; `outside` exempts paths.
    """

    word: str
    reported: tuple[str, ...]
    innocent: tuple[str, ...] = ()
    names: Pattern | None
    prose: Pattern | None
    allowed: Pattern | None
    within: Pattern | None
    outside: Pattern | None


KEPT_NAMES: Mapping[str, str] = {
    "__slots__": "Python's own name",
}
"""Names that stay although a rule reports them, each with the reason. A path restricts the
exemption to one file.
"""

_JSON = "a field of the API or of stored JSON"
_COLUMN = "a column of the ledger, and a field of the API"
_SETTING = "a setting"
KEPT_FIELDS: Mapping[str, str] = {
    "last_beat_at": _JSON,
    "looked_at": _JSON,
    "next_look_at": _JSON,
    "next_slot_at": _JSON,
    "pulse": _JSON,
    "round": _JSON,
    "session_beat": _SETTING,
    "slot_from": _COLUMN,
    "slot_to": _COLUMN,
    "slots": _COLUMN,
    "worker_slots": _SETTING,
}
"""Names that stay as annotated fields of a class, and only there, each with the reason."""


def _pattern(text: str | None) -> Pattern | None:
    if text is None:
        return None
    return re.compile(rf"(?<![\w·])(?:{text})(?![\w·])".replace(" ", r"[\s-]+"), re.IGNORECASE)


def _rule(
    word: str,
    both: str | None = None,
    *,
    names: str | None = None,
    prose: str | None = None,
    allowed: str | None = None,
    within: str | None = None,
    outside: str | None = None,
    reported: tuple[str, ...],
    innocent: tuple[str, ...] = (),
) -> Rule:
    return Rule(
        word=word,
        reported=reported,
        innocent=innocent,
        names=_pattern(names or both),
        prose=_pattern(prose or both),
        allowed=_pattern(allowed),
        within=re.compile(within) if within else None,
        outside=re.compile(outside) if outside else None,
    )


def _subjects(names: str, folders: str = "src/penstock|tests") -> str:
    """Return a pattern for the paths of some subjects."""
    return rf"^(?:{folders})/(?:{names})(?:/|\.py$)"


def _plain(word: str, forms: str | None = None) -> Rule:
    """A word without an ordinary use in this repository: every form counts."""
    return _rule(
        word,
        forms or rf"{word}s?",
        reported=(word, f"the {word} of it", f"some_{word}"),
        innocent=(f"x{word}x",),
    )


NAMES_OF_THINGS = (
    _rule(
        "slot",
        names=("(?:run|next|first|worker|scheduled|missed) slots?(?: at)?|slot (?:from|to|before)"),
        prose=(
            "(?:schedules?|schedule's|scheduled|missed|due|config's|worker's|workers'|thread|"
            "admission|push) slots?|slots? of (?:a|the|its) (?:schedule|config|worker|pusher)|"
            "past a slot|with slots around"
        ),
        reported=("run_slot", "slot_from", "worker_slots", "a missed slot", "slots of a worker"),
        innocent=("held_slot", "SlotLost", "A limit's slots are shared.", "a worker's free slot"),
    ),
    _rule(
        "slot",
        "slots?",
        allowed=(
            "(?:limits?|limit's|held|rate|free|requested) slots?|"
            "slots? (?:lost|taken|request|requests)|"
            "slots? of (?:a|the|its|every|their) limits?"
        ),
        within=(
            _subjects("schedules|worker|bus|server/overload")
            + "|^tests/server/test_(?:admission|overload|load)|^benchmarks/(?:history|schedule)"
        ),
        reported=("slots", "slot", "one slot per thread"),
        innocent=("SlotLost", "requested_slots", "returns the slots of its limits"),
    ),
    _rule(
        "turn",
        names="turns?",
        prose=(
            r"(?:a|the|its|their|last|next|virtual|own|each|have|of|claimed) turns?|\*\*turns?|"
            "turns? (?:per|claimed|of their own)|turn's"
        ),
        allowed="turns? (?:away|into|on|off|out|around)|(?:in|by) turns?",
        reported=("turn", "last_turn", "a turn per customer", "it is its turn to try"),
        innocent=("turns_away", "in_turn", "The service that turns due configs into runs."),
    ),
    _rule(
        "pass",
        names="fair pass|passes max|(?:limit|grant|virtual) pass(?:es)?",
        prose="(?:fair|virtual|customer's) pass(?:es)?",
        reported=("fair_pass", "PASSES_MAX", "the customer's pass"),
        innocent=("pass_seconds", "passed", "one pass of the sweeper", "Pass a value."),
    ),
    _plain("seat"),
    _rule(
        "place",
        names="places?|has free place",
        prose=(
            "free places?|(?:its|their|takes?|gives?|loses?) places? in|"
            "places? in (?:the )?(?:line|queue)"
        ),
        allowed="in (?:its |their )?places?|places? of",
        within=_subjects("limits|runs|server/overload|flows|worker") + "|^docs/",
        reported=("place", "has_free_place", "gives places in line", "a free place"),
        innocent=("in_place", "place_of", "The limit retries in place.", "in exactly one place"),
    ),
    _rule(
        "round",
        names="rounds?",
        prose=(
            "(?:new|this|that|each|every|per|last|later|earlier|message,|where a|which) rounds?|"
            "(?:all|full) rounds?"
        ),
        allowed=(
            "round (?:trips?|robin|to|down|up|off|function|keys?|numbers?)|"
            "(?:heal|recovery|benchmark) rounds?"
        ),
        within=_subjects("bus|dead_letters|consumer|limits") + "|^docs/(?!benchmarks)",
        reported=("round", "round_of", "counted in each round", "once per round", "a full round"),
        innocent=("test_round_trip", "HEAL_ROUNDS", "a round trip", "median of three rounds"),
    ),
    _rule(
        "line",
        names="lines?",
        allowed=(
            "(?:first|last|one|status|request|header|log|command|text|json|feed|raw|this|next|"
            "long|story|start) lines?|lines? (?:no|numbers?|lengths?|max|min|per|seconds|before|at)"
        ),
        within=_subjects("limits|runs|worker") + "|^tests/(?:interleaving|remote)/",
        outside=r"/(?:test_)?cli\b",
        reported=("line", "lines", "_line", "LineRow"),
        innocent=("first_line", "command_line", "log_lines"),
    ),
    _rule(
        "line",
        names="line",  # the plural is header lines there
        allowed="(?:status|request|header) line",
        within="/overload/",
        reported=("line", "_line", "line_length"),
        innocent=("lines", "status_line"),
    ),
    _rule(
        "line",
        prose=(
            "(?:stands?|standing|waits?|waiting|places?|goes|went|runs|next|first|is|not) in "
            "(?:(?:the|one|a|this|that|its|all its|their|each) )?lines?(?! with| of text| \\d)|"
            "in line (?:yet|for|before|behind|until)|lines? of waiting|lines? with room|"
            "lines? (?:full|of (?:runs|tickets|requests))|form one line|in a line: level|"
            "goes from a line|overtaken in a line"
        ),
        allowed="in line with|(?:next|first|last) in line \\d",
        reported=(
            "A run stands in line.",
            "places in line",
            "the line full",
            "lines of waiting runs",
        ),
        innocent=(
            "One outcome per line.",
            "the error is in line 3",
            "in line with",
            "command line",
        ),
    ),
    _rule(
        "look",
        names="look(?:s|ed|ing)?",
        prose=(
            r"(?:a|the|due|fresh|one|next|first|last|each|every|no|new|these|those) looks?|"
            r"looks?(?= that must)|look(?:s|ed|ing)? (?:again|once)|give back, leave, look|"
            r"look(?:s|ed|ing)? (?:in)?(?:at|to) (?:it|them|(?:the |your )?data|"
            r"(?:a |the )?(?:tables?|dependenc\w+|gates?)|every line|DuckDB)|"
            r"(?:gates?|probes?|probers?|orchestrator|somebody|nobody) (?:that )?looks?"
        ),
        allowed=(
            "look(?:s|ed|ing)? (?:\\w+ ){0,4}up|look(?:s|ed|ing)? "
            "(?:like|for|ahead|alike|unrelated|right|as|different)|look backs?|"
            "(?:take|have) a look|looks? (?:up|like)"
        ),
        reported=(
            "look",
            "looked_at",
            "next_look_at",
            "the due looks",
            "A gate looks at the table.",
        ),
        innocent=("look_up", "look_back", "Look a key up in the database.", "it looks like SQL"),
    ),
    _plain("looker"),
    _plain("sighting"),
    _plain("unseeing"),
    _rule(
        "letter",
        "letters?",
        allowed=(
            "dead letters?|(?:lower(?: )?case|upper(?: )?case|small|capital|cyrillic|greek|latin|"
            "ascii|other|first|one|accented) letters?|"
            "(?:starts?|starting|begins?) with (?:a|one) letter|"
            r"letters?(?=,? (?:or |and )?(?:a )?(?:digits?|underscores?|first|then|\d))|"
            r"letters?(?=,? ['`.·])"
        ),
        reported=("letter_id", "Letter", "_letters", "the letter is sent", "Letters of a topic"),
        innocent=(
            "DeadLetterId",
            "dead_letters",
            "A dead\n    letter is kept.",
            "letters, digits and _",
            "a letter first",
            "a lowercase letter",
            "1 to 31 lower-case letters",
        ),
    ),
    _rule(
        "handed",
        names="handed",
        prose="the handed",
        allowed="handed (?:out|on|over|to)",
        reported=("handed", "Handed", "the handed deliveries"),
        innocent=("handed_out", "A batch is handed to the handler."),
    ),
    _rule(
        "handing-over",
        "handings? over",
        reported=("handing_over", "each handing-over raises the epoch"),
        innocent=("The sweeper hands it over.", "handover"),
    ),
    _plain("nudge", "nudg(?:e|es|ed|ing)"),
    _plain("stir", "stir(?:s|red|ring)?"),
    _rule(
        "told",
        names="told",
        prose="(?:is|are|was|were|be|been|being|gets?|got|unless|what was) told",
        allowed="told (?:apart|from)",
        reported=("told", "told_at", "a bound caller is told nothing", "30 seconds unless told"),
        innocent=("told_apart", "conflicts are told apart"),
    ),
    _rule(
        "tell",
        names="tells?|telling",
        prose=(r"telling|tells? (?:everybody|the others|the rest|what|how many)|to tell|\*\*tell"),
        allowed="tells? (?:\\w+ ){0,3}(?:apart|from)",
        reported=("tell", "telling", "tell_all", "and tells what it has", "Telling everybody"),
        innocent=("file.tell() is 0 here", "tell_apart", "hints that tell a service early"),
    ),
    _rule(
        "said",
        names="said",
        prose="(?:was|is|were|be|been|not|what|is what) said",
        reported=("said", "what is said", "when that was not said"),
        innocent=("aforesaid_name", "As said before, it is one."),
    ),
    _rule(
        "answer",
        names="answer(?:s|ed|ing)?",
        prose=(
            "(?:the|an|any|every|all|its|stored|rendered|late|lost|same|first|their|no|this) "
            "answers?"
        ),
        allowed=(
            "answers? to (?:\\w+ ){0,3}questions?|(?:the|its|all|an) answers? (?:is|was) (?:no|yes)"
        ),
        outside=r"/demo/",
        reported=(
            "answer",
            "AlreadyAnswered",
            "a repeat gets the stored answer",
            "the answer acks",
        ),
        innocent=("the answers to the three questions", "A deleted config is answered with 404."),
    ),
    _rule(
        "hear",
        "hears?|heard|hearing",
        reported=("heard", "is_heard", "the others hear of it", "was not heard of"),
        innocent=("heartbeat", "hearsay of it"),
    ),
    _rule(
        "ring",
        "rings?",
        allowed="ring buffers?|key rings?",
        reported=("ring", "on_ring", "waits in a ring", "Rings of gates"),
        innocent=("ring_buffer", "string", "a ring buffer of 100", "ordering keys"),
    ),
    _plain("bury", "bur(?:y|ies|ied|ying)"),
    _rule(
        "dying",
        "dying",
        allowed="dying (?:process|worker|connection|server|host|machine|thread)(?:e?s)?",
        reported=("dying", "the dying of a run"),
        innocent=("dying_worker", "a dying process"),
    ),
    _plain("mishap"),
    _rule(
        "refusal",
        names="refusals?",
        prose="refusals? of (?:a|the|each|one) (?:delivery|message)",
        within=r"^(?:src/penstock|tests)/bus/(?:store|push|transports|client)/",
        reported=("refusal", "Refusal", "the refusal of a delivery"),
        innocent=("refused", "the refusal of an overloaded server"),
    ),
    _plain("desert", "desert(?:s|ed|ing)?"),
    _plain("overripe", "overripe"),
    _plain("urge", "urg(?:e|es|ed|ing)"),
    _rule(
        "urgent",
        "urgent",
        allowed="urgent (?:fix|fixes|alerts?|messages?|questions?)",
        reported=("URGENT", "urgent_after", "an urgent run", "it becomes urgent"),
        innocent=("insurgent", "an urgent fix"),
    ),
    _rule(
        "stray",
        names="strays?",
        prose=(
            "strays|(?:a|the) stray|stray "
            "(?:runs?|sessions?|leases?|flows?|locks?|process\\w*|holders?|deliver\\w*|rows?)"
        ),
        allowed="(?:a|the) stray (?:file|comma|quote|space|text)",
        reported=("stray", "strays_of", "a stray run", "stray sessions"),
        innocent=("astray", "stray text in a file", "a stray comma"),
    ),
    _plain("forgetful", "forgetful"),
    _plain("pulse"),
    _plain("pulsation"),
    _rule(
        "beat",
        names="beats?|beating",
        prose=(
            r"(?:a|the|last|next|each|every|late|of|per|s,|and|x) beats?(?! the)|not beat|"
            r"beats? (?:its|the|a) sessions?|beats? (?:renews?|\d+ s)|beating"
        ),
        allowed="celery beats?|heart beats?",
        reported=("beat_once", "WorkerBeat", "the last beat", "beats its session", "a late beat"),
        innocent=("heartbeat", "A cancel beats the timeout.", "Celery beat", "the flag beats it"),
    ),
    _plain("farewell"),
    _rule(
        "hands",
        names="hands",
        prose="(?:the|its|their|fake|other|no) hands(?! (?:out|on|over|the|it|them))|hands of",
        allowed="hands (?:on|off)",
        reported=("hands", "fake_hands", "runs in the hands of worker w1"),
        innocent=("by_hand", "in_hand", "a hands-on guide", "The pusher hands the batch over."),
    ),
    _plain("manners", "manners"),
    _rule(
        "bell",
        "bells?",
        allowed="bell curves?",
        reported=("bell", "Bell", "rings the bell"),
        innocent=("label", "a bell curve"),
    ),
    _rule(
        "desk",
        "desks?",
        allowed="(?:help|service|front) desks?",
        reported=("desk", "limit_desk", "a desk with two customers"),
        innocent=("desktop", "the service desk answers"),
    ),
    _rule(
        "book",
        names="books?",
        prose="the books?|books? of (?:a|the) (?:flow|phase|gate)s?|(?:flow|phase)'s book",
        allowed="(?:order|address|the order) books?",
        reported=("book", "flow_book", "the book of a flow", "writes the book"),
        innocent=("runbook", "bookmark", "book a hotel", "the runbooks"),
    ),
    _rule(
        "people",
        names="people",
        prose="people's",
        reported=("people", "people_of", "people's approvals"),
        innocent=("person", "so that people can inspect it"),
    ),
    _rule(
        "house",
        names="house|houses",
        prose="(?:the|our|this) house(?:'s)?(?: rules?)?",
        reported=(
            "house",
            "OF_THE_HOUSE",
            "topics of the house",
            "the house's own",
            "the house rules",
        ),
        innocent=("warehouse", "house_number is a field", "an in-house tool", "the warehouse"),
    ),
    _rule(
        "wall",
        names="walls?",
        prose="walls?(?! clocks?| times?)",
        allowed="(?:by )?wall (?:clocks?|times?|now|ms|us|seconds|minutes?)",
        outside=_subjects("schedules|core|pipelines") + "|^benchmarks/|/explain/",
        reported=("wall", "the second wall between customers", "behind the wall"),
        innocent=("wall_clock", "wall_now", "the wall clock", "a wall-clock\nminute", "firewall"),
    ),
    _rule(
        "door",
        "doors?",
        allowed="back doors?|next door",
        reported=("door", "_door", "the one door"),
        innocent=("indoor", "a back door"),
    ),
    _rule(
        "lane",
        "lanes?",
        allowed="swim lanes?",
        reported=("lane", "LaneStore", "the thread lane"),
        innocent=("plane", "a swim lane"),
    ),
    _rule(
        "room",
        "rooms?",
        allowed="(?:meeting|chat) rooms?|room for (?:improvement|errors?)",
        reported=("room", "wait_for_room", "a limit without room", "the rooms that own SQL"),
        innocent=("headroom", "room for improvement"),
    ),
    _plain("insist", "insist(?:s|ed|ing|ence)?"),
    _plain("courier"),
    _rule(
        "relay",
        "relay(?:s|ed|ing)?",
        allowed="(?:smtp|mail) relays?",
        reported=("relay", "OutboxRelay", "the relay publishes it"),
        innocent=("an SMTP relay", "replay"),
    ),
    _rule(
        "rehearsal",
        "rehears(?:als?|ed?|es|ing)",
        reported=("rehearsal", "can_rehearse", "the change is rehearsed"),
        innocent=("dry_run", "a dry run"),
    ),
)
"""Words of the glossary's table."""

PHRASES = (
    _rule(
        "somebody",
        "somebody",
        reported=("somebody", "What somebody reports is a row."),
        innocent=("anyone",),
    ),
    _rule(
        "nobody",
        "nobody(?:'s)?",
        allowed="(?:as|user|account|server as) nobody",
        reported=("test_nobody_is_overtaken", "nobody starves"),
        innocent=("The server runs as nobody.", "the user nobody"),
    ),
    _plain("whoever", "whoever"),
    _rule(
        "everybody",
        "everybody(?:'s)?",
        reported=("everybody", "everybody's leases"),
        innocent=("every_body", "every body of a request"),
    ),
    _plain("anew", "anew"),
    _rule(
        "whose it is",
        prose="whose it is",
        reported=("Whose it is; null if none.",),
        innocent=("the customer whose key it is",),
    ),
    _rule(
        "without.",
        prose=r"without(?=[.;)](?:\s|$))|without(?=\s*$)",
        reported=("Its customer; the system's own without.", "what the flow went on without"),
        innocent=("A run without a customer.", "without\na customer"),
    ),
    _rule(
        "so many",
        prose="so many",
        allowed="so many (?:\\w+ )?(?:that|as)",
        reported=("At most so many.", "once there are so many"),
        innocent=("so many rows that the statement times out", "many"),
    ),
    _rule(
        "mend",
        prose="mend(?:s|ed|ing)?",
        reported=("the command that mends it", "once the cause is mended"),
        innocent=("an amendment of the declaration", "recommended settings"),
    ),
    _rule(
        "given up",
        prose="(?:is|are|was|were|be|been) given up",
        reported=("notices that were given up", "a message that is given up"),
        innocent=("never gives up", "an abandoned notice"),
    ),
    _rule(
        "null for none",
        prose="null for none|null as above",
        reported=("Time of the next check; null for none.", "The same; null as above."),
        innocent=("null if there is none", "null for all customers"),
    ),
    _rule(
        "for ever",
        prose="for ever",
        reported=("It is retried for ever.",),
        innocent=("It is retried forever.", "for every run"),
    ),
    _rule(
        "from which on",
        prose="from which on",
        reported=("Failures from which on a config is disabled.",),
        innocent=("The time from which the next trial is allowed.",),
    ),
    _rule(
        "what became of",
        prose="what (?:be)?came of",
        reported=("what became of the message", "Return what came of a request."),
        innocent=("What happened to the message.", "The run became a dead letter."),
    ),
    _rule(
        "work off",
        prose="work(?:s|ed)? (?:it )?off",
        reported=("to work off the queue", "The backfiller works it off."),
        innocent=("to drain the queue", "It works offline."),
    ),
    _rule(
        "make no notices",
        prose="makes? no (?:more )?notices?",
        reported=("Acknowledged alerts make no more notices.",),
        innocent=("No notices are sent about silenced alerts.",),
    ),
)
"""Words and phrases that hide the subject of a sentence, or that are not idiomatic.

See the style notes of the glossary.
"""

RULES = (*NAMES_OF_THINGS, *PHRASES)
