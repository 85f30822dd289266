"""Fails where a file of the tree names a folder of one machine, a package registry, or a text that its reader lacks."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINE = re.compile(r"(?<![\w.$/{-])/(?:work|farm|root|home|Users)/[a-z]")
REGISTRY = re.compile(
    r"(?:pypi|pythonhosted|npmjs|yarnpkg|golang|crates|maven|ghcr|quay)\.(?:org|com|io|dev)\b|docker\.(?:com\b|io/)",
    re.IGNORECASE,
)
"""`docker.io` alone is a package of Debian."""
NAMES_OF_MODULES = {"go.mod", "go.sum"}
"""What Go calls a module looks like an address; where it is fetched from stands elsewhere."""
ELSEWHERE = re.compile(r"original design|(?<!RFC \d{4} )§\d", re.IGNORECASE)
"""A section of a standard may be named: `RFC 9110 §7`."""
RULES = (
    ("a folder of one machine", MACHINE),
    ("a registry's address", REGISTRY),
    ("a text that its reader does not have", ELSEWHERE),
)


def main() -> int:
    """Look at every text file, tracked or new, but the recorded bodies, which are as the engine sent them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    status = 0
    for name in filter(None, listed.decode().split("\0")):
        path = ROOT / name
        if name.startswith("testdata/") or name == "hack/check_neutral.py" or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for what, pattern in RULES:
                if pattern.search(line) and not (pattern is REGISTRY and path.name in NAMES_OF_MODULES):
                    print(f"{name}:{number}: {what}")
                    status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
