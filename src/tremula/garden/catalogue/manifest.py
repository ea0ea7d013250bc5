"""A manifest, `manifest.toml`: read, and every wrong field named with its file."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tremula.base.errors import FileLoadError, suggest
from tremula.base.storage import strict_toml
from tremula.base.storage.strict_json import JsonObject
from tremula.garden.catalogue.expected import FORMS, Expectation
from tremula.garden.catalogue.techniques import DOMAINS, FRAMEWORKS, TECHNIQUES

MANIFEST = "manifest.toml"
_TEXTS = ("title", "summary", "domain", "framework", "data", "licence")
_LISTS = ("techniques", "needs")
_REQUIRED = (*_TEXTS, *_LISTS, "tiny_seconds", "expected")
_KNOWN = (*_REQUIRED, "published")


@dataclass(frozen=True, slots=True)
class Published:
    """What others claim, in our words, and where they do."""

    claim: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application as its manifest describes it."""

    name: str
    folder: Path
    title: str
    summary: str
    domain: str
    framework: str
    techniques: tuple[str, ...]
    data: str
    licence: str
    needs: tuple[str, ...]  # extras of tremula, and packages outside them
    tiny_seconds: float  # CPU seconds of the tiny form, rounded up
    published: tuple[Published, ...]
    expected: Mapping[str, Expectation]


def read_manifest(folder: Path) -> Application:
    """The application in a folder."""
    path = folder / MANIFEST
    fields = _Fields(path, _parsed(path))
    fields.check_names(_KNOWN, _REQUIRED)
    texts = {name: fields.text(name) for name in _TEXTS}
    fields.check_word("domain", texts["domain"], DOMAINS)
    fields.check_word("framework", texts["framework"], FRAMEWORKS)
    techniques = fields.texts("techniques")
    for technique in techniques:
        fields.check_word("techniques", technique, TECHNIQUES)
    return Application(
        name=folder.name,
        folder=folder,
        **texts,
        techniques=techniques,
        needs=fields.texts("needs"),
        tiny_seconds=fields.positive("tiny_seconds"),
        published=_published(fields),
        expected=_expected(fields),
    )


def _parsed(path: Path) -> JsonObject:
    try:
        return strict_toml.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileLoadError(
            f"{path.parent} is not an application: it has no {path.name}.",
            hint="`tremula garden new NAME --from OTHER` makes a folder that has one",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileLoadError(f"{path} is not TOML: {error}") from None


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of one file, taken by name and type."""

    path: Path
    values: Mapping[str, Any]
    inside: str = ""  # "published[0]." in a table of a list

    def wrong(self, field: str, problem: str, hint: str = "") -> FileLoadError:
        return FileLoadError(f"{self.path}: field {self.inside + field!r} {problem}", hint=hint)

    def check_names(self, known: Sequence[str], required: Sequence[str]) -> None:
        for name in self.values:
            if name not in known:
                raise self.wrong(name, "is unknown.", suggest(name, known))
        for name in required:
            if name not in self.values:
                raise self.wrong(name, "is missing.", f"a manifest needs: {', '.join(required)}")

    def check_word(self, field: str, word: str, known: "Sequence[str] | Mapping[str, str]") -> None:
        if word not in known:
            raise self.wrong(field, f"has the unknown word {word!r}.", suggest(word, known))

    def text(self, field: str) -> str:
        value = self.values[field]
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(field, f"must be a text, got {value!r}.")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        value = self.values[field]
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise self.wrong(field, f"must be a list of texts, got {value!r}.")
        return tuple(value)

    def positive(self, field: str) -> float:
        value = self.values[field]
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.wrong(field, f"must be a number above 0, got {value!r}.")
        return float(value)


def _published(fields: _Fields) -> tuple[Published, ...]:
    tables = fields.values.get("published", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise fields.wrong("published", f"must be tables, got {tables!r}.", "write [[published]]")
    result = []
    for i, table in enumerate(tables):
        inner = _Fields(fields.path, table, f"published[{i}].")
        inner.check_names(("claim", "source"), ("claim", "source"))
        result.append(Published(inner.text("claim"), inner.text("source")))
    return tuple(result)


def _expected(fields: _Fields) -> dict[str, Expectation]:
    table = fields.values["expected"]
    if not isinstance(table, dict) or not table:
        raise fields.wrong(
            "expected", f"must be a table of limits, got {table!r}.", 'accuracy = ">= 0.95"'
        )
    result = {}
    for name, text in table.items():
        limits = Expectation.parse(text) if isinstance(text, str) else None
        if limits is None:
            raise fields.wrong(
                f"expected.{name}", f"is not a limit: {text!r}.", f"write it as {FORMS}"
            )
        result[name] = limits
    return result
