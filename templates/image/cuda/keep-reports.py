"""keep-reports.py FROM TO: keeps what the image was made of, and nothing of where it came from.

pip's reports name addresses: a mirror that only one company has, sometimes with a key in it. Names, versions and hashes
are the same wherever packages come from.
"""

import json
import shutil
import sys
from pathlib import Path


def without_addresses(report):
    """A report of `pip install --report` with what names each package, and its hashes."""
    rows = [
        {
            "is_direct": row["is_direct"],
            "download_info": {"archive_info": row["download_info"].get("archive_info", {})},
            "metadata": {"name": row["metadata"]["name"], "version": row["metadata"]["version"]},
        }
        for row in report["install"]
    ]
    return {"version": report["version"], "install": rows}


def main(source, target):
    target.mkdir(parents=True)
    for path in sorted(source.glob("*.json")):
        if path.name.startswith("pip-"):
            text = json.dumps(without_addresses(json.loads(path.read_text(encoding="utf-8"))), indent=1)
            (target / path.name).write_text(text + "\n", encoding="utf-8")
        else:
            shutil.copyfile(path, target / path.name)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
