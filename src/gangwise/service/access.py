"""Who may ask what of a running service: tokens of two roles, and addresses of this host."""

from __future__ import annotations

import hashlib
import ipaddress
import stat
from pathlib import Path
from typing import Literal

from gangwise.core.errors import ScenarioError

Role = Literal["reader", "operator"]


def read_tokens(file: Path | str) -> dict[str, Role]:
    """Roles by the SHA-256 of their tokens, from lines ``reader TOKEN`` and ``operator TOKEN``.

    Raises ScenarioError when others may read the file, or a line is not of that form.
    """
    path = Path(file)
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ScenarioError(f"{path}: tokens cannot be read: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ScenarioError(f"{path}: others may read these tokens; chmod 600 {path}")
    found: dict[str, Role] = {}
    for row, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        role = words[0]
        if len(words) != 2 or role not in ("reader", "operator") or len(words[1]) < 16:
            raise ScenarioError(
                f"{path}, row {row}: write 'reader TOKEN' or 'operator TOKEN', with at least 16 "
                "characters in a token"
            )
        found[digest(words[1])] = "reader" if role == "reader" else "operator"
    return found


def digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether nobody else can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
