"""Installs built wheels into a fresh environment and runs the README's programs from them.

    python tools/try_wheel.py dist       # the folder with the wheels; `make dist` does

What passes here works with the wheels alone, without this repository.
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
COMMANDS = (["--version"], ["chips"], ["run", "--help"], ["demo"])
GARDEN_COMMANDS = (["garden", "page"], ["garden", "run", "mnist_poptorch", "--tiny"])
# What these say without tremula-garden, and with it they work.
ADVICE = "try: pip install 'tremula[garden]'"


def programs_of(page: str) -> list[tuple[str, str]]:
    """Python blocks of a page, each with the text it must print, or an empty one."""
    return [(match[1], match[2] or "") for match in PROGRAM.finditer(page)]


def fresh_environment(folder: Path) -> Path:
    """The interpreter of a new environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python"


def install(python: Path, wheels: Path, what: str) -> None:
    """As from an index that has the wheels; other packages come from where pip finds them."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    # Bytecode is made when a module is imported: pip would make that of all, for a minute.
    command += ["--no-compile", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*command, "--find-links", wheels, what], check=True)


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


def run_commands(python: Path, folder: Path, commands: tuple[list[str], ...]) -> None:
    for arguments in commands:
        command = [python.parent / "tremula", *arguments]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def expect_advice(python: Path, folder: Path) -> None:
    """Commands of a part that is not installed fail, and say what to install."""
    for arguments in GARDEN_COMMANDS:
        command = [python.parent / "tremula", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 1 or ADVICE not in done.stderr:
            sys.exit(f"{arguments} without tremula-garden: {done.returncode}\n{done.stderr}")


def main() -> None:
    wheels = Path(sys.argv[1]).resolve()
    if len(list(wheels.glob("tremula-*.whl"))) != 1:
        sys.exit(f"expected one wheel of tremula in {wheels}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        python = fresh_environment(folder / "environment")
        install(python, wheels, "tremula[torch]")
        run_readme(python, folder)
        run_commands(python, folder, COMMANDS)
        expect_advice(python, folder)
        install(python, wheels, "tremula[garden]")
        run_commands(python, folder, GARDEN_COMMANDS)
    print("installed, and the README's programs, the demo and an application run from the wheels")


if __name__ == "__main__":
    main()
