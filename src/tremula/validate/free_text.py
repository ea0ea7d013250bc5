"""Parameters that a row states in words: "1 IPU; image 499x302; half4 codelet; global batch 64".

A text is cut at semicolons, commas and parentheses; each piece becomes a name and a value:

    N=16                              n: 16
    global batch 54784                global_batch: 54784
    micro-batch 20 per IPU            micro_batch: 20 per IPU
    1472 tiles x 6 workers            tiles: 1472, workers: 6
    Bow Pod16                         pod: 16
    16.16                             precision: 16.16
    320^3                             size: 320^3
    float                             dtype: float
    half4 codelet, real data          codelet: half4, data: real
    PopART                            popart: (nothing)
"""

import re
from collections.abc import Iterator

NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?"
_AMOUNT = rf"{NUMBER}(?:\s*[x×^/]\s*{NUMBER})*(?:\s+to\s+{NUMBER})?"
_BARE = re.compile(rf"^{_AMOUNT}$")
_COUNTED = re.compile(rf"^({_AMOUNT})(?:\s+|-)([A-Za-z].*?)(?:\s+(?:with|of|in|on|for|at)\s.*)?$")
_NAMED = re.compile(rf"^([A-Za-z][A-Za-z_ /-]*?)\s*:?\s+({_AMOUNT}\b.*)$")
_POD = re.compile(r"\bpod[-_ ]?(\d+)\b", re.IGNORECASE)
_PRECISION = re.compile(r"^(8|16|32)\.(8|16|32)$")
_TYPE = re.compile(r"^((half|float|fp(8|16|32)|f(8|16|32)|float(8|16|32)|int\d+|quarter)\d?)\b")
_DESCRIBED = re.compile(r"^([\w.+-]+)\s+(codelet|data|vertex|weights|partials)$", re.IGNORECASE)
_PRODUCT = re.compile(r"\s+[x×]\s+")


def read_words(text: str) -> dict[str, str]:
    """The parameters of a text; of two with one name the first counts."""
    result: dict[str, str] = {}
    for piece in _pieces(text):
        for name, value in _read(piece):
            result.setdefault(name, value)
    return result


def parameter_name(words: str) -> str:
    """The form in which names are compared: "Micro-batch" and "micro batch" are "micro_batch"."""
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def _pieces(text: str) -> Iterator[str]:
    """Cut at ; , ( ) outside of brackets, but not within 1,281,167."""
    protected = re.sub(r"\[[^\]]*\]", lambda m: m[0].replace(",", "\0"), text)
    for piece in re.split(r"[;()]|,(?!\d{3}\b)", protected):
        piece = piece.replace("\0", ",").strip()
        if piece:
            yield piece


def _read(piece: str) -> list[tuple[str, str]]:
    """The names and values of one piece."""
    if "=" in piece:
        name, _, value = piece.partition("=")
        return [(parameter_name(name), value.strip())]
    counted = [_COUNTED.match(part) for part in _PRODUCT.split(piece)]
    if all(counted):
        return [(parameter_name(m[2]), m[1]) for m in counted if m is not None]
    if pod := _POD.search(piece):
        return [("pod", pod[1])]
    if _BARE.match(piece):
        return [("precision" if _PRECISION.match(piece) else "size", piece)]
    return [_read_words(piece)]


def _read_words(piece: str) -> tuple[str, str]:
    described = _DESCRIBED.match(piece)
    if described is not None:
        return described[2].lower(), described[1]
    element = _TYPE.match(piece)
    if element is not None:
        return "dtype", element[1]
    named = _NAMED.match(piece)
    return (parameter_name(named[1]), named[2]) if named else (parameter_name(piece), "")


def number_in(text: str) -> float | None:
    """The number that a value begins with: 20 of "20 per IPU"."""
    match = re.match(rf"\s*({NUMBER})", text)
    return float(match[1].replace(",", "")) if match else None


def sizes_in(text: str) -> tuple[int, ...]:
    """(499, 302) of "499x302", (342, 342, 342) of "342^3", () where there are no numbers."""
    power = re.match(r"\s*(\d+)\s*\^\s*(\d+)", text)
    if power is not None:
        return (int(power[1]),) * int(power[2])
    match = re.match(r"\s*\d+(?:\s*[x×]\s*\d+)*", text)
    return tuple(int(n) for n in re.findall(r"\d+", match[0])) if match else ()
