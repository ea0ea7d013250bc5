"""Parameters that a row states in words: "1 IPU; image 499x302; half4 codelet; global batch 64".

A text is cut at semicolons, commas, bars, line ends and parentheses; each piece becomes a name and
a value, names of one meaning one name:

    N=16                              n: 16
    global batch 54784, GBS 54.784k   global_batch: 54784
    bs=16, BS16, batch size: 16       batch: 16
    micro-batch 20 per IPU            micro_batch: 20 per IPU
    seq 384, SL384                    sequence_length: 384
    1472 tiles x 6 workers            tiles: 1472, workers: 6
    Bow Pod16, system=IPU-POD16       pod: 16
    2x Bow-2000                       ipus: 8
    16.16, FP16.16                    precision: 16.16
    320^3                             size: 320^3
    float, FP16                       dtype: float, dtype: fp16
    half4 codelet, real data          codelet: half4, data: real
    PopART                            popart: (nothing)
"""

import re
from collections.abc import Iterator

NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?"
_UNITS = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9} | {
    f"{name}{end}": factor
    for name, power in (("k", 1), ("K", 1), ("M", 2), ("G", 3))
    for end, factor in (("B", 1000**power), ("i", 1024**power), ("iB", 1024**power))
}
_UNIT = rf"(?:\s?(?:{'|'.join(sorted(_UNITS, key=len, reverse=True))})(?![\w/]))?"
_AMOUNT = rf"{NUMBER}{_UNIT}(?:\s*[x×^/]\s*{NUMBER})*(?:\s+to\s+{NUMBER})?"
_BARE = re.compile(rf"^{_AMOUNT}$")
_COUNTED = re.compile(rf"^({_AMOUNT})(?:\s+|-)([A-Za-z].*?)(?:\s+(?:with|of|in|on|for|at)\s.*)?$")
_NAMED = re.compile(rf"^([A-Za-z][A-Za-z_ /-]*?)(?:\s*:\s*|\s+)({_AMOUNT}(?!\w).*)$")
_GLUED = re.compile(r"^([A-Za-z_]+?)_?(\d+)$")
_POD = re.compile(r"(?<![a-z])(?:bow|ipu)?[-_ ]?pod[-_ ]?(\d+)(?!\d)", re.IGNORECASE)
_MACHINE = re.compile(r"^(?:(\d+)\s*[x×]?\s*)?(?:IPU-M|M|Bow[- ]?)2000s?$", re.IGNORECASE)
_IPUS_PER_MACHINE = 4
_PRECISION = re.compile(r"(?<![\w.])(?:fp)?((?:8|16|32)\.(?:8|16|32))(?![\w.])", re.IGNORECASE)
_TYPE = re.compile(
    r"^((half|float|fp(8|16|32)|f(8|16|32)|float(8|16|32)|int\d+|quarter)\d?)\b", re.IGNORECASE
)
_DESCRIBED = re.compile(r"^([\w.+-]+)\s+(codelet|data|vertex|weights|partials)$", re.IGNORECASE)
_DESCRIBING = re.compile(
    r"^(codelet|dtype|data type|data(?=\s*:))\s*:?\s+([\w.+-]+)$", re.IGNORECASE
)
_PRODUCT = re.compile(r"\s+[x×]\s+")

# What rows call a parameter, by the name under which workloads look for it.
_OTHER_NAMES = {
    "batch": "bs batchsize batch_size",
    "global_batch": "gb gbs global_bs global_batchsize global_batch_size total_batch "
    "total_batch_size effective_batch effective_batch_size",
    "micro_batch": "mb mbs microbatch micro_bs micro_batch_size microbatch_size batch_per_ipu "
    "batch_per_replica per_ipu_batch per_replica_batch",
    "gradient_accumulation": "ga gas grad_acc grad_accum gradient_accumulation_steps accumulation "
    "gradient_accumulation_count gradient_accumulation_factor grad_accumulation "
    "accumulation_steps accumulation_factor",
    "sequence_length": "sl seq seqlen seq_len seq_length sequence sequence_len",
    "max_length": "max_len max_tokens max_sequence_length max_seq_len maximum_length",
    "input": "input_length input_len input_tokens input_words prompt prompt_length prompt_tokens",
    "replicas": "replication replication_factor n_replicas num_replicas",
    "iterations": "iters n_iterations num_iterations",
    "device_iterations": "device_iters di",
    "image": "image_size img resolution",
    "grid": "grid_size domain",
    "ipus": "ipu n_ipus num_ipus ipu_count number_of_ipus n_chips num_chips",
    "dtype": "data_type element_type",
    "precision": "numerics mixed_precision",
    "sdk": "poplar_sdk sdk_version poplar_sdk_version",
}
_NAME = {other: name for name, others in _OTHER_NAMES.items() for other in others.split()}


