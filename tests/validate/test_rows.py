"""Reading files of measurements, in both forms, and refusing others."""

import pytest

from tremula.base.errors import FileLoadError
from tremula.validate import GRID, PUBLISHED, every_nth, read_rows

HEAD = "id,source,chip,sdk_if_known,num_ipus,workload,parameters,metric,unit,value,notes\n"


def write(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_files_that_come_with_tremula():
    """Both files are read whole; a grid row is one of published.csv's workloads."""
    published, grid = read_rows(PUBLISHED), read_rows(GRID)
    assert (len(published), len(grid)) == (193, 1786)
    assert {r.workload for r in grid} <= {r.workload for r in published}
    assert grid[0].number("num_features") == 16


def test_a_published_row(tmp_path):
    """Parameters are split at their signs; a value that is no number is none."""
    text = 'a,s,GC2,,,"x, y",n=4;dtype=fp16; mode=static b=1,latency,us,1.5,\n'
    row, other = read_rows(write(tmp_path, HEAD + text + "b,s,GC2,,2,x,,c,-,1;2,note\n"))
    assert (row.n_ipus, row.workload, row.value) == (1, "x, y", 1.5)
    assert dict(row.parameters) == {"n": "4", "dtype": "fp16", "mode": "static b=1"}
    assert (other.n_ipus, other.value, other.notes) == (2, None, "note")


def test_columns_in_other_forms(tmp_path):
    """A byte order mark, capitals and blanks around columns, no family, words beside num_ipus."""
    head = "\ufeffID, Chip,Workload ,parameters,Metric,unit,value\n"
    (row,) = read_rows(write(tmp_path, head + "a,Bow,blur,2 IPU; image 4x5,time,s,1\n"))
    assert (row.id, row.n_ipus, row.sizes("image"), row.stated_family) == ("a", 2, (4, 5), "")
    words = "a,s,GC2,,4,blur,image 4x5; half4 codelet,t,s,1,\nb,s,GC2,,,x,8 chips,t,s,1,\n"
    stated, counted = read_rows(write(tmp_path, HEAD + words))
    assert (stated.n_ipus, stated.text("codelet"), counted.n_ipus) == (4, "half4", 8)


def test_a_missing_parameter(tmp_path):
    """A row that lacks what its workload needs names the parameter."""
    (row,) = read_rows(write(tmp_path, HEAD + "a,s,GC2,,1,x,tile=four,l,us,1,\n"))
    with pytest.raises(FileLoadError, match="row 'a' has no parameter 'tiles'") as caught:
        row.number("tiles")
    assert "did you mean 'tile'" in str(caught.value)
    with pytest.raises(FileLoadError, match="is 'four', expected a number"):
        row.number("tile")


def test_files_of_another_form(tmp_path):
    """A file without the columns, without the operation, or missing at all, says what is wanted."""
    with pytest.raises(FileLoadError, match="it lacks id, chip, num_ipus"):
        read_rows(write(tmp_path, "a,b\n1,2\n"))
    grid = "op,amp,num_inputs,num_features,num_outputs,cycles,time_us\nsort,default,1,1,1,1,1\n"
    with pytest.raises(FileLoadError, match="line 2 has operation 'sort', expected one of gather"):
        read_rows(write(tmp_path, grid))
    with pytest.raises(FileLoadError, match="cannot read the measurements"):
        read_rows(tmp_path / "none.csv")


def test_sampling_is_even():
    """A sample spreads over the file and is the same every time."""
    assert every_nth(list(range(10)), 4) == [0, 2, 5, 7]
    assert every_nth([1, 2], 4) == [1, 2]
