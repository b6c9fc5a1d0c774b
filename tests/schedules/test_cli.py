"""Configs on the command line: create one or many, change, look."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.shell import Shell

DAILY = ["--cron", "0 2 * * *", "--timezone", "America/New_York"]


def create(shell: Shell, *more: str, customer: str = "acme") -> str:
    args = more or DAILY
    return str(shell.json("configs", "create", customer, "hello", *args)["configs"][0]["config_id"])


class TestCreate:
    """`configs create`."""

    def test_from_flags(self, shell: Shell) -> None:
        """It is on the clock at once, with everything that was said."""
        config_id = create(
            shell, *DAILY, "--param", "name=Ada", "--retry", "max_attempts=2", "--provider", "GCP",
            "--priority", "7", "--sla-breach-threshold-minutes", "15", "--overlap", "queue",
        )  # fmt: skip
        config = shell.json("configs", "show", config_id)
        assert config["parameters"] == {"name": "Ada"}
        assert config["retry_config"] == {"max_attempts": 2}
        assert (config["priority"], config["overlap"], config["version"]) == (7, "queue", 1)
        assert config["next_run_time"] is not None

    def test_people_see_the_first_run(self, shell: Shell) -> None:
        """With how far away it is."""
        text = shell.ok("configs", "create", "acme", "hello", "--every", "15")
        assert "first run" in text
        assert "(in 15 min)" in text

    def test_dry_run(self, shell: Shell) -> None:
        """Everything is checked, nothing is made."""
        assert "nothing was" in shell.ok("configs", "create", "acme", "hello", *DAILY, "--dry-run")
        assert shell.json("configs", "list")["configs"] == []

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
        """Nothing is half-written."""
        answer = shell("configs", "create", *args, "--json")
        assert answer.code == 2, answer
        assert answer.error()["field"] == field
        assert shell.json("configs", "list")["configs"] == []


def rows(n: int) -> list[dict[str, Any]]:
    return [
        {"customer_id": f"c{i}", "pipeline_template": "hello", "schedule_interval_minutes": 15}
        for i in range(n)
    ]


class TestFiles:
    """`configs create --file`."""

    @pytest.mark.parametrize("kind", ["json", "jsonl", "toml"])
    def test_each_format(self, shell: Shell, tmp_path: Path, kind: str) -> None:
        """JSON, JSON lines and TOML make the same configs."""
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
        made = shell.json("configs", "create", "--file", str(path))["configs"]
        assert [config["customer_id"] for config in made] == ["c0", "c1", "c2"]

    def test_many_are_summed_up(self, shell: Shell) -> None:
        """A thousand lines are not printed."""
        text = shell.ok("configs", "create", "--file", "-", stdin=json.dumps(rows(30)))
        assert "and 10 more" in text

    def test_one_bad_row_stops_all(self, shell: Shell, tmp_path: Path) -> None:
        """The error says which row; none is created."""
        bad = rows(3)
        bad[2]["priority"] = 99
        path = tmp_path / "configs.json"
        path.write_text(json.dumps(bad))
        answer = shell("configs", "create", "--file", str(path), "--json")
        assert answer.code == 2
        assert answer.error()["field"] == "configs.json item 3: priority"
        assert shell.json("configs", "list")["configs"] == []

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("a.json", "{", "JSON or JSON lines"),
            ("a.json", "[]", "at least one config"),
            ("a.json", "[1]", "an object"),
            ("a.json", '[{"pipeline_template": "hello"}]', "whose config it is"),
            ("a.jsonl", '{}\n{"a":\n', "line 2"),
            ("a.toml", "a = 1", "[[configs]]"),
            ("a.toml", "a =", "valid TOML"),
        ],
    )
    def test_bad_files(
        self, shell: Shell, tmp_path: Path, name: str, text: str, words: str
    ) -> None:
        """Each says what is wrong with the file."""
        (tmp_path / name).write_text(text)
        answer = shell("configs", "create", "--file", name)
        assert answer.code == 2
        assert words in answer.err


class TestChange:
    """Update, enable, disable, delete, start."""

    def test_update_and_versions(self, shell: Shell) -> None:
        """A change made on an old version is refused."""
        config_id = create(shell)
        assert "version 2" in shell.ok("configs", "update", config_id, "--priority", "9")
        stale = shell("configs", "update", config_id, "--priority", "1", "--version", "1", "--json")
        assert stale.code == 4
        assert stale.error()["current"] == 2
        nothing = shell("configs", "update", config_id)
        assert nothing.code == 2
        assert "at least one change" in nothing.err

    def test_switching_off_and_on(self, shell: Shell) -> None:
        """Off says how to switch on; both are in the audit trail with the reason."""
        config_id = create(shell)
        shell.ok("configs", "disable", config_id, "--reason", "holiday")
        assert f"penstock configs enable {config_id}" in shell.ok("configs", "show", config_id)
        assert "off (holiday)" in shell.ok("configs", "list", "--inactive")
        refused = shell("configs", "start", config_id)
        assert refused.code == 4
        assert f"penstock configs enable {config_id}" in refused.err
        shell.ok("configs", "enable", config_id)
        trail = shell.json("configs", "audit", "acme")["audit"]
        assert [row["action"] for row in trail] == ["CREATED", "DEACTIVATED", "ACTIVATED"]
        assert "holiday" in shell.ok("configs", "audit", "acme")

    def test_start(self, shell: Shell) -> None:
        """A config runs now, outside its schedule."""
        run_id = shell.json("configs", "start", create(shell))["run_ids"][0]
        assert shell.json("runs", "show", run_id)["run"]["trigger_source"] == "manual"

    def test_delete_asks_first(self, shell: Shell) -> None:
        """No is no; --yes does not ask."""
        config_id = create(shell)
        assert shell("configs", "delete", config_id, stdin="n\n").code == 130
        shell.ok("configs", "delete", config_id, "--yes", "--reason", "left us")
        assert shell("configs", "show", config_id).code == 3


class TestLook:
    """List, preview, ledger."""

    def test_empty(self, shell: Shell) -> None:
        """The empty list says how to fill it."""
        assert "penstock configs create" in shell.ok("configs", "list")

    def test_pages(self, shell: Shell) -> None:
        """`next_after` leads to the rest."""
        ids = [create(shell, customer=f"c{n}") for n in range(3)]
        first = shell.json("configs", "list", "--limit", "2")
        assert [c["config_id"] for c in first["configs"]] == ids[:2]
        rest = shell.json("configs", "list", "--after", first["next_after"])
        assert [c["config_id"] for c in rest["configs"]] == ids[2:]
        assert f"--after {ids[1]}" in shell.ok("configs", "list", "--limit", "2")

    def test_preview(self, shell: Shell) -> None:
        """The next fires in the config's own zone."""
        config_id = create(shell)
        fires = shell.json("configs", "preview", config_id, "-n", "3")["fires"]
        assert len(fires) == 3
        assert all("T02:00:00" in fire["local"] or fire["note"] for fire in fires)
        assert "IN America/New_York" in shell.ok("configs", "preview", config_id)
        event = create(shell, "--event-topic", "orders")
        assert "arrives on orders" in shell.ok("configs", "preview", event)

    def test_ledger(self, shell: Shell) -> None:
        """Nothing missed is said in words."""
        assert "Every slot so far has started" in shell.ok("configs", "ledger", create(shell))


def test_words_that_help(shell: Shell) -> None:
    """Durations for --every, --yes without a terminal, and how an event config starts."""
    made = shell.json("configs", "create", "acme", "hello", "--every", "5m")["configs"][0]
    assert made["schedule_interval_minutes"] == 5
    assert shell("configs", "create", "acme", "hello", "--every", "often").code == 2
    answer = shell("configs", "delete", made["config_id"])
    assert answer.code == 2
    assert "add --yes" in answer.err
    text = shell.ok("configs", "create", "acme", "hello", "--event-topic", "orders")
    assert "only `penstock configs start cfg_" in text
