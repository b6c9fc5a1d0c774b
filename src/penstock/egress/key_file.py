"""Encryption of stored private keys with a key in a file outside the database.

A copy of the database without the file cannot sign tokens. The file is created on first use,
readable by its owner only. `cryptography` comes with the extra `penstock-engine[oidc]`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from penstock.core.errors import SettingsError

SEALED: Final = "fernet:"
"""Prefix of an encrypted text."""
_FIELD: Final = "encryption_key_file"


class KeyFile:
    """Encrypts and decrypts with the key in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def encrypt(self, text: str) -> str:
        """Return the encrypted text; create the file if it does not exist."""
        # Loaded on use: it comes with an extra.
        from cryptography.fernet import Fernet

        try:
            cipher = Fernet(self._key(create=True))
        except (ValueError, OSError):
            raise SettingsError(
                _FIELD,
                "a file with a key, or a path where one can be created",
                str(self._path),
                "Remove the existing file, then sign with a new key: penstock db rotate-push-key",
            ) from None
        return SEALED + cipher.encrypt(text.encode()).decode()

    def decrypt(self, text: str) -> str:
        """Return the text; raise SettingsError if the file is missing or has another key."""
        # As above.
        from cryptography.fernet import Fernet, InvalidToken

        try:
            key = self._key(create=False)
            return Fernet(key).decrypt(text.removeprefix(SEALED).encode()).decode()
        except (InvalidToken, ValueError, OSError):
            raise SettingsError(
                _FIELD,
                "the file whose key encrypted the signing key",
                str(self._path),
                "Restore the file, or sign with a new key: penstock db rotate-push-key",
            ) from None

    def _key(self, *, create: bool) -> bytes:
        if create and not self._path.exists():
            # As above.
            from cryptography.fernet import Fernet

            create_private(self._path, Fernet.generate_key())
        found = self._path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_mode & stat.S_IRWXO:
            raise SettingsError(
                _FIELD, "a file that other users cannot read", str(self._path),
                f"chmod 600 {self._path}",
            )  # fmt: skip
        return self._path.read_bytes().strip()


def create_private(path: Path, content: bytes) -> bool:
    """Create a file that only its owner can read; return False if it exists. Follows no link.

    A file that cannot be written, as on a full disk, is removed: an empty file would later be used
    as the key.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        number = os.open(path, flags, 0o600)
    except FileExistsError:
        return False
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(number)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True
