"""Tokens of preprocessed C++, each with its place in the text and in the user's files."""

import re
from typing import NamedTuple


class Token(NamedTuple):
    text: str
    start: int  # offsets into the text
    end: int
    file: str
    line: int


_TOKEN = re.compile(
    r"""
    (?P<directive>^[ \t]*\#[^\n]*)
  | (?P<newline>\n)
  | (?P<space>[^\S\n]+)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]*)\((?:.|\n)*?\)(?P=delimiter)")
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
  | (?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*')
  | (?P<word>[A-Za-z_$][\w$]*)
  | (?P<number>\.?\d(?:[\w.]|'(?=\w)|(?<=[eEpP])[+-])*)
  | (?P<sign>::|->|<=|>=|==|!=|&&|\|\||<<|.)
    """,
    re.VERBOSE | re.MULTILINE,
)
_MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)"')


def tokenise(text: str, file: str) -> list[Token]:
    """All tokens except white space and directives. `>>` is two tokens, for template lists."""
    tokens: list[Token] = []
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup if match.lastgroup != "delimiter" else "raw"
        if kind == "newline":
            line += 1
        elif kind == "directive":
            marker = _MARKER.match(match[0])
            if marker:
                line, file = int(marker[1]) - 1, marker[2]  # the newline behind it counts
        elif kind != "space":
            tokens.append(Token(match[0], match.start(), match.end(), file, line))
            line += match[0].count("\n")
    return tokens
