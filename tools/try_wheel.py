"""Installs a built wheel into a fresh environment and runs the README's programs from it.

    python tools/try_wheel.py dist       # the folder with the wheel; `make dist` does

What passes here works for somebody who has the wheel and nothing of this repository.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = "`" * 3
# What a program prints follows it, directly or after a line that ends with "prints:".
PROGRAM = re.compile(
    rf"^{FENCE}python\n(.*?)^{FENCE}\n(?:\n(?:[^\n]*prints:\n\n)?{FENCE}text\n(.*?)^{FENCE}\n)?",
    re.MULTILINE | re.DOTALL,
)
COMMANDS = (
    ["--version"],
    ["chips"],
    ["run", "--help"],
    ["garden", "page"],
    ["garden", "run", "mnist_poptorch", "--tiny"],
)


def programs_of(page: str) -> list[tuple[str, str]]:
    """Python blocks of a page, each with the text it must print, or an empty one."""
    return [(match[1], match[2] or "") for match in PROGRAM.finditer(page)]


def fresh_environment(folder: Path, wheel: Path) -> Path:
    """The interpreter of a new environment with the wheel and PyTorch in it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    # Bytecode is made when a module is imported: pip would make that of all, for a minute.
    install += ["--no-compile", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*install, f"{wheel}[torch]"], check=True)
    return python


def run_readme(python: Path, folder: Path) -> None:
    """All programs of the README in one process, as a reader would paste them."""
    steps = programs_of((ROOT / "README.md").read_text(encoding="utf-8"))
    script = folder / "readme.py"
    script.write_text("\n".join(code for code, _ in steps), encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-m", "tremula", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"the README's programs fail from the wheel:\n{done.stdout}{done.stderr}")
    position = 0
    for line in "".join(printed for _, printed in steps).splitlines():
        result = done.stdout.find(line.rstrip(), position)
        if result < 0:
            sys.exit(f"the README promises {line!r}, which is not printed:\n{done.stdout}")
        position = result + len(line.rstrip())


def main() -> None:
    wheels = sorted(Path(sys.argv[1]).resolve().glob("tremula-*.whl"))
    if len(wheels) != 1:
        sys.exit(f"expected one wheel in {sys.argv[1]}, found {len(wheels)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        python = fresh_environment(folder / "environment", wheels[0])
        run_readme(python, folder)
        for arguments in COMMANDS:
            command = [python.parent / "tremula", *arguments]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    print(f"{wheels[0].name}: installed, and the README's programs run from it")


if __name__ == "__main__":
    main()
