"""Parameters of the use cases of configs: names in the API, bounds, descriptions."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from penstock.core.records.record import InBody, InHeader, Meta, Minutes, Time, Wire
from penstock.schedules.records import ConfigHealthWord

PREVIEW_MAX = 1_000
OFFSET_MAX = 9_000

IsActive: TypeAlias = Annotated[
    bool | None, Meta(description="Return only active, or only inactive, configs.")
]
IsFailing: TypeAlias = Annotated[
    bool | None, Meta(description="`true`: return only configs whose last runs failed.")
]
CustomerPrefix: TypeAlias = Annotated[
    Annotated[str, Meta(max_length=200)] | None,
    Meta(
        description="Return only configs of customers whose id begins with this text; without "
        "another order, by customer."
    ),
]
ConfigHealthFilter: TypeAlias = Annotated[
    ConfigHealthWord | None, Meta(description="Return only configs with this health.")
]
DueBefore: TypeAlias = Annotated[
    Time | None, Meta(description="Return only configs whose next start is before this time.")
]
ConfigOrder: TypeAlias = Annotated[
    Literal["config_id", "next_run_time"] | None,
    Meta(description="`next_run_time`: only configs with a next start, soonest first."),
]
Short: TypeAlias = Annotated[str, Meta(max_length=64)]
AfterConfig: TypeAlias = Annotated[
    Short | None,
    Meta(description="Return only configs after this one; alternative to a cursor."),
]
PageOffset: TypeAlias = Annotated[
    int,
    Meta(description="Number of rows to skip; use a cursor for deep pages.", ge=0, le=OFFSET_MAX),
]
ExpectedVersion: TypeAlias = Annotated[
    int | None,
    InBody("version"),
    Meta(description="Version that the change is based on; equivalent to If-Match."),
]
IfMatch: TypeAlias = Annotated[
    Short | None,
    InHeader("If-Match"),
    Meta(description='ETag that the config must have, such as `"3"`.'),
]
DeleteReason: TypeAlias = Annotated[
    str, Meta(description="Reason for the change, recorded in the audit trail.", max_length=500)
]
TriggerSource: TypeAlias = Annotated[
    str, Meta(description="Trigger source to record on the runs.", max_length=64)
]
WindowStart: TypeAlias = Annotated[Time, Meta(description="Start of the window, inclusive.")]
WindowEnd: TypeAlias = Annotated[
    Time | None,
    Meta(description="End of the window, exclusive; a minute after its start if omitted."),
]
PreviewCount: TypeAlias = Annotated[
    int, Meta(description="Number of occurrences to return.", ge=1, le=PREVIEW_MAX)
]
PreviewCron: TypeAlias = Annotated[
    str | None,
    Wire("schedule_cron"),
    Meta(description="Cron expression of five fields; alternative to an interval."),
]
PreviewInterval: TypeAlias = Annotated[
    Minutes | None,
    Wire("schedule_interval_minutes"),
    Meta(description="Elapsed minutes between two starts; alternative to cron."),
]
PreviewZone: TypeAlias = Annotated[str, Meta(description="IANA time zone of the cron expression.")]
ConfigFilter: TypeAlias = Annotated[
    Short | None, Meta(description="Return only changes to this config.")
]
DryRun: TypeAlias = Annotated[bool, Meta(description="Validate every item and create none.")]
WithConfigs: TypeAlias = Annotated[
    bool, Meta(description="Return each created config, not only its id.")
]
