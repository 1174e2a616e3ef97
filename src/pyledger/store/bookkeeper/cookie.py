"""The cookie of a bookie in its folders: what proves that they are the ones it had before.

Source: BookKeeper bookie/Cookie.java, LegacyCookieValidation.java.
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pyledger.errors import BookieCookieError, LedgerMetadataError, StoreIOError
from pyledger.regular_file import read_regular
from pyledger.store.bookkeeper.folder import (
    COOKIE_FILE,
    CURRENT,
    entry_log_files,
    index_files,
    journal_files,
)
from pyledger.store.files.meta_file import write_file
from pyledger.wire.bookkeeper.bookies import Cookie, decode_cookie, encode_cookie

WORDS = {
    "bookie_host": "its name",
    "journal_dirs": "its journal",
    "ledger_dirs": "the folder of its ledgers",
    "instance_id": "its cluster",
    "index_dirs": "the folder of its indexes",
}
"""Fields of a cookie, for people."""


def has_entries(folder: str) -> bool:
    """Whether anything of ledgers lies in a folder of a bookie."""
    current = os.path.join(folder, CURRENT)
    return bool(journal_files(current) or entry_log_files(current) or next(index_files(current), None))


def stamp_cookies(folders: Iterable[str], cookie: Cookie) -> None:
    """Write the cookie of a new bookie into its folders.

    Raises:
        StoreError: The operating system refused.
    """
    for folder in folders:
        current = Path(folder, CURRENT)
        try:
            current.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreIOError(str(current), "make", error.strerror or str(error)) from error
        write_file(current / COOKIE_FILE, encode_cookie(cookie), backup=False)


def has_grown(before: Cookie, cookie: Cookie) -> bool:
    """Whether a bookie has folders for ledgers that it had not before, and is the same else."""
    added = [path for path in cookie.ledger_dirs if path not in before.ledger_dirs]
    kept = tuple(path for path in cookie.ledger_dirs if path not in added)
    same = replace(cookie, ledger_dirs=kept, index_dirs=kept)
    return bool(added) and same == replace(before, index_dirs=before.index_dirs or kept)


def check_cookies(
    folders: Iterable[str], expected: Cookie, stored: Cookie | None, *, also: Cookie | None = None
) -> None:
    """Make sure that folders, metadata store and settings tell the same.

    Args:
        folders: All of the bookie.
        expected: What the settings make.
        stored: What the metadata store has.
        also: What folders may have as well.

    Raises:
        BookieCookieError: They do not.
    """
    if stored is None:
        raise BookieCookieError(
            expected.bookie_host, "its folders hold entries, and its cluster does not know it"
        )
    if stored != expected:
        raise BookieCookieError(expected.bookie_host, differences(stored, expected))
    for folder in folders:
        path = Path(folder, CURRENT, COOKIE_FILE)
        try:
            found = decode_cookie(read_regular(path))
        except FileNotFoundError:
            raise BookieCookieError(expected.bookie_host, f"{path} is missing: a disk was lost") from None
        except (OSError, LedgerMetadataError) as error:
            raise BookieCookieError(expected.bookie_host, f"{path} cannot be read ({error})") from error
        if found not in (stored, also):
            raise BookieCookieError(
                expected.bookie_host, f"{path} tells otherwise: {differences(found, expected)}"
            )


def differences(before: Cookie, now: Cookie) -> str:
    """In which fields two cookies differ, for people."""
    told: list[str] = []
    for name, words in WORDS.items():
        old, new = getattr(before, name), getattr(now, name)
        # Indexes lie beside their ledgers, so one of the two says it.
        if old != new and not (told and name == "index_dirs"):
            shown = [one if isinstance(one, str) else ", ".join(one) for one in (old, new)]
            told.append(f"{words} was {shown[0] or 'none'}, and is {shown[1] or 'none'}")
    return "; ".join(told)