def read_words(text: str) -> dict[str, str]:
    """The parameters of a text; of two with one name the first counts."""
    result: dict[str, str] = {}
    for piece in _pieces(text):
        for name, value in _read(piece):
            result.setdefault(name, value)
    return result


def parameter_name(words: str) -> str:
    """The form in which names are compared: "Micro-batch", "micro batch", "mb": "micro_batch"."""
    plain = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    return _NAME.get(plain, plain)


def _pieces(text: str) -> Iterator[str]:
    """Cut at ; , | ( ) and line ends outside of brackets, but not within 1,281,167."""
    protected = re.sub(r"\[[^\]]*\]", lambda m: m[0].replace(",", "\0"), text)
    for piece in re.split(r"[;()|\n]|,(?!\d{3}\b)", protected):
        piece = piece.replace("\0", ",").strip()
        if piece:
            yield piece


def _read(piece: str) -> list[tuple[str, str]]:
    """The names and values of one piece, and the pod that it names."""
    pods = [("pod", pod[1]) for pod in (_POD.search(piece),) if pod]
    if (machine := _MACHINE.match(piece)) is not None:
        return [("ipus", str(int(machine[1] or 1) * _IPUS_PER_MACHINE))]
    if "=" in piece:
        name, _, value = piece.partition("=")
        return [*pods, _named(name, value.strip())]
    counted = [_COUNTED.match(part) for part in _PRODUCT.split(piece)]
    if not all(counted):
        counted = [_COUNTED.match(piece)]
    if all(counted):
        return [*((parameter_name(m[2]), m[1]) for m in counted if m is not None), *pods]
    if pods:
        return pods
    if (precision := _PRECISION.search(piece)) is not None:
        return [("precision", precision[1])]
    if _BARE.match(piece):
        return [("size", piece)]
    return [_read_words(piece)]


def _named(name: str, value: str) -> tuple[str, str]:
    """A parameter; types are in small letters, and of FP16.32 the digits count."""
    plain, precision = parameter_name(name), _PRECISION.search(value)
    if plain in ("precision", "dtype") and precision is not None:
        return "precision", precision[1]
    return plain, value.lower() if plain in ("dtype", "codelet", "data") else value


def _read_words(piece: str) -> tuple[str, str]:
    described = _DESCRIBED.match(piece)
    if described is not None:
        return _named(described[2], described[1])
    describing = _DESCRIBING.match(piece)
    if describing is not None:
        return _named(describing[1], describing[2])
    element = _TYPE.match(piece)
    if element is not None:
        return "dtype", element[1].lower()
    glued = _GLUED.match(piece)
    if glued is not None and parameter_name(glued[1]) in _OTHER_NAMES:
        return parameter_name(glued[1]), glued[2]
    named = _NAMED.match(piece)
    return (parameter_name(named[1]), named[2]) if named else (parameter_name(piece), "")


def number_in(text: str) -> float | None:
    """The number that a value begins with: 20 of "20 per IPU", 1200 of "1.2k"."""
    match = re.match(rf"\s*({NUMBER})({_UNIT})", text)
    if match is None:
        return None
    return float(match[1].replace(",", "")) * _UNITS.get(match[2].strip(), 1)


def sizes_in(text: str) -> tuple[int, ...]:
    """(499, 302) of "499x302", (342, 342, 342) of "342^3", () where there are no numbers."""
    power = re.match(r"\s*(\d+)\s*\^\s*(\d+)", text)
    if power is not None:
        return (int(power[1]),) * int(power[2])
    match = re.match(r"\s*\d+(?:\s*[x×]\s*\d+)*", text)
    return tuple(int(n) for n in re.findall(r"\d+", match[0])) if match else ()
