"""The table of proofs: what each shows, its command, its share of the time, its bars.

A command is one that exists for itself; it prints figures as JSON lines. Shares are minutes of a
whole run; a run of other length scales the work (seeds, examples, seconds), not only the time
limit.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tests.harness.chaos import SCENARIOS, SETTLE_SECONDS
from tests.harness.recovered import RECOVERED

PYTHON: Final = sys.executable
WHOLE: Final = 90.0
"""Minutes of a whole run."""
SEEDS: Final = {"queue": 4_500, "bus": 15_500, "flows": 500}
"""Histories of each kind in a whole run."""
STEPS: Final = {"queue": 80, "bus": 100}
"""Steps before a history recovers: fewer than `make simulate` runs, for more seeds in that time."""
FIRST_SEED: Final = 1_000_000
"""Apart from the seeds that `make simulate` and the tests use."""
INPUTS: Final = 4_000
"""Inputs for each parser in a whole run."""
CHAOS: Final = 5.2
"""Minutes of a scenario of chaos whose fault is as long as most, and so is the time to recover."""
FAULT: Final = 16
"""Seconds of a fault in a whole run."""
CALLS: Final = 12
"""Generated calls for each operation of the API, valid and invalid, in a whole run."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bound on a figure; it applies to every line that has the figure."""

    figure: str
    kind: Literal["at most", "at least"]
    value: float

    def broken_by(self, figures: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return what violates the bar; a figure that no line has violates it too."""
        found = [one[self.figure] for one in figures if self.figure in one]
        if not found:
            return [f"the figure {self.figure} is missing"]
        return [
            f"{self.figure} is {value}, expected {self.kind} {self.value:g}"
            for value in found
            if value is None  # it could not be measured
            or (value > self.value if self.kind == "at most" else value < self.value)
        ]


def zero(*names: str) -> tuple[Bar, ...]:
    """Return bars for figures that must be 0."""
    return tuple(Bar(name, "at most", 0) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One line of the report."""

    name: str
    shows: str
    minutes: float
    command: Callable[[float], Sequence[str]]
    """The command for a factor: 1 in a whole run."""
    bars: tuple[Bar, ...] = ()
    shown: tuple[str, ...] = ()
    """Figures in the table of the report; all are below it."""
    environment: Callable[[float], Mapping[str, str]] = field(default=lambda _: {})
    needs: str = ""
    """A module without which the proof is not run."""

    @property
    def is_present(self) -> bool:
        """Whether the command exists in this tree."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def timeout(self, factor: float) -> float:
        """Return the time limit in seconds: three times the share, and ten minutes."""
        return self.minutes * factor * 60 * 3 + 600


def _module(*words: str) -> list[str]:
    return [PYTHON, "-m", *words]


def _pytest(*words: str) -> list[str]:
    plugin = ("-p", "tests.prove.pytest_figures")
    return _module("pytest", "-q", "-n", "2", "--dist", "worksteal", *plugin, *words)


def _scaled(number: float, factor: float, least: int = 1) -> str:
    return str(max(least, round(number * factor)))


def _simulation(kind: str, minutes: float, shows: str) -> Proof:
    return Proof(
        name=f"simulation of the {kind}",
        shows=shows,
        minutes=minutes,
        command=lambda f: _module(
            "tests.harness.simulate", "--only", kind, "--seeds", _scaled(SEEDS[kind], f, 20),
            "--steps", str(STEPS[kind]), "--first", str(FIRST_SEED), "--json",
        ),
        bars=zero("failures"),
        shown=("seeds", "steps", "commits", "checks", "faults", "failures"),
    )  # fmt: skip


def _chaos(name: str) -> Proof:
    scenario = SCENARIOS[name]
    least = scenario.during_min
    again = scenario.recovery_min
    bars = () if again is None else (Bar("recovery", "at least", again),)
    during = () if least is None else (Bar("during", "at least", least),)
    beside = "" if scenario.is_alone else (
        ", the latter relative to an untouched system on the same machine at that time "
        "(`recovery_alone`: not relative to it)"
    )  # fmt: skip
    return Proof(
        name=f"chaos: {name}",
        shows=f"Under full load {scenario.about}; throughput during and after as shares of the "
        f"baseline{beside}, and an exact account of all runs.",
        minutes=CHAOS + (scenario.times - 1) * FAULT / 60 + (scenario.settle - SETTLE_SECONDS) / 60,
        command=lambda f: _module(
            "tests.harness.chaos", "--only", name, "--seconds", _scaled(FAULT, f, 8),
        ),
        bars=(*zero("lost", "doubled", "partial", "unasked"), *bars, *during),
        shown=("before_per_s", "during", "recovery", "recovery_alone", "recovered_after_s",
               "accepted", "lost", "doubled"),
    )  # fmt: skip


def _suite(
    name: str, shows: str, minutes: float, *words: str, figures: tuple[str, ...] = ()
) -> Proof:
    """Return the proof of a suite; `figures`: counts that it must have besides passed tests."""
    return Proof(
        name=name,
        shows=shows,
        minutes=minutes,
        command=lambda _: _pytest(*words),
        environment=lambda _: {"PENSTOCK_TEST_FULL": "1"},
        bars=(
            *zero("failed", "error"),
            *(Bar(figure, "at least", 1) for figure in ("passed", *figures)),
        ),
        shown=("passed", "failed", "skipped", *figures),
    )


def _fuzz(name: str, shows: str, minutes: float, variable: str, count: int, *words: str) -> Proof:
    shown = "inputs" if variable == "PROVE_EXAMPLES" else "calls"
    return Proof(
        name=name,
        shows=shows,
        minutes=minutes,
        command=lambda _: _pytest(*words),
        environment=lambda f: {variable: _scaled(count, f, 2)},
        bars=(*zero("failed", "error"), Bar("passed", "at least", 1), Bar(shown, "at least", 100)),
        shown=("passed", "failed", shown),
    )


PROOFS: Final[tuple[Proof, ...]] = (
    _simulation("queue", 5.8, "Real services over real SQL on virtual time: queue, schedules, "
                "flows and limits under crashes, lost replies, pauses and clock jumps; every "
                "invariant after every commit, and everything becomes idle at the end."),
    _simulation("bus", 6.3, "The same for the bus: publishers, consumers, sweepers, operators."),
    Proof(
        name="simulation of flows",
        shows="The NBA pipeline under duplicated, reordered and late completions, failing probes "
        "and crashes, by `penstock simulate`.",
        minutes=2.7,
        command=lambda f: _module(
            "penstock", "simulate", "penstock.demo.nba.pipeline:nba", "--seeds",
            _scaled(SEEDS["flows"], f, 5), "--json",
        ),
        bars=(Bar("histories", "at least", 5),),
        shown=("histories", "flows", "commits"),
    ),
    _suite("interleaving", "Competing PostgreSQL transactions, statement by statement: claims, "
           "limits, triggers, deliveries, services. Small scenarios run in all orders of their "
           "statements (`exhausted`), larger ones in different orders that are drawn by seed "
           "(`sampled`).", 0.5, "-m", "not seeded", "tests/interleaving",
           figures=("scenes_exhausted", "orders_exhausted", "scenes_sampled", "orders_sampled")),
    _suite("seeded bugs", "The harness itself: every bug that is planted on purpose in the engine "
           "is detected, for the right reason.", 0.5, "-m", "seeded", "tests/simulation",
           "tests/interleaving"),
    Proof(
        name="crash at every commit",
        shows="A flow is killed by SIGKILL before and after each of its commits, on both engines; "
        "a new process finishes it and nothing is lost or doubled.",
        minutes=1.6,
        command=lambda f: _module(
            "tests.harness.crashing", "--json", "--every", str(max(1, round(1 / f))),
        ),
        bars=(Bar("kills", "at least", 1),),
        shown=("engine", "commits", "kills"),
    ),
    Proof(
        name="crash of a backfill",
        shows="A backfill is killed twice by SIGKILL; every partition has one flow, every phase "
        "one completion.",
        minutes=0.3,
        command=lambda f: _module(
            "tests.harness.crash_backfill", "--json", "--partitions", _scaled(180, f, 24),
        ),
        bars=(Bar("kills", "at least", 2),),
        shown=("engine", "partitions", "kills"),
    ),
    Proof(
        name="crash of the bus",
        shows="Publishers, consumers, receiver, server and database are killed at random; every "
        "accepted message has its effect exactly once in each sink.",
        minutes=2.6,
        command=lambda f: _module("tests.harness.crash_bus", "--seconds", _scaled(40, f, 10)),
        bars=zero("ids_twice"),
        shown=("engine", "accepted", "ids_twice"),
    ),
    Proof(
        name="crash of limit holders",
        shows="200 contenders in 4 processes are killed at random: never more than ten inside, no "
        "token twice, no capacity lost.",
        minutes=1.3,
        command=lambda _: _module("benchmarks", "limit_crash", "--quick"),
        bars=(*zero("leaked", "tokens_twice"), Bar("value", "at most", 10)),
        shown=("engine", "value", "kills", "leaked", "tokens_twice"),
    ),
    *(_chaos(name) for name in SCENARIOS),
    Proof(
        name="chaos: failover",
        shows="PostgreSQL's primary is killed under load, its synchronous standby promoted; every "
        "accepted message, run and flow is there once. Times are from the kill to the first "
        "response of each kind; recovery is the least share of the rate before, of all kinds.",
        minutes=1,
        command=lambda f: _module("tests.harness.failover", "--seconds", _scaled(40, f, 10)),
        bars=(Bar("recovery", "at least", RECOVERED),),
        shown=("recovery", "recovery_seconds"),
        needs="tests.harness.failover",
    ),
    Proof(
        name="overload",
        shows="Ten times the sustainable rate of the API: the excess is refused with Retry-After, "
        "and nothing accepted is lost or doubled. Then, with the requests and the rate of before "
        "the overload, nothing is refused, p50 is at most twice and p99 at most five times what "
        "it was (`again`/`normal`).",
        minutes=1,
        command=lambda _: _module("benchmarks", "overload", "--quick", "--engine", "postgres"),
        bars=(
            *zero("lost", "doubled", "without_retry_after", "again_refused"),
            Bar("again_p50_ratio", "at most", 2), Bar("again_p99_ratio", "at most", 5),
        ),
        shown=("offered_rps", "accepted_rps", "refused", "lost", "doubled", "normal_p50_ms",
               "again_p50_ratio", "again_p99_ratio"),
    ),
    Proof(
        name="hostile callers",
        shows="200 hostile connections and 1,000 hostile messages to every consumer: what another "
        "customer notices, as multiples of the normal p95.",
        minutes=0.8,
        command=lambda _: _module("benchmarks", "hostile", "--quick", "--engine", "postgres"),
        bars=(*zero("refused"), Bar("http_ratio", "at most", 3), Bar("bus_ratio", "at most", 2)),
        shown=("http_ratio", "refused", "bus_ratio", "bus_messages"),
    ),
    _fuzz("fuzzing of the API", "Schemathesis calls every operation of the OpenAPI document with "
          "valid and invalid data on both engines: no 5xx, documented responses, no change by a "
          "refused call.", 1.2, "PENSTOCK_FUZZ_EXAMPLES", CALLS, "-m", "slow",
          "tests/server/test_fuzz.py"),
    _fuzz("fuzzing of parsers", "Every parser of foreign input answers mutated and hostile input "
          "with a value or its declared error, within two seconds.", 1.2, "PROVE_EXAMPLES", INPUTS,
          "tests/prove/test_parsers.py"),
    _suite("tenant isolation", "Responses and rows of a customer are byte-equal whether or not "
           "another customer exists, for every route, parameter and use case, on both engines.",
           0.6, "tests/tenancy", "-k", "not secret and not canary"),
    _suite("canary secrets", "A secret that enters by any field is in no response, log, event or "
           "column.", 0.2, "tests/tenancy", "-k", "secret or canary"),
    Proof(
        name="zero-downtime upgrade",
        shows="The previous release's processes keep working while the schema is migrated and new "
        "processes take over under load.",
        minutes=1.2,
        command=lambda _: _module("tests.harness.upgrade"),
        bars=zero("failed", "lost", "doubled"),
        shown=("from", "migrations", "accepted", "failed", "lost", "doubled"),
        needs="tests.harness.upgrade",
    ),
)  # fmt: skip
