"""`penstock configs`: create one or many, change, list and preview."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.shell import Shell

DAILY = ["--cron", "0 2 * * *", "--timezone", "America/New_York"]


def create(shell: Shell, *more: str, customer: str = "acme") -> str:
    args = more or DAILY
    return str(shell.json("configs", "create", customer, "hello", *args)["items"][0]["config_id"])


class TestCreate:
    """`configs create`."""

    def test_from_flags(self, shell: Shell) -> None:
        """The config has the given fields and is scheduled immediately."""
        config_id = create(
            shell, *DAILY, "--param", "name=Ada", "--retry", "max_attempts=2", "--provider", "GCP",
            "--priority", "7", "--sla-breach-threshold-minutes", "15", "--overlap", "queue",
        )  # fmt: skip
        config = shell.json("configs", "show", config_id)
        assert config["parameters"] == {"name": "Ada"}
        assert config["retry_config"] == {"max_attempts": 2}
        assert (config["priority"], config["overlap"], config["version"]) == (7, "queue", 1)
        assert config["next_run_time"] is not None

    def test_first_run_is_printed(self, shell: Shell) -> None:
        """The output has the time of the first run, also as a relative time."""
        text = shell.ok("configs", "create", "acme", "hello", "--every", "15")
        assert "first run" in text
        assert "(in 15 min)" in text

    def test_dry_run(self, shell: Shell) -> None:
        """A dry run validates the config and creates nothing."""
        text = shell.ok("configs", "create", "acme", "hello", *DAILY, "--dry-run")
        assert "nothing was created" in text
        assert shell.json("configs", "list")["items"] == []

    @pytest.mark.parametrize(
        ("args", "field"),
        [
            ([], "customer"),
            (["acme"], "pipeline"),
            (["acme", "hello"], "schedule_cron"),
            (["acme", "nope", "--every", "5"], "pipeline_template"),
            (["acme", "hello", "--cron", "61 * * * *"], "schedule_cron"),
            (["acme", "hello", "--cron", "0 2 * * *", "--timezone", "Mars"], "timezone"),
            (["acme", "hello", "--cron", "0 2 * * *", "--every", "5"], "schedule_interval_minutes"),
            (["acme", "hello", "--every", "5", "--overlap", "maybe"], "overlap"),
            (["acme", "hello", "--every", "5", "--priority", "0"], "priority"),
            (["acme", "hello", "--every", "5", "--retry", "tries=2"], "retry_config.tries"),
            (["acme", "hello", "--every", "5", "--param", "nam=x"], "parameters.nam"),
            (["acme", "hello", "--file", "nowhere.json"], "file"),
            (["--file", "nowhere.json"], "file"),
        ],
    )
    def test_bad_input_names_the_field(self, shell: Shell, args: list[str], field: str) -> None:
        """The error names the field, and nothing is created."""
        result = shell("configs", "create", *args, "--json")
        assert result.code == 2, result
        assert result.error()["field"] == field
        assert shell.json("configs", "list")["items"] == []

    def test_an_error_has_the_number_that_was_typed(self, shell: Shell) -> None:
        """`--every 5` is not 5.0."""
        result = shell("configs", "create", "acme", "hello", "--cron", "0 2 * * *", "--every", "5")
        assert "got 5." in result.err
        assert "5.0" not in result.err


class TestDue:
    """`configs due`."""

    def test_nothing_found_names_the_window(self, shell: Shell) -> None:
        text = shell.ok("configs", "due", "--at", "2031-01-02T02:00:00+01:00", "--for", "10m")
        assert text == (
            "No active config starts between 2031-01-02 01:00:00Z and 2031-01-02 01:10:00Z.\n"
        )

    @pytest.mark.parametrize("at", ["25:00", "soon"])
    def test_a_bad_time_names_the_forms(self, shell: Shell, at: str) -> None:
        done = shell("configs", "due", "--at", at)
        assert done.err.startswith('Error: --at: expected HH:MM such as "03:00", or an ISO 8601')
        assert "ago" not in done.err


class TestAnother:
    """`configs create` refuses a schedule that the customer has already."""

    @pytest.mark.parametrize("more", [(), ("--dry-run",)])
    def test_the_same_schedule_twice(self, shell: Shell, more: tuple[str, ...]) -> None:
        """The error names the config that has it and the option that allows a second one."""
        config_id = create(shell)
        result = shell("configs", "create", "acme", "hello", "--cron", "00 2  * * *", *DAILY[2:],
                       *more)  # fmt: skip
        assert result.code == 2
        assert result.err.startswith("Error: --cron: expected a schedule that no active config of")
        for words in (config_id, "each partition would be processed twice", "--another"):
            assert words in result.err
        assert len(shell.json("configs", "list")["items"]) == 1

    def test_on_purpose(self, shell: Shell) -> None:
        assert create(shell) != create(shell, *DAILY, "--another")

    @pytest.mark.parametrize(
        "args",
        [
            ("--cron", "0 3 * * *", "--timezone", "America/New_York"),
            ("--cron", "0 2 * * *", "--timezone", "Asia/Tokyo"),
            ("--every", "15"),
            ("--event-topic", "orders"),
            (*DAILY, "--param", "name=Ada"),
            (*DAILY, "--provider", "AWS"),
            (*DAILY, "--inactive"),
        ],
    )
    def test_differs(self, shell: Shell, args: tuple[str, ...]) -> None:
        """Another time, input or state is another schedule."""
        assert create(shell) != create(shell, *args)

    @pytest.mark.parametrize("args", [("--every", "15"), ("--event-topic", "orders")])
    def test_other_kinds(self, shell: Shell, args: tuple[str, ...]) -> None:
        config_id = create(shell, *args, "--priority", "7")
        result = shell("configs", "create", "acme", "hello", *args)
        assert (result.code, config_id in result.err) == (2, True), result

    def test_others_do_not_count(self, shell: Shell) -> None:
        """A config of another customer, and one that is disabled, do not start with it."""
        create(shell, customer="globex")
        shell.ok("configs", "disable", create(shell))
        create(shell)


class TestAnotherInAFile:
    """`configs create --file` refuses what the command refuses for a single config."""

    @pytest.mark.parametrize("more", [(), ("--dry-run",)])
    def test_the_same_file_twice(self, shell: Shell, tmp_path: Path, more: tuple[str, ...]) -> None:
        """The error names the entry and the config that has its schedule; nothing is created."""
        path = tmp_path / "customers.toml"
        path.write_text("".join(toml(f"c{n}") for n in range(2)))
        shell.ok("configs", "create", "--file", str(path))
        first = shell.json("configs", "list", "--customer", "c0")["items"][0]["config_id"]
        path.write_text(toml("new") + toml("c0") + toml("c1"))
        result = shell("configs", "create", "--file", str(path), *more)
        assert result.code == 2
        assert result.err.startswith(
            "Error: customers.toml configs[1]: schedule_interval_minutes: expected a schedule that "
            "no active config of hello for c0 has with the same parameters, got 15. "
            f"{first} has it"
        )
        assert "--another" in result.err
        assert len(shell.json("configs", "list")["items"]) == 2

    def test_on_purpose(self, shell: Shell) -> None:
        text = json.dumps(rows(2) * 2)
        for _ in range(2):
            shell.ok("configs", "create", "--file", "-", "--another", stdin=text)
        assert len(shell.json("configs", "list")["items"]) == 8

    @pytest.mark.parametrize("more", [(), ("--dry-run",)])
    def test_twice_in_one_file(self, shell: Shell, tmp_path: Path, more: tuple[str, ...]) -> None:
        """The error names both entries."""
        path = tmp_path / "customers.toml"
        path.write_text(toml("c0") + toml("c1") + toml("c0"))
        result = shell("configs", "create", "--file", str(path), *more)
        assert result.code == 2
        assert result.err.startswith(
            "Error: customers.toml configs[2]: schedule_interval_minutes: expected a schedule that "
            "no other config of hello for c0 in this file has with the same parameters, got 15. "
            "customers.toml configs[0] has it"
        )
        assert shell.json("configs", "list")["items"] == []

    def test_what_differs_is_created(self, shell: Shell) -> None:
        """Other parameters, another label or state, and a config that is disabled."""
        shell.ok("configs", "create", "--file", "-", stdin=json.dumps(rows(1)))
        shell.ok("configs", "disable", create(shell, "--every", "20", customer="c0"))
        (row,) = rows(1)
        several = [
            {**row, "parameters": {"name": "Ada"}},
            {**row, "provider": "AWS"},
            {**row, "is_active": False},
            {**row, "is_active": False},
            {**row, "schedule_interval_minutes": 20},
        ]
        shell.ok("configs", "create", "--file", "-", stdin=json.dumps(several))

    def test_over_the_boundary_of_requests(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file of several requests is one file."""
        monkeypatch.setattr("penstock.schedules.cli.create.BULK_MAX", 2)
        text = json.dumps(rows(3))
        shell.ok("configs", "create", "--file", "-", stdin=text)
        assert "item 1" in shell("configs", "create", "--file", "-", stdin=text).err
        new = [{**row, "priority": 3, "provider": "AWS"} for row in rows(3)]
        twice = shell("configs", "create", "--file", "-", stdin=json.dumps([*new, new[0]]))
        assert "item 4: schedule_interval_minutes" in twice.err
        assert len(shell.json("configs", "list")["items"]) == 3


