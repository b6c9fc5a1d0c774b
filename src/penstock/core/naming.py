"""The rule for names of pipelines, phases, processors, modes and pools.

A valid name is safe in a path, a topic, an address and a command line.
"""

from __future__ import annotations

import re
from typing import Final, NewType

from penstock.core.errors import DeclarationError

CustomerKey = NewType("CustomerKey", int)
PipelineKey = NewType("PipelineKey", int)
ProcessorKey = NewType("ProcessorKey", int)
PoolKey = NewType("PoolKey", int)
TopicKey = NewType("TopicKey", int)
SubscriptionKey = NewType("SubscriptionKey", int)

SYSTEM_CUSTOMER: Final = CustomerKey(0)
"""Owner of rows that belong to the installation rather than to a customer."""
DEFAULT_CUSTOMER = "default"
DEFAULT_POOL = "default"
EXTERNAL_POOL = "external"
HTTP_POOL: Final = "http"
"""Prefix of the pools of HTTP processors; each processor has its own pool."""
LIMIT_CAPACITY_MAX: Final = 1_000_000
LIMIT_NAME_MAX: Final = 200
NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,62}", re.ASCII)


def check_declared_name(name: object, kind: str, where: str) -> None:
    """Raise DeclarationError unless the name is valid. The message contains `kind` and `where`."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise DeclarationError(
            f"{where}: {name!r:.80} is not a valid {kind} name; use a lowercase letter, then at "
            "most 62 lowercase letters, digits, '_', '.' or '-'."
        )


def http_pool(path: str) -> str:
    """Return the pool of an HTTP processor, by its path `pipeline/phase/processor`."""
    return f"{HTTP_POOL}/{path}"


def is_http_pool(pool: str) -> bool:
    """Return whether a pool belongs to an HTTP processor; no worker serves it."""
    return pool.startswith(f"{HTTP_POOL}/")


def runs_channel(pool: str) -> str:
    """Return the wake-up channel of the workers that claim a pool's runs.

    The pools of all HTTP processors share one channel, because the dispatcher serves all of them.
    """
    return f"runs:{HTTP_POOL}" if is_http_pool(pool) else f"runs:{pool}"
