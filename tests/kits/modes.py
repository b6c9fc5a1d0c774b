"""The preset of modes by the time of day, by name, for tests about its five modes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock import Mode, game_day_modes

GAME_DAY: Final[Mapping[str, Mode]] = MappingProxyType(
    {mode.name: mode for mode in game_day_modes(overnight_until="precompute")}
)
