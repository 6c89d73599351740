"""Who may look at a page: whoever has the token that `camshaft watch` prints."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field

THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::(\d{1,5}))?", re.IGNORECASE)


@dataclass(frozen=True)
class Access:
    """A token of 128 random bits, new for each server, and the cookie that carries it."""

    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def opens(self, query: str) -> bool:
        """True if the query of an address, such as `token=...`, holds the token."""
        return query.startswith("token=") and self._is_token(query.removeprefix("token="))

    def knows(self, host: str, cookies: str) -> bool:
        """True if one of the cookies of a request holds the token."""
        pairs = [pair.strip().partition("=") for pair in cookies.split(";")]
        return any(key == cookie_name(host) and self._is_token(value) for key, _, value in pairs)

    def cookie(self, host: str) -> str:
        """The cookie for a browser that asked at this host, until the browser is closed."""
        return f"{cookie_name(host)}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def is_this_machine(host: str) -> bool:
    """False if a page of another site may have sent a request, by a name that resolves to here.

    The port may be any, since `ssh -L` may forward another one.
    """
    return THIS_MACHINE.fullmatch(host) is not None


def cookie_name(host: str) -> str:
    """The name of the cookie, with the port as the browser sees it.

    A browser sends a cookie to every port of a host, so two servers need two names. Two servers
    that `ssh` forwards may listen on one port of two machines: only the browser's ports differ.
    """
    found = THIS_MACHINE.fullmatch(host)
    return f"camshaft-{(found and found[1]) or 80}"
