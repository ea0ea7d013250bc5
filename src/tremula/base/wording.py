"""Small pieces of sentences: numbers with what they count, and lines of the user's program."""


def plural(n: int, noun: str) -> str:
    """The noun as it follows a number: "tile" after 1, else "tiles"."""
    if n == 1:
        return noun
    if noun.endswith("vertex"):
        return f"{noun[:-2]}ices"
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def counted(n: int, noun: str) -> str:
    """A number and what it counts: "1 tile", "2 tiles"."""
    return f"{n:,} {plural(n, noun)}"


def short_source(source: str) -> str:
    """A line of a library without the folder that libraries are installed in."""
    for mark in ("/site-packages/", "/dist-packages/"):
        source = source.rpartition(mark)[2]
    return source
