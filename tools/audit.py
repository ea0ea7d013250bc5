"""`make audit`: known vulnerabilities of the versions in constraints.txt.

Asks the advisory database by pip-audit, which is installed first. Exit codes: 0, none is known;
1, some are, and listed; 3, the database could not be asked, and nothing is known.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLEAN, FOUND, UNKNOWN = 0, 1, 3
ASK = ("-m", "pip_audit", "--requirement", str(ROOT / "constraints.txt"), "--no-deps",
       "--disable-pip", "--progress-spinner", "off", "--format", "json")  # fmt: skip


def main() -> int:
    """Install pip-audit, ask, and say what is known."""
    installed = _python("-m", "pip", "install", "--quiet", "pip-audit")
    if installed.returncode:
        return _unknown("pip-audit could not be installed", installed.stderr)
    return outcome(_python(*ASK))


def outcome(asked: "subprocess.CompletedProcess[str]") -> int:
    """What pip-audit's answer means.

    It ends with 0 and "no known vulnerabilities" also if no package could be looked up, so its list
    of packages is read: one that was skipped is not audited.
    """
    try:
        packages = json.loads(asked.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return _unknown("the advisory database could not be asked", asked.stderr)
    vulnerable = [p for p in packages if p.get("vulns")]
    skipped = [p for p in packages if "skip_reason" in p]
    for package in vulnerable:
        ids = ", ".join(known["id"] for known in package["vulns"])
        print(f"{package['name']} {package['version']}: {ids}")
    if skipped or not packages:
        names = f"{len(skipped)} of {len(packages)} packages could not be looked up"
        unknown = _unknown(names, skipped[0]["skip_reason"] if skipped else "")
        return FOUND if vulnerable else unknown
    print(f"{len(packages)} packages looked up, {len(vulnerable)} with known vulnerabilities")
    return FOUND if vulnerable else CLEAN


def _unknown(what: str, why: str) -> int:
    lines = why.strip().splitlines() or ["no reason was given"]
    print(f"NOT AUDITED: {what}, so nothing is known about them.")
    print(f"  {lines[-1][:300]}")
    print("  try: run `make audit` where pypi.org can be reached")
    return UNKNOWN


def _python(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
