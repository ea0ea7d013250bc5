"""The text of PrintTensor."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tremula.base.errors import InvalidOption, TypeMismatch
from tremula.base.print_format import PrintTensorFmt, format_tensor


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("title", "values", "text"),
    [
        ("v1-debug", floats(1, 1.5, 2, 2.5), "[1.0000000 1.5000000 2.0000000 2.5000000]"),
        ("v2", floats(7, 6, 4.5, 2.5), "[7.0000000 6.0000000 4.5000000 2.5000000]"),
        ("v4-0", np.arange(10), "[0 1 2 3 4 5 6 7 8 9]"),
        ("v4-1", np.arange(10, 20, dtype=np.uint32), "[10 11 12 13 14 15 16 17 18 19]"),
        ("sums", np.array([6, 9, 12]), "[ 6  9 12]"),
        ("signs", np.array([-1, 10], np.int8), "[-1 10]"),
        ("flags", np.array([True, False]), "[1 0]"),
        ("halves", np.array([0.5, -2], np.float16), "[ 0.5000000 -2.0000000]"),
        ("wide", floats(100.5, 1.5), "[100.50000   1.50000]"),
        ("odd", floats(np.nan, np.inf, -np.inf, 1), "[      nan       inf      -inf 1.0000000]"),
        ("zero", floats(0, 0), "[0.0000000 0.0000000]"),
        ("small", floats(1.4962566e-20, 1), "[1.4962566e-20 1.0000000e+00]"),
        ("large", floats(2**70), "[1.1805916e+21]"),
        ("none", floats(), "[]"),
    ],
)
def test_one_dimension(title, values, text):
    """A vector stands on the line of its title, aligned, with eight digits."""
    assert format_tensor(title, values) == f"{title}: {text}"


def test_scalars_and_titles():
    """A scalar has no brackets; an empty title leaves no colon."""
    assert format_tensor("x", np.float32(1.5)) == "x: 1.5000000"
    assert format_tensor("n", np.int32(-7)) == "n: -7"
    assert format_tensor("", np.array([1])) == "[1]"


def test_two_dimensions():
    """Rows stand on their own lines, indented by one blank; the last bracket stands alone."""
    assert format_tensor("v3", floats(5, 4.5, 4, 3.5).reshape(2, 2)) == (
        "v3: [\n [5.0000000 4.5000000]\n [4.0000000 3.5000000]\n]"
    )


def test_three_dimensions():
    """Each level of brackets is indented by one more blank."""
    assert format_tensor("t", np.arange(8).reshape(2, 2, 2)) == (
        "t: [\n [\n  [0 1]\n  [2 3]\n ]\n [\n  [4 5]\n  [6 7]\n ]\n]"
    )


def test_empty_dimensions():
    """Empty rows and the lack of rows are both visible."""
    assert format_tensor("t", np.zeros((2, 0))) == "t: [\n []\n []\n]"
    assert format_tensor("t", np.zeros((0, 2))) == "t: []"


def test_digits_count_all_digits():
    """`digits` counts the digits before and behind the point, in each notation."""
    value = floats(1.4962566)
    assert format_tensor("x", value) == "x: [1.4962566]"
    scientific = PrintTensorFmt(float_format="scientific")
    assert format_tensor("x", value, scientific) == "x: [1.4962566e+00]"
    assert format_tensor("x", floats(-100), PrintTensorFmt(digits=5)) == "x: [-100.00]"
    fixed = PrintTensorFmt(float_format="fixed", digits=4)
    assert format_tensor("x", floats(2.5e6, 1), fixed) == "x: [2500000       1]"


def test_without_formatting():
    """digits=0 and float format none give the shortest texts, unaligned without digits."""
    values = floats(0.1, 12.5)
    assert format_tensor("x", values, PrintTensorFmt(digits=0)) == "x: [0.1 12.5]"
    assert format_tensor("x", values, PrintTensorFmt(float_format="none")) == "x: [ 0.1 12.5]"
    text = format_tensor("x", np.arange(2000), PrintTensorFmt.disabled())
    assert text == "x: [" + " ".join(map(str, range(2000))) + "]"


def test_a_long_row_is_split():
    """A row longer than the line goes on, with extra indentation, on the next line."""
    fmt = PrintTensorFmt(max_line_width=16)
    assert format_tensor("t", np.arange(12), fmt) == (
        "t: [ 0  1  2  3\n   4  5  6  7  8\n   9 10 11]"
    )
    matrix = np.arange(10).reshape(2, 5)
    assert format_tensor("t", matrix, PrintTensorFmt(max_line_width=8)) == (
        "t: [\n [0 1 2\n   3 4]\n [5 6 7\n   8 9]\n]"
    )


def test_a_large_tensor_is_summarised():
    """More elements than the threshold leave three at each end of every long dimension."""
    assert format_tensor("t", np.arange(1000)).count("...") == 0
    assert format_tensor("t", np.arange(1001)) == "t: [   0    1    2 ...  998  999 1000]"
    assert format_tensor("t", np.arange(3000).reshape(1000, 3)) == (
        "t: [\n [   0    1    2]\n [   3    4    5]\n [   6    7    8]\n ...\n"
        " [2991 2992 2993]\n [2994 2995 2996]\n [2997 2998 2999]\n]"
    )
    few = PrintTensorFmt(summarise_threshold=3, edge_items=1)
    assert format_tensor("t", np.arange(4), few) == "t: [0 ... 3]"


def test_summaries_do_not_look_at_what_they_hide():
    """Hidden values change neither notation nor width."""
    values = np.ones(2000, np.float32)
    values[1000] = 1e30
    assert format_tensor("t", values).startswith("t: [1.0000000 1.0000000 1.0000000 ... 1.0000000")


def test_other_brackets():
    """Separator and brackets can be chosen; between rows there is no separator."""
    fmt = PrintTensorFmt(separator=", ", open_bracket="(", close_bracket=")")
    assert format_tensor("t", np.arange(4).reshape(2, 2), fmt) == "t: (\n (0, 1)\n (2, 3)\n)"


def test_bad_formats_are_refused():
    """Unknown notations and negative counts are errors that say what is expected."""
    with pytest.raises(
        InvalidOption, match=r"no float_format 'fixd'.\n  try: did you mean 'fixed'"
    ):
        PrintTensorFmt(float_format="fixd")
    with pytest.raises(InvalidOption, match="digits of PrintTensorFmt must be at least 0, got -1"):
        PrintTensorFmt(digits=-1)
    with pytest.raises(TypeMismatch, match="cannot print elements of type complex64"):
        format_tensor("t", np.zeros(2, np.complex64))


DTYPES = st.sampled_from(["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4"])
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)
JSON_LIKE = PrintTensorFmt(separator=", ", summarise_threshold=10_000)


def any_array(dtype):
    is_float = np.dtype(dtype).kind == "f"
    elements = {"allow_nan": False, "allow_infinity": False} if is_float else {}
    return hnp.arrays(dtype, SHAPES, elements=hnp.from_dtype(np.dtype(dtype), **elements))


@settings(max_examples=60)
@given(DTYPES.flatmap(any_array))
def test_values_and_shape_read_back(array):
    """With commas, any tensor is JSON but for those between rows: shape and values read back."""
    text = format_tensor("t", array, JSON_LIKE)
    parsed = json.loads(re.sub(r"\]\s+\[", "], [", text.removeprefix("t: ")))
    read = np.array(parsed, np.float64 if array.dtype.kind == "f" else object)
    # JSON cannot say how long the rows of no rows are.
    assert read.shape == array.shape[: read.ndim]
    assert read.size == array.size
    if array.dtype.kind == "f":
        # The auto notation keeps at least half of the digits of every value.
        np.testing.assert_allclose(read.ravel(), array.ravel().astype(np.float64), rtol=5e-4)
    else:
        assert read.ravel().tolist() == array.astype(object).ravel().tolist()


@settings(max_examples=60)
@given(DTYPES.flatmap(any_array), st.integers(8, 80))
def test_lines_keep_their_width(array, width):
    """No line that could be split is longer than the line width; splitting loses nothing."""
    whole = format_tensor("t", array, PrintTensorFmt(max_line_width=0, summarise_threshold=10_000))
    split = format_tensor(
        "t", array, PrintTensorFmt(max_line_width=width, summarise_threshold=10_000)
    )
    assert split.split() == whole.split()
    for line in split.splitlines():
        n_words = len(re.findall(r"[^\s\[\]]+", line.removeprefix("t: ")))
        assert n_words <= 1 or len(line) <= width
