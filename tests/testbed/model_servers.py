"""Web servers with models, each a real nginx: plain directories, a hub, and the host that the hub redirects to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.nginx_servers import wait_for
from tests.testbed.ports import free_port

TOKEN = "hf_0123456789abcdefghij"
COMMIT = "c0ffee" * 6 + "c0ff"
_MAIN = """daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
worker_processes 1;
user root;
events {{}}
http {{
  types {{ text/html html; application/json json; }}
  log_format seen '$server_port $request_method $uri $status auth="$http_authorization" range="$http_range"';
  access_log {directory}/access.log seen;
  client_body_temp_path {directory}/temp; proxy_temp_path {directory}/temp; fastcgi_temp_path {directory}/temp;
  uwsgi_temp_path {directory}/temp; scgi_temp_path {directory}/temp;
  limit_conn_zone $server_port zone=few:1m;
  limit_req_zone $server_port zone=some:1m rate=8r/s;
{servers}
}}
"""
_FILES = """  server {{
    listen 127.0.0.1:{port}; root {root};
    location / {{ autoindex on; }}
    location /norange/ {{ alias {root}/; max_ranges 0; autoindex on; }}
    location /slow/ {{ alias {root}/; limit_rate 400k; autoindex on; }}
    location /few/ {{ alias {root}/; limit_conn few 1; limit_conn_status 503; autoindex on; }}
    location /json/ {{ alias {root}/; autoindex on; autoindex_format json; }}
    location /untold/ {{ alias {root}/; autoindex on; if ($request_method = HEAD) {{ return 405; }} }}
    location /broken/ {{ return 503; }}
    location /limited/ {{
      alias {root}/; autoindex on; limit_req zone=some burst=4 nodelay; limit_req_status 429; error_page 429 = @later;
    }}
    location @later {{ add_header Retry-After 1 always; return 429; }}
  }}"""


@dataclass(frozen=True)
class ModelServers:
    """Running servers. files: address of the plain one, whose root is `root`; hub, store: of the hub and of the host
    that keeps its large files."""

    root: Path
    files: str
    hub: str
    store: str
    log: Path

    def requests(self) -> list[str]:
        """What was asked so far, one line each; see `log_format` above."""
        return self.log.read_text().splitlines()


@contextlib.contextmanager
def running_model_servers(
    nginx: str, directory: Path, files: Mapping[str, bytes], tls: str = ""
) -> Iterator[ModelServers]:
    """Serve files (path -> content) from a directory of their own.

    Parameters:
        tls: lines of nginx that make the plain server one with TLS.
    """
    root = directory / "root"
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    plain, hub, store = free_port(), free_port(), free_port()
    served = _FILES.format(port=plain, root=root)
    if tls:
        served = served.replace(f"127.0.0.1:{plain};", f"127.0.0.1:{plain} ssl; {tls}")
    servers = "\n".join([served, _hub(root, hub, store, files), _store(root, store)])
    configuration = directory / "nginx.conf"
    configuration.write_text(_MAIN.format(directory=directory, servers=servers))
    process = subprocess.Popen([nginx, "-c", str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{store}/ready")
        scheme = "https" if tls else "http"
        yield ModelServers(
            root,
            f"{scheme}://localhost:{plain}",
            f"http://127.0.0.1:{hub}",
            f"http://127.0.0.1:{store}",
            directory / "access.log",
        )
    finally:
        process.terminate()
        process.wait()


def _hub(root: Path, port: int, store: int, files: Mapping[str, bytes]) -> str:
    """A hub that wants a token, tells its files on two pages, and redirects large ones to another host."""
    rows = [_row(path, content) for path, content in files.items()]
    pages = root.parent / "pages"
    pages.mkdir()
    (pages / "one.json").write_text(json.dumps(rows[:1]))
    (pages / "two.json").write_text(json.dumps(rows[1:]))
    api = "/api/models/org/tiny"
    next_page = f"https://huggingface.example{api}/tree/{COMMIT}?recursive=true&cursor=two"
    large = [path for path, content in files.items() if _is_large(path)]
    redirects = "".join(
        f"""
    location = /org/tiny/resolve/{COMMIT}/{path} {{
      {_CHECK}
      add_header X-Linked-Etag '"{hashlib.sha256(files[path]).hexdigest()}"' always;
      add_header X-Linked-Size {len(files[path])} always;
      return 302 http://127.0.0.1:{store}/blobs/{path}?signature=do-not-show-this;
    }}"""
        for path in large
    )
    return f"""  server {{
    listen 127.0.0.1:{port};
    default_type application/json;
    location = {api}/revision/main {{ {_CHECK} return 200 '{json.dumps({"sha": COMMIT})}'; }}
    location = {api}/tree/{COMMIT} {{
      {_CHECK}
      if ($arg_cursor = "two") {{ rewrite ^ /two.json last; }}
      add_header Link '<{next_page}>; rel="next"';
      alias {pages}/one.json;
    }}
    location = /two.json {{ internal; root {pages}; }}{redirects}
    location /org/tiny/resolve/{COMMIT}/ {{ {_CHECK} alias {root}/; }}
  }}"""


_CHECK = f'if ($http_authorization != "Bearer {TOKEN}") {{ return 401; }}'


def _store(root: Path, port: int) -> str:
    return f"""  server {{
    listen 127.0.0.1:{port};
    location /blobs/ {{ alias {root}/; }}
    location = /ready {{ access_log off; return 204; }}
  }}"""


def _is_large(path: str) -> bool:
    return path.endswith(".safetensors")


def _row(path: str, content: bytes) -> dict[str, object]:
    blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    row: dict[str, object] = {"type": "file", "path": path, "size": len(content), "oid": blob}
    if _is_large(path):
        row["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return row
