"""Vertex names as add_vertex sees them: `ns::Class<half,unsigned int,true>`, without spaces."""

import re

# g++'s and programmers' spellings, longest first, and Poplar's.
_SPELLINGS = {
    "long long unsigned int": "unsigned long long",
    "long unsigned int": "unsigned long long",
    "long long int": "long long",
    "short unsigned int": "unsigned short",
    "unsigned short int": "unsigned short",
    "unsigned long long": "unsigned long long",
    "unsigned long": "unsigned long long",
    "unsigned short": "unsigned short",
    "unsigned char": "unsigned char",
    "unsigned int": "unsigned int",
    "signed char": "signed char",
    "short int": "short",
    "long long": "long long",
    "long int": "long long",
    "unsigned": "unsigned int",
    "<unnamed-float:16>": "half",
    "_Float16": "half",
    "std::uint64_t": "unsigned long long",
    "std::uint32_t": "unsigned int",
    "std::uint16_t": "unsigned short",
    "std::uint8_t": "unsigned char",
    "std::int64_t": "long long",
    "std::int32_t": "int",
    "std::int16_t": "short",
    "std::int8_t": "signed char",
    "uint64_t": "unsigned long long",
    "uint32_t": "unsigned int",
    "uint16_t": "unsigned short",
    "uint8_t": "unsigned char",
    "int64_t": "long long",
    "int32_t": "int",
    "int16_t": "short",
    "int8_t": "signed char",
}
_SPELLING = re.compile("|".join(rf"(?<!\w){re.escape(s)}(?!\w)" for s in _SPELLINGS))
_SPACE_TO_DROP = re.compile(r"\s*([<>,:&*()\[\]])\s*")


def vertex_name(text: str) -> str:
    """The one form of a vertex name, however a programmer or the compiler spells it."""
    text = text.replace("{anonymous}::", "").replace("(anonymous namespace)::", "")
    text = _SPELLING.sub(lambda result: _SPELLINGS[result[0]], text)
    return _SPACE_TO_DROP.sub(r"\1", text.strip())
