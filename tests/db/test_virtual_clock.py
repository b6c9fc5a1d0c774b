"""The virtual clock that tests and simulations run on."""

import threading

import pytest

from penstock.core.clock import SECOND, Clock
from penstock.testing.clock import VirtualClock


def test_time_is_frozen_until_advanced() -> None:
    """Time passes only when it is advanced, by microseconds, by seconds or to a time."""
    clock = VirtualClock(100)
    assert (clock.now(), clock.monotonic()) == (100, 0.0)
    assert clock.advance(5) == 105
    assert clock.advance(seconds=1.5) == 105 + 1_500_000
    assert clock.monotonic() == pytest.approx(1.500005)
    assert clock.advance_to(10 * SECOND) == 10 * SECOND
    assert clock.advance_to(5) == 10 * SECOND


def test_never_goes_back() -> None:
    """A negative step is refused."""
    with pytest.raises(AssertionError):
        VirtualClock(0).advance(-1)


def test_sleep_and_wait() -> None:
    """Sleeping and waiting advance virtual time; an event that is already set takes no time."""
    clock: Clock = VirtualClock(0)
    clock.sleep(2)
    assert clock.now() == 2 * SECOND
    clock.sleep(-1)
    event = threading.Event()
    assert not clock.wait(event, 3)
    assert clock.now() == 5 * SECOND
    event.set()
    assert clock.wait(event, 3)
    assert clock.wait(event, None)
    assert clock.now() == 5 * SECOND


def test_shared_between_threads() -> None:
    """Steps of many threads add up."""
    clock = VirtualClock(0)

    def step() -> None:
        for _ in range(1000):
            clock.advance(1)

    threads = [threading.Thread(target=step) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == 4000
