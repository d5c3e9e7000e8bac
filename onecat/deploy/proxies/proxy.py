"""What every kind of nginx offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from onecat.deploy.releases import ProxyKind
from onecat.deploy.site import Site

if TYPE_CHECKING:
    from onecat.hosts import Machine


@runtime_checkable
class Proxy(Protocol):
    """An nginx before one deployment, on the deployment's host."""

    @property
    def kind(self) -> ProxyKind: ...

    @property
    def after_reboot(self) -> bool:
        """Whether it comes back by itself when the host has started anew."""

    def check(self, site: Site, directory: str) -> None:
        """Write the files for `site` into `directory` and let nginx test them; what serves now is not touched.

        Raises OnecatError with nginx's words.
        """

    def apply(self, site: Site) -> None:
        """Serve by `site` from now on: requests that run are finished by the old workers.

        Raises OnecatError when nginx refuses; then its files are those of before, and it serves as before.
        """

    def remove(self) -> None:
        """Take the site away; an nginx that is ours alone ends."""

    def files(self) -> dict[str, bytes]:
        """What is in force: the content of each of its files as it is on the host now, by path there."""

    def running(self) -> bool:
        """Whether nginx runs and has our site."""

    def pid(self) -> int | None:
        """The master process on the host; None when it does not run."""

    def workers(self) -> frozenset[int]:
        """Process ids of its workers, those that only finish their requests among them."""

    def servers_path(self) -> str:
        """Where the servers of a site that is probed stand on the host; see `onecat.deploy.probing`."""

    def argv(self, *words: str) -> tuple[Machine, list[str]]:
        """The command line that gives nginx these arguments, and the machine as whom it has to be run."""

    def access_lines(self, count: int) -> list[str]:
        """The last lines of the site's access log (JSON), oldest first."""

    def access_log_path(self) -> str:
        """Where the site's access log (JSON) lies on the host."""

    def error_log_path(self) -> str:
        """Where its error log lies on the host; of the host's nginx, that of all its sites."""
