"""A grammar of valid cron expressions for the property tests of cadences."""

from __future__ import annotations

from hypothesis import strategies as st

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def _range(low: int, high: int) -> st.SearchStrategy[str]:
    # Never one value wide: croniter reads "0-0" as every weekday, cronsim "7-7/2" as 7, 9, 11, …
    return st.tuples(st.integers(low, high - 1), st.integers(1, high)).map(
        lambda pair: f"{pair[0]}-{min(high, pair[0] + pair[1])}"
    )


def field(low: int, high: int, names: list[str] | None = None) -> st.SearchStrategy[str]:
    """Return terms of one field: wildcards, numbers, names, ranges, steps and lists of them."""
    # croniter and cronsim read "6/2" as a weekday differently, and croniter "12/1" as every month.
    open_steps = high != 6
    numbers = st.integers(low, high).map(str)
    steps = st.integers(1, high)
    single = st.one_of(
        numbers,
        _range(low, high),
        st.builds("{}/{}".format, _range(low, high), steps),
        *([st.builds("{}/{}".format, st.integers(low, high - 1), steps)] if open_steps else []),
        *([st.sampled_from(names)] if names else []),
    )
    lists = st.lists(single, min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), steps.map("*/{}".format), lists)


EXPRESSIONS = st.builds(
    "{} {} {} {} {}".format,
    field(0, 59),
    field(0, 23),
    field(1, 31),
    field(1, 12, MONTHS),
    field(0, 6, DAYS),
)
"""Valid fields; the date they describe may not exist."""

FIXED_HOURS = st.builds(
    "{} {} {} {} {}".format,
    field(0, 59),
    st.lists(st.integers(0, 23), min_size=1, max_size=3).map(
        lambda hours: ",".join(map(str, hours))
    ),
    st.sampled_from(["*", "*", "*/2", "1,15,31"]),
    st.just("*"),
    st.sampled_from(["*", "*", "1-5", "0"]),
)
"""Expressions with fixed hours on enough days to hit every daylight saving change."""
