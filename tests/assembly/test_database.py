"""Opening the store that the settings name."""

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.assembly.database import Migrate, open_client, open_store
from penstock.assembly.settings import Settings, load
from penstock.cli import cli
from penstock.core.errors import SchemaMismatch
from penstock.db import migrate
from penstock.db.statements import Engine
from tests.kits.databases import Admin
from tests.kits.shell import SHOP

OPENED = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND application_name = "
    "'penstock'"
)


@pytest.mark.postgres
@pytest.mark.parametrize("pipeline", ["on", "off"])
def test_the_first_connection_is_kept(
    pg_migrated_dsn: str, pg_migrated_name: str, pg_admin: Admin, pipeline: str
) -> None:
    """The connection that checks the server is the store's first one: a command opens one."""
    settings = load({}, overrides={"database_url": pg_migrated_dsn, "postgres_pipeline": pipeline})
    (kept,) = pg_admin.execute(OPENED.format(name=pg_migrated_name)).fetchall()[0]
    store = open_store(settings)
    try:
        assert store.read(lambda tx: tx.now()) > 0
        (found,) = pg_admin.execute(OPENED.format(name=pg_migrated_name)).fetchall()[0]
        assert found - kept == 1
    finally:
        store.close()


@pytest.fixture
def older_url(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> str:
    """A database that lacks the newest migration."""
    url = f"sqlite:{tmp_path / 'older.db'}"
    if engine == "postgres":
        url = request.getfixturevalue("pg_dsn")
    name: Engine = "postgres" if engine == "postgres" else "sqlite"
    older = migrate.migrations(name)[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda _: older)
        open_store(settings_of(url), migrate="always").close()
    return url


def settings_of(url: str) -> Settings:
    return load({}, overrides={"database_url": url})


class TestMigratesWhen:
    """On PostgreSQL an operator decides when a schema changes; an SQLite file has one user."""

    NEWEST = migrate.migrations("postgres")[-1].name

    def test_never(self, older_url: str) -> None:
        with pytest.raises(SchemaMismatch, match=f"{self.NEWEST}\\): run `penstock db migrate`"):
            open_store(settings_of(older_url))

    @pytest.mark.parametrize("migrate_when", ["new", "file"])
    def test_new(self, older_url: str, engine: str, migrate_when: Migrate) -> None:
        """Programs, and all processes but `penstock up`, open the database like this."""
        if engine == "sqlite":
            with closing(open_store(settings_of(older_url), migrate=migrate_when)) as store:
                assert store.verify() == []
            return
        with (
            pytest.raises(SchemaMismatch, match=self.NEWEST),
            open_client(settings_of(older_url), actor="test", migrate=migrate_when),
        ):
            pass
        result = CliRunner().invoke(
            cli, ["--database-url", older_url, "worker", "--pipelines", SHOP]
        )
        assert result.exit_code == 6
        assert f"{self.NEWEST}): run `penstock db migrate`" in result.stderr

    def test_always(self, older_url: str) -> None:
        with closing(open_store(settings_of(older_url), migrate="always")) as store:
            assert store.verify() == []

    @pytest.mark.postgres
    def test_an_empty_database_is_created_for_a_program(self, pg_dsn: str) -> None:
        """A process refuses it: the name in the address may be wrong."""
        choices: tuple[Migrate, ...] = ("never", "file")
        for migrate_when in choices:
            with pytest.raises(SchemaMismatch, match="has no tables of Penstock"):
                open_store(settings_of(pg_dsn), migrate=migrate_when)
        for command in (["worker", "--pipelines", SHOP], ["scheduler"], ["api"]):
            result = CliRunner().invoke(cli, ["--database-url", pg_dsn, *command])
            assert (result.exit_code, "run `penstock" in result.stderr) == (6, False)
            assert "has no tables of Penstock. Create them with `penstock db migrate`" in (
                result.stderr
            )
        with open_client(settings_of(pg_dsn), actor="test", migrate="new") as client:
            assert client.runs.list().items == []
