"""`tremula validate` from the outside."""

import json

from tremula.commands import main
from tremula.validate import PUBLISHED

HEAD = "id,source,chip,sdk_if_known,num_ipus,workload,parameters,metric,unit,value,notes\n"


def test_a_file_of_ones_own(tmp_path, capsys):
    """Families, rows, reasons and the JSON file of any file in the published form."""
    path, out = tmp_path / "mine.csv", tmp_path / "out.json"
    path.write_text(
        HEAD
        + 'one,me,GC2,,1,"gather one word from n tiles to one tile",source_tiles=8,l,us,0.1,\n'
        + "two,me,GC2,,1,knitting,,l,us,1,\n"
    )
    arguments = ["validate", "--rows", "--against", str(path), "--json", str(out)]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "memory and exchange" in printed.out
    assert "1  no tile program was written for it: two" in printed.out
    assert "1/2 one …" in printed.err
    record = json.loads(out.read_text())
    assert [r["id"] for r in record["rows"]] == ["one"]
    assert record["all"]["n_rows"] == record["families"]["memory and exchange"]["n_rows"] == 1


def test_samples_and_families(capsys):
    """A sample says what it left out; an unknown family suggests the nearest."""
    arguments = ["validate", "--family", "host", "--sample", "20", "--against", str(PUBLISHED)]
    main(arguments)
    assert "published.csv: 20 of 193 rows, evenly spread." in capsys.readouterr().out
    assert main(["validate", "--family", "hosts"]) == 1
    assert "there is no family 'hosts'" in capsys.readouterr().err


WORDS = "id,source,chip,workload,family,parameters,metric,unit,value\n"


def test_rows_side_by_side(tmp_path, capsys):
    """Processes give what one gives, row by row and in the file's order, and a run goes on."""
    path, saved = tmp_path / "mine.csv", tmp_path / "saved.jsonl"
    rows = [
        f"w{n},me,GC2,gather one word from n tiles to one tile,memory,source_tiles={n},l,us,0.1\n"
        for n in (8, 16, 99999, 32)
    ]
    path.write_text(WORDS + "".join(rows))
    base = ["validate", "--rows", "--against", str(path)]
    assert main(base) == 0
    alone = capsys.readouterr().out
    assert main([*base, "--jobs", "2", "--resume", str(saved)]) == 0
    assert capsys.readouterr().out == alone
    assert "does not exist" in alone
    assert alone.index("w8 ") < alone.index("w16 ")
    assert main([*base, "--resume", str(saved)]) == 0
    again = capsys.readouterr()
    assert (again.out, again.err) == (alone, "")


def test_beside_a_baseline(tmp_path, capsys):
    """Rows that moved are named with the steps that moved them; other files are rejected."""
    path, out = tmp_path / "mine.csv", tmp_path / "out.json"
    head = "gather one word from n tiles to one tile,memory"
    path.write_text(
        WORDS
        + f"a,me,GC2,{head},source_tiles=8,l,us,0.1\nb,me,GC2,{head},source_tiles=99,l,us,0.1\n"
    )
    base = ["validate", "--against", str(path)]
    assert main([*base, "--json", str(out)]) == 0
    capsys.readouterr()
    assert main([*base, "--baseline", str(out)]) == 0
    assert "0 rows moved, 2 did not" in capsys.readouterr().out
    record = json.loads(out.read_text())
    name, cycles = record["rows"][0]["steps"][0]
    record["rows"][0] |= {"predicted": 0.2, "steps": [[name, cycles + 1000], ["gone", 7]]}
    record["rows"][1]["id"] = "c"
    out.write_text(json.dumps(record))
    assert main([*base, "--baseline", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "1 rows moved, 0 did not" in printed
    assert f"{name}: {cycles + 1000:,} -> {cycles:,} cycles" in printed
    assert "gone: 7 -> 0 cycles" in printed
    assert "only now: b" in printed
    assert "only in the baseline: c" in printed
    out.write_text("[]")
    assert main([*base, "--baseline", str(out)]) == 1
    assert "it is not a run of validate" in capsys.readouterr().err
