"""What SOURCE means: an address, or a model of a hub at a revision. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit

from onecat.errors import OnecatError

HUB = "https://huggingface.co"
"""The hub where neither --endpoint nor HF_ENDPOINT names one
(https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables)."""
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")
Origin = tuple[str, str, int]


@dataclass(frozen=True)
class UrlSource:
    """A file, a directory listing or a manifest of checksums at an address."""

    url: str

    @property
    def origin(self) -> Origin:
        return origin(self.url)

    @property
    def text(self) -> str:
        return shown(self.url)


@dataclass(frozen=True)
class HubSource:
    """A model of a hub.

    endpoint: address without a slash at its end; model: ORG/NAME; revision: branch, tag or commit.
    """

    endpoint: str
    model: str
    revision: str = "main"

    @property
    def origin(self) -> Origin:
        return origin(self.endpoint)

    @property
    def text(self) -> str:
        return f"{shown(self.endpoint)}/{self.model}@{self.revision}"

    @property
    def revision_url(self) -> str:
        """Where the hub tells the commit of the revision."""
        return f"{self.endpoint}/api/models/{self.model}/revision/{quote(self.revision, safe='')}"

    def tree_url(self, commit: str) -> str:
        """Where the hub lists all files of a commit."""
        return f"{self.endpoint}/api/models/{self.model}/tree/{quote(commit, safe='')}?recursive=true"

    def file_url(self, commit: str, path: str) -> str:
        return f"{self.endpoint}/{self.model}/resolve/{quote(commit, safe='')}/{quote(path)}"


Source = UrlSource | HubSource


def parse_source(text: str, revision: str | None, endpoint: str | None, insecure_http: bool) -> Source:
    """The source that SOURCE, --revision and --endpoint name.

    Parameters:
        endpoint: what --endpoint or HF_ENDPOINT says. insecure_http: plain HTTP to other machines is allowed.

    Raises OnecatError (exit code 2).
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        if revision is not None:
            raise OnecatError(
                "--revision goes with ORG/NAME, and the source is an address",
                expected="an address that names the revision itself",
            )
        return UrlSource(checked_url(text, insecure_http))
    model, at, named = text.partition("@")
    if at and revision is not None and named != revision:
        raise OnecatError(
            f"two revisions are named: {named} and {revision}", expected="either ORG/NAME@REVISION or --revision"
        )
    if not _MODEL.fullmatch(model) or ".." in model or (at and not named):
        raise OnecatError(
            f"{text!r} is neither an address nor a model of a hub",
            expected="https://... or ORG/NAME or ORG/NAME@REVISION",
            next_steps=["onecat model pull --help"],
        )
    return HubSource(checked_url(endpoint or HUB, insecure_http).rstrip("/"), model, revision or named or "main")


def checked_url(url: str, insecure_http: bool) -> str:
    """`url` without its fragment. Raises OnecatError for one that onecat does not open, and never shows its secrets."""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise OnecatError(f"{parts.scheme}:// is not opened", expected="an address that begins with https://")
    if parts.username is not None or parts.password is not None:
        raise OnecatError(
            f"the address of {parts.hostname} holds a user name or password, which everybody on this machine could see",
            expected="an address without them; a token in a file",
            next_steps=["put the token into a file that only you can read and add --token-file FILE"],
        )
    try:
        origin(url)
    except ValueError as error:
        raise OnecatError(f"{shown(url)} has no valid port", expected="a port from 1 to 65535") from error
    if parts.scheme == "http" and not insecure_http and not is_loopback(url):
        raise OnecatError(
            f"{shown(url)} is plain HTTP: whoever sits between could change the weights unseen",
            expected="https://",
            next_steps=["use the https:// address of that host", "or add --insecure-http, best with --sha256 FILE"],
        )
    return urlunsplit(parts._replace(fragment=""))


def is_private(where: Origin) -> bool:
    """Whether nobody between reads what is sent there: by https, or to this machine itself."""
    return where[0] == "https" or _LOOPBACK.fullmatch(where[1]) is not None


def is_loopback(url: str) -> bool:
    """Whether an address is of this machine itself."""
    return _LOOPBACK.fullmatch(urlsplit(url).hostname or "") is not None


def origin(url: str) -> Origin:
    """Scheme, host and port: what a token belongs to. Raises ValueError for an invalid port."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or {"https": 443}.get(parts.scheme, 80)


def shown(url: str) -> str:
    """An address for people and logs: without user, password, query and fragment, which may be secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
