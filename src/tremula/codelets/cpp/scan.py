"""Find classes, members and explicit instantiations in tokens, without understanding all of C++.

Only shapes are read here; the compiler itself resolves types, bases and constants later, through
generated code. So a false find does no harm: the compiler says that it is not a vertex.

    namespace ns {                                 scope ("ns",)
    template <class T>                             ClassShape "Sum", is_template,
    class Sum : public poplar::Vertex {              bases: every identifier after the colon
      poplar::Input<poplar::Vector<T>> a, b;       members a and b
      static int n;                                not a field; the unit has_statics
      bool compute() { … }                         n_code_tokens, from which bytes are estimated
    };
    template class Sum<float>;                     Instantiation of "Sum"
    }

`_Scanner` is a recursive descent with one position, `at`. Each method starts at the first token of
what it reads and leaves `at` behind it; what it does not know it skips as one declaration, to the
semicolon or closing brace that ends it. The only hard question is whether `<` opens template
arguments or compares: it does the former behind an identifier outside initialisers.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tremula.base.source import Source, source_at


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


# -- shapes of classes ----------------------------------------------------------------------------

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NOT_A_FIELD = {"static", "constexpr", "using", "typedef", "friend", "template", "static_assert"}
_NOT_A_VARIABLE = _NOT_A_FIELD | {
    "const",
    "extern",
    "enum",
    "class",
    "struct",
    "union",
    "namespace",
}


@dataclass(frozen=True, slots=True)
class Member:
    """A data member: its name, its type as written, and whether it is a plain declarator."""

    name: str
    type_text: str
    source: Source
    is_plain: bool  # no reference, no bit-field


@dataclass(slots=True)
class ClassShape:
    """A class as it is written."""

    name: str
    scope: tuple[str, ...]
    source: Source
    is_template: bool
    specialisation: str  # "X<int>" for a full specialisation, else ""
    bases: tuple[str, ...] = ()  # every identifier in its base clause
    members: list[Member] = field(default_factory=list)
    constraints: tuple[str, ...] = ()
    n_code_tokens: int = 0
    end: int = 0  # offset just past its declaration


@dataclass(frozen=True, slots=True)
class Instantiation:
    """`template class X<…>;`: where it is and which class it names."""

    class_name: str
    type_text: str
    scope: tuple[str, ...]
    start: int
    end: int


@dataclass(slots=True)
class Shapes:
    """Everything found in one unit."""

    classes: list[ClassShape] = field(default_factory=list)
    instantiations: list[Instantiation] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    has_statics: bool = False  # mutable memory shared by vertices


def scan(text: str, file: str) -> Shapes:
    """The classes and instantiations of one unit."""
    shapes = Shapes(tokens=tokenise(text, file))
    scanner = _Scanner(shapes)
    scanner.declarations((), len(shapes.tokens))
    shapes.has_statics = shapes.has_statics or _has_static_variable(shapes.tokens)
    return shapes


def _has_static_variable(tokens: list[Token]) -> bool:
    """Whether a `static` declares memory that can change."""
    for i, token in enumerate(tokens):
        if token.text != "static" or (i and tokens[i - 1].text in ("const", "constexpr")):
            continue
        stop = next(j for j in range(i, len(tokens)) if tokens[j].text in (";", "=", "(", "{", "["))
        words = {t.text for t in tokens[i:stop]}
        is_function = tokens[stop].text == "("
        if not is_function and not {"const", "constexpr"} & words:
            return True
    return False


class _Scanner:
    def __init__(self, shapes: Shapes):
        self.shapes, self.tokens, self.at = shapes, shapes.tokens, 0

    def text(self, offset: int = 0) -> str:
        place = self.at + offset
        return self.tokens[place].text if place < len(self.tokens) else ""

    def closing(self, start: int) -> int:
        """Index of the bracket that closes the one at `start`."""
        depth = 0
        for i in range(start, len(self.tokens)):
            text = self.tokens[i].text
            depth += (text in "([{") - (text in ")]}")
            if depth == 0:
                return i
        return len(self.tokens) - 1

    def closing_angle(self, start: int) -> int:
        """Index of the `>` that closes the `<` at `start`."""
        depth, i = 0, start
        while i < len(self.tokens):
            text = self.tokens[i].text
            if text in _CLOSING:
                i = self.closing(i)
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i
            i += 1
        return len(self.tokens) - 1

    def declarations(self, scope: tuple[str, ...], end: int) -> None:
        """Everything at namespace level up to token `end`."""
        while self.at < end:
            text = self.text()
            if text in ("}", ";", "inline") or (text == "extern" and self.text(1) == "template"):
                self.at += 1 if text != "extern" else 0
                if text == "extern":
                    self.skip_declaration()
            elif text == "namespace" and self.namespace(scope):
                continue
            elif text == "extern" and self.text(1).startswith('"') and self.text(2) == "{":
                close = self.closing(self.at + 2)
                self.at += 3
                self.declarations(scope, close)
            elif text == "template" and self.text(1) != "<":
                self.instantiation(scope)
            else:
                self.class_or_other(scope)

    def namespace(self, scope: tuple[str, ...]) -> bool:
        """`namespace a::b {…}`; an alias or an anonymous namespace adds no name."""
        i, names = self.at + 1, []
        while self.tokens[i].text != "{":
            if self.tokens[i].text in ("=", ";"):
                self.skip_declaration()
                return True
            if self.tokens[i].text.isidentifier() and self.tokens[i].text != "inline":
                names.append(self.tokens[i].text)
            i += 1
        close = self.closing(i)
        self.at = i + 1
        self.declarations((*scope, *names), close)
        self.at = close + 1
        return True

    def instantiation(self, scope: tuple[str, ...]) -> None:
        first = self.at
        is_class = self.text(1) in ("class", "struct")
        self.skip_declaration()
        if not is_class:
            return
        named = self.tokens[first + 2 : self.at - 1]
        angle = next((i for i, t in enumerate(named) if t.text == "<"), len(named))
        if angle == 0 or angle == len(named):
            return
        text = " ".join(t.text for t in named)
        self.shapes.instantiations.append(
            Instantiation(
                named[angle - 1].text, text, scope, self.tokens[first].start, named[-1].end
            )
        )

    def class_or_other(self, scope: tuple[str, ...], owner: ClassShape | None = None) -> None:
        """A class definition with its template head, or anything else (skipped)."""
        first, is_template, is_full_specialisation = self.at, False, False
        while self.text() == "template" and self.text(1) == "<":
            close = self.closing_angle(self.at + 1)
            is_full_specialisation = close == self.at + 2
            is_template = is_template or not is_full_specialisation
            self.at = close + 1
        if self.text() in ("class", "struct") and self.class_definition(
            scope, is_template, is_full_specialisation
        ):
            return
        self.at = first
        if owner is None:
            self.skip_declaration()
        else:
            self.member(owner)

    def class_definition(self, scope: tuple[str, ...], is_template: bool, is_full: bool) -> bool:
        """`class [[attributes]] X<int> final : bases {…};`; False if it is something else.

        `class X;` and `struct X variable;` also start like this: then nothing is consumed.
        """
        i, constraints = self.at + 1, []
        name, name_start, name_end = "", 0, 0
        while i < len(self.tokens) and self.tokens[i].text not in ("{", ":", ";"):
            token = self.tokens[i]
            if token.text in ("[", "("):
                close = self.closing(i)
                constraints += _constraints(self.tokens[i:close])
                i = close
            elif token.text == "<" and name:
                i = self.closing_angle(i)
                name_end = i
            elif token.text.isidentifier() and token.text not in (
                "final",
                "alignas",
                "__attribute__",
            ):
                if name and self.tokens[i - 1].text != "::":
                    return False  # `struct X variable …`: not a definition
                name_start, name, name_end = name_start or i, token.text, i
            elif token.text != "::" and not token.text.isidentifier():
                return False
            i += 1
        if not name or i >= len(self.tokens) or self.tokens[i].text == ";":
            return False
        opening = i
        while self.tokens[opening].text != "{":
            opening += 1
        written = "".join(t.text + " " for t in self.tokens[name_start : name_end + 1]).strip()
        token = self.tokens[self.at]
        shape = ClassShape(
            name, scope, source_at(token.file, token.line), is_template, written if is_full else "",
            tuple(t.text for t in self.tokens[i:opening] if t.text.isidentifier()),
            constraints=tuple(constraints),
        )  # fmt: skip
        self.shapes.classes.append(shape)
        self.class_body(shape, opening)
        return True

    def class_body(self, shape: ClassShape, opening: int) -> None:
        close = self.closing(opening)
        self.at = opening + 1
        while self.at < close:
            if self.text() in ("public", "private", "protected") and self.text(1) == ":":
                self.at += 2
            elif self.text() == ";":
                self.at += 1
            else:
                self.class_or_other((*shape.scope, shape.name), shape)
        self.at = close
        self.skip_to_semicolon()
        shape.end = self.tokens[self.at - 1].end

    def skip_to_semicolon(self) -> None:
        while self.at < len(self.tokens) and self.text() != ";":
            self.at = self.closing(self.at) if self.text() in _CLOSING else self.at
            self.at += 1
        self.at += 1

    def declaration_end(self) -> tuple[int, bool]:
        """Index past the declaration that starts here, and whether it looks like a function.

        An initialiser runs to the semicolon; a body in braces ends a function, unless what follows
        shows that the braces initialised a variable (`int a{1}, b;`).
        """
        i, is_function = self.at, False
        while i < len(self.tokens):
            text = self.tokens[i].text
            if text == ";":
                return i + 1, is_function
            if text == "}":  # the end of the enclosing scope
                return i, is_function
            if text == "=" and not is_function:
                while i < len(self.tokens) and self.tokens[i].text != ";":
                    i = self.closing(i) if self.tokens[i].text in _CLOSING else i
                    i += 1
                continue
            names_template = i and self.tokens[i - 1].text.isidentifier()
            is_operator = i and self.tokens[i - 1].text == "operator"
            if text == "<" and names_template and not is_operator and not is_function:
                i = self.closing_angle(i)
            elif text in _CLOSING:
                before = self.tokens[i - 1].text if i else ""
                takes_arguments = before in ("decltype", "alignas", "__attribute__", "noexcept")
                is_function = is_function or (text == "(" and not takes_arguments)
                i = self.closing(i)
                following = self.tokens[i + 1].text if i + 1 < len(self.tokens) else ""
                if text == "{" and is_function and following not in ("{", ",", ";"):
                    return i + 1, True
            i += 1
        return i, is_function

    def skip_declaration(self) -> None:
        """Step over a declaration, noting globals and the code of `X::compute`."""
        end, is_function = self.declaration_end()
        end = max(end, self.at + 1)
        words = [t.text for t in self.tokens[self.at : end]]
        if not is_function and len(words) > 2 and not _NOT_A_VARIABLE & set(words[:4]):
            self.shapes.has_statics = True
        if is_function and "compute" in words[: words.index("(") + 1]:
            before = words[: words.index("compute")]
            for shape in self.shapes.classes:
                if shape.name in before:
                    shape.n_code_tokens += len(words)
        self.at = end

    def member(self, owner: ClassShape) -> None:
        end, is_function = self.declaration_end()
        end = max(end, self.at + 1)
        declaration = self.tokens[self.at : end]
        self.at = end
        if is_function:
            owner.n_code_tokens += len(declaration)
        elif not _NOT_A_FIELD & {t.text for t in declaration}:
            owner.members += _members(declaration)


def _constraints(attribute: list[Token]) -> list[str]:
    """The strings of [[poplar::constraint("…", …)]]."""
    if not any(t.text == "constraint" for t in attribute):
        return []
    return [ast.literal_eval(t.text) for t in attribute if t.text.startswith('"')]


def _declarators(tokens: list[Token]) -> Iterator[list[Token]]:
    """Split at commas outside all brackets; initialisers are dropped."""
    depth, part, in_initialiser = 0, [], False
    for token in tokens:
        depth += (token.text in "([{<") - (token.text in ")]}>")
        if depth == 0 and token.text in (",", ";"):
            yield part
            part, in_initialiser = [], False
            continue
        in_initialiser = in_initialiser or token.text == "=" or (token.text == "{" and depth == 1)
        if not in_initialiser:
            part.append(token)


def _members(declaration: list[Token]) -> list[Member]:
    """`const T a, b = 2;` → a and b."""
    result: list[Member] = []
    type_text = ""
    for part in _declarators(declaration):
        texts = [t.text for t in part]
        stop = next((i for i, t in enumerate(texts) if t in ("[", ":") and i), len(texts))
        named = [i for i in range(stop) if texts[i].isidentifier()]
        if not named or (not result and named[-1] == 0):
            continue  # a stray semicolon, or a type without a name
        at = named[-1]
        type_text = type_text or " ".join(texts[:at])
        token = part[at]
        is_plain = "&" not in texts[:at] and ":" not in texts
        array = "".join(texts[at + 1 :])
        result.append(
            Member(token.text, type_text + array, source_at(token.file, token.line), is_plain)
        )
    return result
