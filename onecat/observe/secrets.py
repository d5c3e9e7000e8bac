"""Takes secrets out of a text: keys, tokens, passwords, logins in addresses. Names and addresses stay. Pure.

What is recognised: well-known forms of tokens, logins in URLs, `Authorization` headers, private keys, and the values of
options, variables and fields whose names say that they are secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable

SECRET = "[redacted]"
"""What stands instead of a secret."""

_PEM = re.compile(r"-----BEGIN [^-\n]{1,60}-----.*?(?:-----END [^-\n]{1,60}-----|\Z)", re.DOTALL)
_URL = re.compile(
    r"\b(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,20})://(?:(?P<login>[^\s/@'\"<>]*)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s/:?#'\"<>,;)\]}\\]*)(?P<port>:\d+)?(?P<rest>[/?#][^\s'\"<>]*)?"
)
_TOKEN = re.compile(
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{6,}|\bhf_[A-Za-z0-9]{4,}(?!\w)|\bnvapi-[A-Za-z0-9_-]{4,}|\bgh[a-z]_[A-Za-z0-9]{6,}"
    r"|\bgithub_pat_\w{6,}|\bglpat-[\w-]{6,}|\bxox[a-z]-[\w-]{6,}|\bA[KS]IA[0-9A-Z]{8,}|\beyJ[\w-]{6,}(?:\.[\w-]*){0,2}"
    r"|\bAIza[\w-]{10,}|\bssh-(?:rsa|ed25519|dss) [A-Za-z0-9+/=]{8,}(?: \S+)?"
)
_AUTHORIZATION = re.compile(
    r"(?i)\b(bearer|basic|digest|token)(\s+)(?=[^\s'\",;]*\d)[^\s'\",;]{6,}|\b(authorization['\"]?\s*[:=]\s*).+"
)
_BEARER = re.compile(r"(?i)\b(bearer\s+)[^\s'\",;]+")
_SECRET_NAME = r"(?i)(?<![\w.-])([\w.-]{0,40}?(?:key|token|secret|password|passwd|pwd|passphrase|credentials?|cookie))"
_NAMED_SECRET = re.compile(_SECRET_NAME + r"(['\"]?\s*[:=]\s*)(\[[^\]]*\]|b?'[^']*'|b?\"[^\"]*\"|[^\s,;)}\]&]+)")
# An option may take several values, as vLLM's --api-key does.
_SPACED_SECRET = re.compile(
    _SECRET_NAME + r"(\s+)((?:'[^']*'|\"[^\"]*\"|[^\s-][^\s,;)}\]&]*)(?:\s(?=\S{0,200}\d)[^\s-][^\s,;)}\]&]*){0,20})"
)
_LISTED_SECRET = re.compile(_SECRET_NAME + r"(['\"],\s*)('[^']*'|\"[^\"]*\")")


# At least one of these is in every text with a secret, when its letters are small. Most lines of a log have none.
_NAMES = ("key", "token", "secret", "passw", "pwd", "passphrase", "credential", "cookie")
_SCHEMES = ("bearer", "basic", "digest", "authorization")
_FORMS = (
    *("-----begin", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "hf_", "nvapi-", "gh", "glpat-", "xox", "akia", "asia"),
    *("eyj", "aiza", "ssh-"),
)


def _without_login(found: re.Match[str]) -> str:
    return found[0].replace(f"{found['login']}@", f"{SECRET}@", 1) if found["login"] else found[0]


def without_secrets(text: str, url: Callable[[re.Match[str]], str] = _without_login) -> str:
    """A text without secrets; names and addresses stay.

    Parameters:
        url: what stands instead of a URL, by default the same without its login. Groups of the match: scheme, login,
            host, port, rest.
    """
    small = text.casefold()
    url_sign = "@" if url is _without_login else "://"
    if not any(sign in small for sign in (url_sign, *_NAMES, *_SCHEMES, *_FORMS)):
        return text
    text = _PEM.sub(SECRET, text)
    text = _URL.sub(url, text)
    text = _TOKEN.sub(SECRET, text)
    text = _AUTHORIZATION.sub(lambda found: f"{found[3] or found[1] + found[2]}{SECRET}", text)
    text = _BEARER.sub(lambda found: f"{found[1]}{SECRET}", text)
    text = _LISTED_SECRET.sub(_listed_secret, text)
    text = _NAMED_SECRET.sub(_named_secret, text)
    return _SPACED_SECRET.sub(_spaced_secret, text)


def _listed_secret(found: re.Match[str]) -> str:
    """What follows an option in a list of arguments."""
    return f"{found[1]}{found[2]}{SECRET}" if found[1].startswith("-") else found[0]


def _named_secret(found: re.Match[str]) -> str:
    return found[0] if SECRET.startswith(found[3]) else f"{found[1]}{found[2]}{SECRET}"


def _spaced_secret(found: re.Match[str]) -> str:
    """What follows an option such as --api-key; in prose only what looks like no word."""
    if found[1].startswith("-"):
        return found[0] if SECRET.startswith(found[3]) else f"{found[1]}{found[2]}{SECRET}"
    first, *rest = found[3].split(" ")
    is_word = not re.search(r"\d", first)
    return found[0] if is_word or SECRET.startswith(first) else " ".join((f"{found[1]}{found[2]}{SECRET}", *rest))
