"""Schedules: create a config, preview it, change it under its version, pause it."""

from datetime import timedelta

from penstock import Config, ConfigChange, Pipeline, RunContext, StaleVersion, connect

nightly = Pipeline("nightly")


@nightly.processor
def load(run: RunContext) -> None:
    """Load a day."""


if __name__ == "__main__":
    with connect("sqlite:schedules.db") as client:
        client.register([nightly])
        config = client.configs.create(
            "acme", Config(pipeline="nightly", cron="0 2 * * *", timezone="Europe/Berlin")
        )
        for one in client.configs.preview(config.config_id, n=2).occurrences:
            print(one.at, one.local)
        change = ConfigChange(max_duration=timedelta(minutes=30))
        client.configs.update(config.config_id, change, version=config.version)
        try:
            client.configs.update(config.config_id, change, version=config.version)
        except StaleVersion as error:
            print("the config is at version", error.current)
        print(client.pauses.pause("config", config.config_id, reason="migration").is_changed)
