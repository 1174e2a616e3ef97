"""The cookie in the folders of a bookie: it proves that these are the folders it had before.

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
"""The fields of a cookie as error messages name them."""


def has_entries(folder: str) -> bool:
    """Whether a folder of a bookie contains a journal, an entry log or an index."""
    current = os.path.join(folder, CURRENT)
    return bool(journal_files(current) or entry_log_files(current) or next(index_files(current), None))


def stamp_cookies(folders: Iterable[str], cookie: Cookie) -> None:
    """Write the cookie of a new bookie into its folders.

    Raises:
        StoreError: An I/O error occurred.
    """
    for folder in folders:
        current = Path(folder, CURRENT)
        try:
            current.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreIOError(str(current), "make", error.strerror or str(error)) from error
        write_file(current / COOKIE_FILE, encode_cookie(cookie), backup=False)


def has_grown(before: Cookie, cookie: Cookie) -> bool:
    """Whether the only difference is that a bookie has additional folders for ledgers."""
    added = [path for path in cookie.ledger_dirs if path not in before.ledger_dirs]
    kept = tuple(path for path in cookie.ledger_dirs if path not in added)
    same = replace(cookie, ledger_dirs=kept, index_dirs=kept)
    return bool(added) and same == replace(before, index_dirs=before.index_dirs or kept)


def check_cookies(
    folders: Iterable[str], expected: Cookie, stored: Cookie | None, *, also: Cookie | None = None
) -> None:
    """Make sure that folders, metadata store and settings agree.

    Args:
        folders: All of the bookie.
        expected: The cookie that the settings give.
        stored: The cookie in the metadata store.
        also: A second cookie that folders may have.

    Raises:
        BookieCookieError: They differ.
    """
    if stored is None:
        raise BookieCookieError(
            expected.bookie_host, "its folders contain entries, but its cluster has no cookie of it"
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
            raise BookieCookieError(expected.bookie_host, f"{path} differs: {differences(found, expected)}")


def differences(before: Cookie, now: Cookie) -> str:
    """Describe the fields in which two cookies differ."""
    found: list[str] = []
    for name, words in WORDS.items():
        old, new = getattr(before, name), getattr(now, name)
        # Indexes are in the folders of the ledgers, so one line covers both.
        if old != new and not (found and name == "index_dirs"):
            shown = [one if isinstance(one, str) else ", ".join(one) for one in (old, new)]
            found.append(f"{words} was {shown[0] or 'none'}, and is {shown[1] or 'none'}")
    return "; ".join(found)
