"""Checkpoints: the state of an unfinished run, signed with a key of the user's own.

A checkpoint holds objects of any class, so it is a pickle, and whoever unpickles a file runs what
its writer put into it. Therefore each carries an HMAC-SHA256 over all of it, made with a key that
only this user can read. A file without a valid one is refused before it is unpickled. Its lines::

    gangwise-checkpoint-3
    {"hmac": …, "key": first digits of the digest of the key}
    {"version": …, "run": what defines the run, "size": …}
    pickle
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
import secrets
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gangwise import __version__
from gangwise.core.errors import StoreError
from gangwise.core.files import digest_of, write_side_file, write_whole

FORMAT = b"gangwise-checkpoint-3"
AFRESH = "delete it to start afresh"


def key_file() -> Path:
    """``gangwise/key`` in the user's configuration folder."""
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA", Path.home() / "AppData" / "Roaming"))
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "gangwise" / "key"


def user_key() -> bytes:
    """The key of this user, made on first use.

    Raises StoreError when it cannot be made or read, or others can read it.
    """
    path = key_file()
    try:
        if not path.exists():
            _make_key(path)
        about = path.stat()
        if sys.platform != "win32" and (
            about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077
        ):
            raise StoreError(
                f"{path} must be yours alone, for it vouches for checkpoints: chmod 600 {path}, or "
                "remove it (checkpoints made with it are then refused)"
            )
        key = path.read_bytes()
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"there is no key to sign checkpoints with: {path}: {error.strerror}; set "
            "XDG_CONFIG_HOME to a folder that you can write to"
        ) from error
    if len(key) != 32:
        raise StoreError(f"{path} is damaged; remove it (checkpoints made with it are refused)")
    return key


def _make_key(path: Path) -> None:
    """Make a key; of two processes that make one at the same time, the first counts."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    side = write_side_file(path.parent, secrets.token_bytes(32), 0o600)
    try:
        os.link(side, path)
    except FileExistsError:
        pass
    except OSError:  # no hard links on this disk
        os.replace(side, path)
    finally:
        side.unlink(missing_ok=True)


def write_checkpoint(path: Path, state: object, run: Mapping[str, Any]) -> None:
    """Save a state that pickles, all or nothing; raises StoreError when it cannot be written.

    ``run`` is what defines the run: see :meth:`gangwise.experiments.runs.RunSpec.identity`.
    """
    key = user_key()
    payload = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
    about = {"version": __version__, "run": dict(run), "size": len(payload)}
    body = json.dumps(about).encode() + b"\n" + payload
    seal = {"hmac": hmac.new(key, body, hashlib.sha256).hexdigest(), "key": digest_of(key)[:8]}
    write_whole(path, b"\n".join([FORMAT, json.dumps(seal).encode(), body]), 0o600)


def read_checkpoint(path: Path, run: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """A state that this user saved with this version, and what defines its run.

    ``run`` is what the run must be; any run will do where it is not given. Raises StoreError when
    the file is no checkpoint, damaged, another user's, or of another run or version.
    """
    about, payload = check_checkpoint(path)
    if about["version"] != __version__:
        raise StoreError(
            f"{path} was saved by gangwise {about['version']}, this is {__version__}; {AFRESH}"
        )
    if run is not None and about["run"] != json.loads(json.dumps(dict(run))):
        raise StoreError(
            f"{path} holds another run: {differences(about['run'], run)}; give the arguments that "
            f"it was started with, or {AFRESH}"
        )
    try:
        return pickle.loads(payload), about["run"]
    except Exception as error:  # classes that moved or changed raise anything
        raise StoreError(f"{path} cannot be resumed ({error}); {AFRESH}") from error


def check_checkpoint(path: Path) -> tuple[dict[str, Any], bytes]:
    """What a checkpoint says of itself, and its pickle, which fits its seal and is not opened.

    Raises StoreError when the file is no checkpoint, damaged, or another user's.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read the checkpoint {path}: {error.strerror}") from error
    marker, _, rest = content.partition(b"\n")
    sealed, _, body = rest.partition(b"\n")
    if marker != FORMAT:
        raise StoreError(f"{path} is not a whole gangwise checkpoint of this version; {AFRESH}")
    key = user_key()
    try:
        seal = json.loads(sealed)
        theirs, made = str(seal["key"]), str(seal["hmac"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a whole gangwise checkpoint; {AFRESH}") from error
    if not hmac.compare_digest(
        made.encode(), hmac.new(key, body, hashlib.sha256).hexdigest().encode()
    ):
        if theirs != digest_of(key)[:8]:
            raise StoreError(
                f"{path} was saved by another user, or with another key than {key_file()}; it is "
                f"not opened, for it could run any command; {AFRESH}"
            )
        raise StoreError(f"{path} is damaged: its seal does not fit; {AFRESH}")
    header, _, payload = body.partition(b"\n")
    return json.loads(header), payload


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between two identities, in words.

    >>> differences({"seed": 1, "settings": {"rho": 0.5}}, {"seed": 1, "settings": {"rho": 0.7}})
    'rho was 0.5 and is now 0.7'
    """
    found = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found.append(differences(old, new))
        else:
            found.append(f"{name} was {_short(old)} and is now {_short(new)}")
    return ", ".join(found)


def _short(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
