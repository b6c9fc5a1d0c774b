"""Files on a shared machine: nothing that Penstock creates is open to other users."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.access.store.keys import secret_get
from penstock.assembly import push
from penstock.assembly.database import open_store
from penstock.assembly.process import development_key
from penstock.assembly.settings import Settings, load
from penstock.bus.push.signing_keys import NAME
from penstock.client import Client
from penstock.core.errors import SettingsError, StoreUnavailable
from penstock.db.notifier import SocketNotifier, UnsafeFolder
from penstock.egress.key_file import create_private
from penstock.egress.oidc import SigningKey
from penstock.egress.tokens import public_jwk


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return the settings of a new database file."""
    return load({"PENSTOCK_DATABASE_URL": f"sqlite:{tmp_path}/a.db"})


def test_the_database(settings: Settings, tmp_path: Path) -> None:
    """The file, its log and its shared memory are for their owner only, as is the key."""
    before = os.umask(0)
    try:
        with closing(open_store(settings, migrate="always")) as store:
            assert development_key(Client(store), settings)
            found = {path.name: mode(path) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert found == dict.fromkeys(("a.db", "a.db-wal", "a.db-shm", "a.db.key"), 0o600)


def test_an_existing_file_keeps_its_mode(settings: Settings, tmp_path: Path) -> None:
    """The creator of the file chose who may read it."""
    (tmp_path / "a.db").touch(mode=0o640)
    (tmp_path / "a.db").chmod(0o640)
    open_store(settings, migrate="always").close()
    assert mode(tmp_path / "a.db") == 0o640


def test_a_link_to_a_new_file(settings: Settings, tmp_path: Path) -> None:
    """The file that a link leads to is for its owner only, too."""
    target = tmp_path / "target.db"
    (tmp_path / "a.db").symlink_to(target)
    open_store(settings, migrate="always").close()
    assert mode(target) == 0o600


def test_a_key_that_is_no_text(settings: Settings, tmp_path: Path) -> None:
    """What cannot be a key is replaced."""
    (tmp_path / "a.db.key").write_bytes(b"\xff\xfe")
    with closing(open_store(settings, migrate="always")) as store:
        made = development_key(Client(store), settings)
    assert (tmp_path / "a.db.key").read_text() == f"{made}\n"


def test_a_key_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves no empty file, which would be taken for the key."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        create_private(tmp_path / "key", b"x")
    assert list(tmp_path.iterdir()) == []


class TestMovedDatabase:
    """A database file that is removed or replaced while it is open."""

    @pytest.mark.parametrize("kind", ["removed", "replaced", "put back"])
    def test_writes(self, settings: Settings, tmp_path: Path, kind: str) -> None:
        """Nothing is accepted that would be lost; a file that was put back is used again."""
        file, other = tmp_path / "a.db", tmp_path / "other.db"
        with closing(open_store(settings, migrate="always")) as store:
            views = Client(store).views
            views.check_write()
            file.rename(other)
            if kind == "replaced":
                file.write_bytes(other.read_bytes())
            if kind == "put back":
                other.rename(file)
                views.check_write()
            else:
                with pytest.raises(StoreUnavailable, match="removed or replaced"):
                    views.check_write()
                assert file.exists() is (kind == "replaced")


def test_the_key_follows_no_link(settings: Settings, tmp_path: Path) -> None:
    """A link in place of the key's file is replaced, not followed."""
    target = tmp_path / "target"
    (tmp_path / "a.db.key").symlink_to(target)
    with closing(open_store(settings, migrate="always")) as store:
        assert development_key(Client(store), settings)
    assert not target.exists()
    assert not (tmp_path / "a.db.key").is_symlink()


class TestSigningKey:
    """The key that signs push tokens."""

    def test_encrypted(self, settings: Settings, tmp_path: Path) -> None:
        """The database holds it encrypted; the key file is for its owner only."""
        with closing(open_store(settings, migrate="always")) as store:
            made = push.signing_keys(store, settings).current()
            text = store.read(lambda tx: secret_get(tx, NAME))
            assert text is not None
            assert "PRIVATE" not in text
            assert push.signing_keys(store, settings).current() == made
        file = tmp_path / "a.db.encryption-key"
        assert mode(file) == 0o600

    def test_stored_before(self, settings: Settings) -> None:
        """A key that was stored as it is gets encrypted, and stays the same key."""
        with closing(open_store(settings, migrate="always")) as store:
            plain = load({"PENSTOCK_DATABASE_URL": "sqlite::memory:"})
            made = push.signing_keys(store, plain).current()
            assert push.signing_keys(store, settings).current() == made
            text = store.read(lambda tx: secret_get(tx, NAME))
            assert text is not None
            assert "PRIVATE" not in text
            with pytest.raises(SettingsError, match="PENSTOCK_ENCRYPTION_KEY_FILE"):
                push.signing_keys(store, plain).current()

    def test_the_file_is_lost(self, settings: Settings, tmp_path: Path) -> None:
        """Without the file nothing is signed; a rotation starts with a new key."""
        with closing(open_store(settings, migrate="always")) as store:
            first = push.signing_keys(store, settings).current()
            (tmp_path / "a.db.encryption-key").unlink()
            with pytest.raises(SettingsError, match="rotate-push-key"):
                push.signing_keys(store, settings).current()
            second = push.rotate_signing_key(store, settings, "tester")
            keys = push.signing_keys(store, settings)
            assert [key.key_id for key in keys.published()] == [second] != [first.key_id]

    def test_open_to_others(self, settings: Settings, tmp_path: Path) -> None:
        """A key file that other users can read is refused."""
        with closing(open_store(settings, migrate="always")) as store:
            push.signing_keys(store, settings).current()
            (tmp_path / "a.db.encryption-key").chmod(0o644)
            with pytest.raises(SettingsError, match="chmod 600"):
                push.signing_keys(store, settings).current()

    @pytest.mark.parametrize("content", [b"", b"garbage\n", None])
    def test_no_key(self, settings: Settings, tmp_path: Path, content: bytes | None) -> None:
        """A file without a key, or a link to nowhere, is named with what to do."""
        file = tmp_path / "a.db.encryption-key"
        with closing(open_store(settings, migrate="always")) as store:
            push.signing_keys(store, settings).current()
            file.unlink()
            if content is None:
                file.symlink_to(tmp_path / "nowhere")
            else:
                file.write_bytes(content)
                file.chmod(0o600)
            with pytest.raises(SettingsError, match="rotate-push-key"):
                push.signing_keys(store, settings).current()
            with pytest.raises(SettingsError, match="Remove the existing file"):
                push.rotate_signing_key(store, settings, "tester")
            file.unlink()
            assert push.rotate_signing_key(store, settings, "tester")

    def test_public_keys_are_read_once(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Anyone may ask for the public keys; a private key is read once for them."""
        number: list[SigningKey] = []

        def counted(key: SigningKey) -> dict[str, str]:
            number.append(key)
            return public_jwk(key)

        monkeypatch.setattr(push, "public_jwk", counted)
        with closing(open_store(settings, migrate="always")) as store:
            push.signing_keys(store, settings).current()
            receiving = push.build_push_auth(store, settings)
            assert receiving.keys() == receiving.keys() != []
            assert len(number) == 1
            push.rotate_signing_key(store, settings, "tester")
            assert len(receiving.keys()) == len(number) == 2


class TestSockets:
    """The folder of sockets that wake other processes, in the shared temporary folder."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """Return the folder that will be used; the path of a socket must be short."""
        with tempfile.TemporaryDirectory() as short:
            monkeypatch.setattr("tempfile.gettempdir", lambda: short)
            peers = SocketNotifier(tmp_path / "a.db", lambda _: None)
            used = peers._folder
            assert mode(used) == 0o700
            peers.close()
            assert not used.exists()
            yield used

    @pytest.mark.parametrize("kind", ["link", "open", "file"])
    def test_prepared_by_another_user(self, folder: Path, tmp_path: Path, kind: str) -> None:
        """A link, a folder open to others and a file are refused and left as they are."""
        theirs = tmp_path / "theirs"
        theirs.mkdir(mode=0o700)
        (theirs / "precious").write_text("x")
        if kind == "link":
            folder.symlink_to(theirs)
        elif kind == "open":
            folder.mkdir()
            folder.chmod(0o777)
        else:
            folder.write_text("x")
        with pytest.raises(UnsafeFolder, match="TMPDIR"):
            SocketNotifier(tmp_path / "a.db", lambda _: None)
        assert (theirs / "precious").read_text() == "x"

    def test_a_foreign_folder(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder of another user is refused."""
        folder.mkdir(mode=0o700)
        real = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: real + 1)
        folder.rename(folder.with_name(folder.name.replace(f"-{real}-", f"-{real + 1}-")))
        with pytest.raises(UnsafeFolder):
            SocketNotifier(tmp_path / "a.db", lambda _: None)

    def test_only_sockets_are_removed(self, folder: Path, tmp_path: Path) -> None:
        """A file that lies among the sockets stays."""
        peers = SocketNotifier(tmp_path / "a.db", lambda _: None)
        (folder / "precious").write_text("x")
        peers.notify(["runs"])
        peers.close()
        assert (folder / "precious").read_text() == "x"

    def test_the_store_goes_on(
        self, folder: Path, settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without a safe folder the store works; it warns once that others are not notified."""
        folder.write_text("x")
        assert Path(settings.database_url.removeprefix("sqlite:")) == tmp_path / "a.db"
        with closing(open_store(settings, migrate="always")) as store:
            for _ in range(2):
                store.wake(["admit"])
        assert len([r for r in caplog.records if "not notified immediately" in r.message]) == 1

    def test_a_folder_that_is_too_long(
        self,
        settings: Settings,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Hints are optional: where no socket can be bound the store works without them."""
        long = tmp_path / ("d" * 120)
        long.mkdir()
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(long))
        with closing(open_store(settings, migrate="always")) as store:
            store.wake(["admit"])
            store.listen(["admit"]).close()
        assert len([r for r in caplog.records if "not notified immediately" in r.message]) == 1
