"""Comparing fingerprints of programs: what differs is named."""

import json

from tools.program_fingerprints import compare, difference

ONE = {"steps": "a", "vertices": "b", "costs": "c"}


def test_a_difference_names_its_parts():
    """Programs that differ are counted, with the parts that differ in any of them."""
    dearer, other_vertices = ONE | {"costs": "d"}, ONE | {"vertices": "e"}
    assert difference([ONE, ONE], [ONE, dearer]) == "1 of 2 in costs"
    assert difference([ONE, ONE], [other_vertices, dearer]) == "2 of 2 in costs, vertices"
    assert difference([ONE], [ONE, ONE]) == "1 programs, now 2; 0 of 1 in none"
    assert difference(["1.5"], ["1.6"]) == "1 of 1 in value"


def test_a_comparison_fails_where_anything_differs(tmp_path, capsys):
    """Equal records give exit code 0; a source that differs or has no partner gives 1."""
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps({"one": [ONE], "two": [ONE]}))
    assert compare(before, before) == 0
    after.write_text(json.dumps({"one": [ONE | {"steps": "z"}], "three": []}))
    assert compare(before, after) == 1
    output = capsys.readouterr().out
    assert "differs: one: 1 of 1 in steps" in output
    assert "only in one of them: two" in output