def toml(customer: str) -> str:
    return (
        f'[[configs]]\ncustomer_id = "{customer}"\npipeline_template = "hello"\n'
        "schedule_interval_minutes = 15\n"
    )


def rows(n: int) -> list[dict[str, Any]]:
    return [
        {"customer_id": f"c{i}", "pipeline_template": "hello", "schedule_interval_minutes": 15}
        for i in range(n)
    ]


class TestFiles:
    """`configs create --file`."""

    @pytest.mark.parametrize("kind", ["json", "jsonl", "toml"])
    def test_each_format(self, shell: Shell, tmp_path: Path, kind: str) -> None:
        """JSON, JSON lines and TOML create the same configs."""
        if kind == "json":
            text = json.dumps(rows(3))
        elif kind == "jsonl":
            text = "\n".join(json.dumps(row) for row in rows(3))
        else:
            text = "".join(
                f'[[configs]]\ncustomer_id = "{row["customer_id"]}"\n'
                'pipeline_template = "hello"\nschedule_interval_minutes = 15\n'
                for row in rows(3)
            )
        path = tmp_path / f"configs.{kind}"
        path.write_text(text)
        made = shell.json("configs", "create", "--file", str(path))["items"]
        assert [config["customer_id"] for config in made] == ["c0", "c1", "c2"]

    def test_long_output_is_shortened(self, shell: Shell) -> None:
        """Only the first 20 configs are printed."""
        text = shell.ok("configs", "create", "--file", "-", stdin=json.dumps(rows(30)))
        assert "and 10 more" in text

    def test_one_bad_row_stops_all(self, shell: Shell, tmp_path: Path) -> None:
        """The error names the row, and no config is created."""
        bad = rows(3)
        bad[2]["priority"] = 99
        path = tmp_path / "configs.json"
        path.write_text(json.dumps(bad))
        result = shell("configs", "create", "--file", str(path), "--json")
        assert result.code == 2
        assert result.error()["field"] == "configs.json item 3: priority"
        assert shell.json("configs", "list")["items"] == []

    @pytest.mark.parametrize("name", ["customers.toml", "pipeline.toml"])
    def test_errors_have_the_names_of_the_file(
        self, shell: Shell, tmp_path: Path, name: str
    ) -> None:
        """Not those of the command's arguments and options, even if the file is called like one."""
        path = tmp_path / name
        path.write_text(toml("c0").replace("pipeline_template", "pipline_template"))
        result = shell("configs", "create", "--file", str(path))
        assert result.err == (
            f"Error: {name} configs[0]: pipline_template: expected a known field, "
            "got 'pipline_template'. Did you mean pipeline_template?\n"
        )
        path.write_text(toml("c0").replace("= 15", "= 0"))
        result = shell("configs", "create", "--file", str(path))
        assert result.err.startswith(f"Error: {name} configs[0]: schedule_interval_minutes: ")
        path.write_text(toml("c0").replace("hello", "helo"))
        result = shell("configs", "create", "--file", str(path), "--json")
        assert result.error()["field"] == f"{name} configs[0]: pipeline_template"

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("a.json", "{", "JSON or JSON lines"),
            ("a.json", "[]", "at least one config"),
            ("a.json", "[1]", "an object"),
            ("a.json", '[{"pipeline_template": "hello"}]', "the id of the customer"),
            ("a.jsonl", '{}\n{"a":\n', "line 2"),
            ("a.toml", "a = 1", "[[configs]]"),
            ("a.toml", "a =", "valid TOML"),
        ],
    )
    def test_bad_files(
        self, shell: Shell, tmp_path: Path, name: str, text: str, words: str
    ) -> None:
        """The error says what is wrong with the file."""
        (tmp_path / name).write_text(text)
        result = shell("configs", "create", "--file", name)
        assert result.code == 2
        assert words in result.err


