"""Every example runs as a script and prints what its .expected file lists."""

import re
from pathlib import Path

import pytest

from tests.scripts import run_script

ROOT = Path(__file__).resolve().parent.parent
# A leading underscore marks a module that examples share; what made data needs the original data;
# the script for TensorFlow is run under its names by tests/frontends/keras/test_tensorflow.py.
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").rglob("*.py")
    if not path.name.startswith("_")
    and path.parent.name != "data"
    and path != ROOT / "examples" / "keras" / "cifar10.py"
)
# What takes long even then is left to `make test-wide`; such an example says so in a comment.
WIDE = "# Run by the wide tests."
# A long example says in a comment how it is run here: smaller, and without a network.
ARGUMENTS = re.compile(r"^# Arguments when run as a test: (.*)$", re.MULTILINE)


def missing_fragment(output: str, expected: str) -> str | None:
    """The first line of `expected` that does not appear in `output` behind the ones before it."""
    position = 0
    for fragment in (line.strip() for line in expected.splitlines()):
        result = output.find(fragment, position)
        if result < 0:
            return fragment
        position = result + len(fragment)
    return None


def arguments_of(script: Path) -> list[str]:
    match = ARGUMENTS.search(script.read_text(encoding="utf-8"))
    return match[1].split() if match else []


def marked(script: Path) -> object:
    is_wide = WIDE in script.read_text(encoding="utf-8")
    name = str(script.relative_to(ROOT))
    return pytest.param(script, id=name, marks=pytest.mark.wide if is_wide else ())


@pytest.mark.slow
@pytest.mark.parametrize("script", [marked(script) for script in EXAMPLES])
def test_examples_run(script, tmp_path):
    """The example exits with 0 and prints the lines of its .expected file, in order."""
    code, output = run_script(script, tmp_path, arguments_of(script))
    assert code == 0, output
    expected = script.with_suffix(".expected").read_text(encoding="utf-8")
    missing = missing_fragment(output, expected)
    assert missing is None, f"missing: {missing}\n\nprinted:\n{output}"


def test_every_expectation_has_its_example():
    """Each script has an .expected file, and each .expected file its script."""
    expected = {path.with_suffix(".py") for path in (ROOT / "examples").rglob("*.expected")}
    assert expected == set(EXAMPLES)


def test_every_example_is_listed():
    """The README of the examples names each script."""
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([\w/]+\.py)`", text))
    assert listed == {str(path.relative_to(ROOT / "examples")) for path in EXAMPLES}


def test_fragments_must_come_in_order():
    """Expected lines are fragments of the output, in the same order."""
    output = "Using the model\nv1: [1 2]\nProgram complete\n"
    assert missing_fragment(output, "v1: [1\ncomplete\n") is None
    assert missing_fragment(output, "complete\nv1\n") == "v1"
    assert missing_fragment(output, "absent") == "absent"


def test_arguments_stand_in_a_comment(tmp_path):
    """A script's own comment says with which arguments it runs here; most have none."""
    script = tmp_path / "example.py"
    script.write_text("# Arguments when run as a test: --few 3\n")
    assert arguments_of(script) == ["--few", "3"]
    script.write_text("print(1)\n")
    assert arguments_of(script) == []


@pytest.mark.slow
def test_scripts_run_in_their_own_folder(tmp_path):
    """Both streams arrive in the order written, warnings and exits count, the folder is given."""
    script = tmp_path / "example.py"
    script.write_text(
        "import os, sys\nprint('out', sys.argv[1:])\nprint('err', file=sys.stderr)\n"
        "print(os.getcwd(), __name__)\n"
    )
    expected = f"out ['--few', '3']\nerr\n{tmp_path} __main__\n"
    assert run_script(script, tmp_path, ["--few", "3"]) == (0, expected)
    script.write_text("import warnings\nwarnings.warn('beware')\n")
    code, output = run_script(script, tmp_path, [])
    assert code == 1
    assert "UserWarning: beware" in output
    script.write_text("raise SystemExit(3)\n")
    assert run_script(script, tmp_path, []) == (3, "")
