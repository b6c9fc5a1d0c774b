"""The API by subject.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from penstock.remote.api.configs import ConfigsApi
from penstock.remote.api.deliveries import DeliveriesApi
from penstock.remote.api.flows import FlowsApi
from penstock.remote.api.gates import GatesApi
from penstock.remote.api.health import HealthApi
from penstock.remote.api.keys import KeysApi
from penstock.remote.api.letters import LettersApi
from penstock.remote.api.limits import LimitsApi
from penstock.remote.api.push import PushApi
from penstock.remote.api.runs import RunsApi
from penstock.remote.api.scheduler import SchedulerApi
from penstock.remote.api.subscriptions import SubscriptionsApi
from penstock.remote.api.topics import TopicsApi
from penstock.remote.api.views import ViewsApi
from penstock.remote.api.work import WorkApi
from penstock.remote.transport import Transport

__all__ = ["Api"]


class Api:
    """Every operation, by subject."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.scheduler = SchedulerApi(transport)
        self.configs = ConfigsApi(transport)
        self.work = WorkApi(transport)
        self.runs = RunsApi(transport)
        self.topics = TopicsApi(transport)
        self.subscriptions = SubscriptionsApi(transport)
        self.deliveries = DeliveriesApi(transport)
        self.limits = LimitsApi(transport)
        self.letters = LettersApi(transport)
        self.flows = FlowsApi(transport)
        self.gates = GatesApi(transport)
        self.views = ViewsApi(transport)
        self.keys = KeysApi(transport)
        self.push = PushApi(transport)
        self.health = HealthApi(transport)