class TestChange:
    """Update, enable, disable, delete, start."""

    def test_update_and_versions(self, shell: Shell) -> None:
        """An update of an outdated version fails."""
        config_id = create(shell)
        assert "version 2" in shell.ok("configs", "update", config_id, "--priority", "9")
        stale = shell("configs", "update", config_id, "--priority", "1", "--version", "1", "--json")
        assert stale.code == 4
        assert stale.error()["current"] == 2
        nothing = shell("configs", "update", config_id)
        assert nothing.code == 2
        assert "at least one change" in nothing.err

    def test_disable_and_enable(self, shell: Shell) -> None:
        """A disabled config suggests `enable`; both changes are in the audit trail."""
        config_id = create(shell)
        shell.ok("configs", "disable", config_id, "--reason", "holiday")
        assert f"penstock configs enable {config_id}" in shell.ok("configs", "show", config_id)
        assert "off (holiday)" in shell.ok("configs", "list", "--inactive")
        refused = shell("configs", "start", config_id)
        assert refused.code == 4
        assert f"penstock configs enable {config_id}" in refused.err
        shell.ok("configs", "enable", config_id)
        trail = shell.json("configs", "audit", "acme")["items"]
        assert [row["action"] for row in trail] == ["CREATED", "DEACTIVATED", "ACTIVATED"]
        assert "holiday" in shell.ok("configs", "audit", "acme")

    def test_start(self, shell: Shell) -> None:
        """`start` creates a run now, outside the schedule."""
        run_id = shell.json("configs", "start", create(shell))["run_ids"][0]
        assert shell.json("runs", "show", run_id)["run"]["trigger_source"] == "manual"

    def test_delete_asks_for_confirmation(self, shell: Shell) -> None:
        """Answering no aborts; --yes skips the question."""
        config_id = create(shell)
        assert shell("configs", "delete", config_id, stdin="n\n").code == 130
        shell.ok("configs", "delete", config_id, "--yes", "--reason", "left us")
        assert shell("configs", "show", config_id).code == 3


