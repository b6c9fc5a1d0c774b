"""Where a worker finds secrets: the customer's own file, the environment, a shared file."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.access.secrets import BYTES_MAX, Secrets
from penstock.assembly.settings import load, secrets_from_environment
from penstock.core.errors import PermanentError
from penstock.core.redact import KNOWN_SECRETS, MASK, redact_text


@pytest.fixture(autouse=True)
def _unregister() -> Iterator[None]:
    yield
    KNOWN_SECRETS.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a shared secret and acme's own secrets."""
    (tmp_path / "db").write_text("shared-value\n")
    (tmp_path / "customers" / "acme").mkdir(parents=True)
    (tmp_path / "customers" / "acme" / "db").write_text("value-of-acme\n")
    (tmp_path / "customers" / "acme" / "own").write_text("only-acme's")
    return tmp_path


def test_order(folder: Path) -> None:
    """A customer's own file wins, then the environment, then the shared file."""
    secrets = Secrets({"db": "from-environment"}, str(folder))
    assert secrets.get("db", "acme") == "value-of-acme"
    assert secrets.get("db", "bravo") == "from-environment"
    assert Secrets({}, str(folder)).get("db", "bravo") == "shared-value"


def test_other_customers(folder: Path) -> None:
    """A customer's own secret is not available to other customers."""
    secrets = Secrets({}, str(folder))
    assert secrets.get("own", "acme") == "only-acme's"
    with pytest.raises(PermanentError, match="PENSTOCK_SECRET_OWN"):
        secrets.get("own", "bravo")


@pytest.mark.parametrize("name", ["", "../db", "DB", "a/b", "customers/acme/own", "x" * 64])
def test_names(folder: Path, name: str) -> None:
    """An invalid name finds nothing, in particular no file of another folder."""
    with pytest.raises(PermanentError) as caught:
        Secrets({}, str(folder)).get(name, "bravo")
    assert caught.value.error_type == "INVALID_CONFIGURATION"


def test_files_that_cannot_be_read(folder: Path) -> None:
    """The error about a folder, a huge file or a binary file names only the secret."""
    (folder / "folder").mkdir()
    (folder / "huge").write_text("x" * (BYTES_MAX + 1))
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("folder", "huge", "binary"):
        with pytest.raises(PermanentError, match=f'secret "{name}"'):
            Secrets({}, str(folder)).get(name, "acme")


def test_resolving() -> None:
    """References are replaced at any depth; other values and the original are unchanged."""
    secrets = Secrets({"a": "value-a"})
    given = {"x": {"$secret": "a"}, "list": [{"y": {"$secret": "a"}}, 5], "n": None}
    resolved = secrets.resolve(given, "acme")
    assert resolved == {"x": "value-a", "list": [{"y": "value-a"}, 5], "n": None}
    assert given["x"] == {"$secret": "a"}
    with pytest.raises(PermanentError, match=r"parameters\.x"):
        secrets.resolve({"x": {"$secret": "a", "more": 1}}, "acme")


def test_masked_afterwards() -> None:
    """A value that was returned is masked from then on; `repr` never shows it."""
    secrets = Secrets({"a": "value-a"})
    assert "value-a" not in repr(secrets)
    assert redact_text("value-a") == "value-a"
    secrets.get("a", "acme")
    assert redact_text("is value-a") == f"is {MASK}"


def test_child_processes_receive_the_secrets() -> None:
    """Child processes of the worker have the same secrets."""
    again = pickle.loads(pickle.dumps(Secrets({"a": "value-a"}, "folder")))
    assert again.get("a", "acme") == "value-a"
    assert again.folder == "folder"


def test_from_the_environment() -> None:
    """PENSTOCK_SECRET_… variables are secrets, not settings; secrets_dir is a setting."""
    environment = {"PENSTOCK_SECRET_DB_PASSWORD": "x y", "PENSTOCK_SECRETS_DIR": "folder"}
    assert secrets_from_environment(environment) == {"db_password": "x y"}
    assert load(environment).secrets_dir == "folder"
