"""Automatic replay of a subscription's dead letters: the policy and its validation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.clock import MINUTE, SECOND, Micros, parse_duration
from penstock.core.errors import InvalidInput
from penstock.egress.policy import STRICT, EgressRules, parse_target

MIN_AGE_DEFAULT: Final = 10 * MINUTE
MIN_AGE_MIN: Final = 10 * SECOND
RATE_DEFAULT: Final = 10.0
RATE_MIN: Final = 0.001
RATE_MAX: Final = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPolicy:
    """A policy for replaying dead letters automatically.

    Dead letters at least `min_age_us` old are replayed, at most `rate` per second, while a GET of
    `health_url` returns 2xx.
    """

    health_url: str
    min_age_us: Micros = MIN_AGE_DEFAULT
    rate_per_s: float = RATE_DEFAULT

    def to_json(self) -> str:
        """Return the policy as the JSON text stored with the subscription."""
        fields = {
            "health_url": self.health_url,
            "after": f"{self.min_age_us // SECOND}s",
            "rate": self.rate_per_s,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def parse_auto_replay(
    value: object, rules: EgressRules = STRICT, field: str = "auto_replay"
) -> ReplayPolicy:
    """Validate an auto-replay object; InvalidInput names the invalid field."""
    if not isinstance(value, Mapping):
        raise InvalidInput(field, 'an object such as {"health_url": "https://…"}', value)
    unknown = sorted(set(value) - {"health_url", "after", "rate"})
    if unknown:
        raise InvalidInput(f"{field}.{unknown[0]}", "health_url, after or rate", unknown[0])
    url = value.get("health_url")
    parse_target(url, rules, f"{field}.health_url")
    after = MIN_AGE_DEFAULT
    if "after" in value:
        after = parse_duration(value["after"], f"{field}.after")
    if after < MIN_AGE_MIN:
        raise InvalidInput(f"{field}.after", "10s or longer", value["after"])
    rate = value.get("rate", RATE_DEFAULT)
    if (
        isinstance(rate, bool)
        or not isinstance(rate, int | float)
        or not RATE_MIN <= rate <= RATE_MAX
    ):
        raise InvalidInput(f"{field}.rate", f"{RATE_MIN:g} to {RATE_MAX:g} per second", rate)
    return ReplayPolicy(health_url=str(url), min_age_us=after, rate_per_s=float(rate))
