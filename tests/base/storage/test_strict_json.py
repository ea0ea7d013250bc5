"""JSON from outside: only what JSON can hold, and errors that say what is wrong."""

import pytest

from tremula.base.storage import strict_json
from tremula.commands import main

WRONG = ["1e999", "-1e999", "[NaN]", '{"a": Infinity}', "[", "", '{"a":' * 50_000, "\ud800"]


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:12].encode("ascii", "replace"))
def test_values_that_json_cannot_have(text):
    """They are all one kind of error."""
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own errors have many texts
        strict_json.loads(text.encode("utf-8", "surrogatepass"))


def test_values_that_it_can():
    """Numbers keep their kinds."""
    assert strict_json.loads('{"a": [1, 2.5, -1e300, null]}') == {"a": [1, 2.5, -1e300, None]}


@pytest.mark.parametrize(
    "text",
    [*WRONG[:5], "null", "[1]", '{"num_instances": "x"}', '{"num_instances": 2.5}',
     '{"num_instance": 2}', '{"num_replicas": 1e999}'],
)  # fmt: skip
def test_poprun_reads_its_options_with_care(text, tmp_path, capsys):
    """A file of options is checked like the words of a command line."""
    file = tmp_path / "options.json"
    file.write_text(text)
    try:
        code = main(["poprun", "--import-config", str(file), "true"])
    except SystemExit as end:
        code = end.code
    assert code in {1, 2}
    assert "error:" in capsys.readouterr().err
