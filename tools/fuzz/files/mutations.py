"""Changes of a file as plain data: of bytes, as disks and transfers make them, and of text.

    ["set", at, byte] ["cut", at] ["drop", at, n] ["repeat", at, n] ["blank", at, n]
    ["insert", at, hex] ["move", from, to, n] ["word", number, text]
    ["line", number, "drop" | "repeat" | "swap"]

Places count modulo the length of what they are in, so that every mutation can be applied.
"""

import re
from random import Random

Mutation = list

# A number, a word or a text between quotes.
_WORD = re.compile(r'"[^"\n]*"|[-+]?\d[\w.+-]*|[A-Za-z_][\w-]*')
ODD_WORDS = (
    "0", "-1", "1e999", "-1e999", "nan", "NaN", "inf", "Infinity", "1e-400", "0.5", "99999999999",
    "9223372036854775807", "18446744073709551616", "-9223372036854775809", "1" * 400, "true",
    "1" * 5000, "0x" + "f" * 5000, "[" * 3000, "null",
    '""', '"x"', '"\\u0000"', '"' + "a" * 5000 + '"', "[]", "{}", "[[]]", "[1, 2]",
    '{"a": 1}', "'", '"', "=", "[", "]", "{", "\x00", "é", "\ufeff", "1979-05-27", "None", "../x",
    "/", "%s", "__class__", "float", "-0.0", "3.5", "0x10", "1_000", "08",
)  # fmt: skip


def mutations(random: Random, is_text: bool) -> list[Mutation]:
    """One to four changes; of text, most of them change words and lines."""
    n = random.choice((1, 1, 1, 2, 2, 4))
    return [
        _text_mutation(random) if is_text and random.random() < 0.75 else _byte_mutation(random)
        for _ in range(n)
    ]


def _text_mutation(random: Random) -> Mutation:
    if random.random() < 0.3:
        return ["line", random.randrange(1000), random.choice(("drop", "repeat", "swap"))]
    return ["word", random.randrange(10_000), random.choice(ODD_WORDS)]


def _byte_mutation(random: Random) -> Mutation:
    at = random.randrange(1 << 24)
    n = random.choice((1, 2, 4, 8, 64, 512, 4096))
    kind = random.choice(("set", "set", "set", "cut", "drop", "repeat", "blank", "insert", "move"))
    if kind == "set":
        return ["set", at, random.randrange(256)]
    if kind == "cut":
        return ["cut", at]
    if kind == "insert":
        return ["insert", at, random.randbytes(min(n, 64)).hex()]
    if kind == "move":
        return ["move", at, random.randrange(1 << 24), n]
    return [kind, at, n]


def mutated(content: bytes, changes: list[Mutation]) -> bytes:
    """The content with the changes, in order."""
    for kind, *args in changes:
        content = _changed_text(content, kind, args) or _changed_bytes(content, kind, args)
    return content


def _changed_text(content: bytes, kind: str, args: list) -> bytes | None:
    if kind not in ("line", "word"):
        return None
    text = content.decode("utf-8", "surrogateescape")
    if kind == "word":
        words = list(_WORD.finditer(text))
        if words:
            word = words[args[0] % len(words)]
            text = text[: word.start()] + args[1] + text[word.end() :]
    else:
        lines = text.splitlines(keepends=True)
        if lines:
            at = args[0] % len(lines)
            other = (at + 1) % len(lines)
            if args[1] == "swap":
                lines[at], lines[other] = lines[other], lines[at]
            else:
                lines[at : at + 1] = [] if args[1] == "drop" else [lines[at]] * 2
        text = "".join(lines)
    return text.encode("utf-8", "surrogateescape") or b" "


def _changed_bytes(content: bytes, kind: str, args: list) -> bytes:
    if kind in ("line", "word") or not content:
        return content
    at = args[0] % len(content)
    if kind == "set":
        return content[:at] + bytes([args[1] % 256]) + content[at + 1 :]
    if kind == "cut":
        return content[:at]
    if kind == "insert":
        return content[:at] + bytes.fromhex(args[1]) + content[at:]
    if kind == "move":
        to, n = args[1] % len(content), args[2]
        part = content[at : at + n]
        return content[:to] + part + content[to + len(part) :]
    n = args[1]
    part = content[at : at + n]
    new = {"drop": b"", "repeat": part * 2, "blank": bytes(len(part))}[kind]
    return content[:at] + new + content[at + n :]