class TestRead:
    """List, preview, ledger."""

    def test_empty(self, shell: Shell) -> None:
        """An empty list suggests `configs create`."""
        assert "penstock configs create" in shell.ok("configs", "list")

    def test_pages(self, shell: Shell) -> None:
        """The hint leads to the next page."""
        ids = [create(shell, customer=f"c{n}") for n in range(3)]
        first = shell.json("configs", "list", "--limit", "2")
        assert [c["config_id"] for c in first["items"]] == ids[:2]
        assert first["next_cursor"] is not None
        rest = shell.json("configs", "list", "--after", ids[1])
        assert [c["config_id"] for c in rest["items"]] == ids[2:]
        assert rest["next_cursor"] is None
        assert f"--after {ids[1]}" in shell.ok("configs", "list", "--limit", "2")

    def test_preview(self, shell: Shell) -> None:
        """Preview shows the next occurrences in the config's time zone."""
        config_id = create(shell)
        fires = shell.json("configs", "preview", config_id, "-n", "3")["fires"]
        assert len(fires) == 3
        assert all("T02:00:00" in fire["local"] or fire["note"] for fire in fires)
        assert "IN America/New_York" in shell.ok("configs", "preview", config_id)
        event = create(shell, "--event-topic", "orders")
        assert "arrives on orders" in shell.ok("configs", "preview", event)

    def test_ledger(self, shell: Shell) -> None:
        """An empty ledger says that no occurrence was missed."""
        assert "Every occurrence so far has started" in shell.ok("configs", "ledger", create(shell))


def test_hints(shell: Shell) -> None:
    """--every takes durations; hints for --yes without a terminal and for event configs."""
    made = shell.json("configs", "create", "acme", "hello", "--every", "5m")["items"][0]
    assert made["schedule_interval_minutes"] == 5
    assert shell("configs", "create", "acme", "hello", "--every", "often").code == 2
    result = shell("configs", "delete", made["config_id"])
    assert result.code == 2
    assert "add --yes" in result.err
    text = shell.ok("configs", "create", "acme", "hello", "--event-topic", "orders")
    assert "starts on messages of orders, or with `penstock configs start cfg_" in text
