"""RecentValues: what was used last stays, within a limit."""

from tremula.vision.report.recent_values import RecentValues


def test_the_least_recently_used_value_goes_first():
    """A value that was used again stays longer than one that was made later."""
    values, made = RecentValues(2), []

    def get(key):
        return values.get(key, lambda: made.append(key) or key)

    assert [get(key) for key in "abacab"] == list("abacab")
    assert made == list("abcb")


def test_sizes_count_and_the_newest_value_stays():
    """The sum of sizes is limited, but a single value may be larger than the limit."""
    values = RecentValues(10, size=len)
    for text in ("four", "seven__", "x" * 20):
        values.get(len(text), lambda text=text: text)
    assert values.get(20, lambda: "made again") == "x" * 20
    assert values.get(7, lambda: "made again") == "made again"
