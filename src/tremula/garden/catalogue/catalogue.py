"""All applications, and finding some of them: by name, by field, by words."""

from collections.abc import Iterable
from pathlib import Path

from tremula.base.errors import InvalidOption, suggest
from tremula.garden import applications
from tremula.garden.catalogue.manifest import MANIFEST, Application, read_manifest

SHIPPED = Path(applications.__file__).resolve().parent


def all_applications() -> list[Application]:
    """What this package ships, by name."""
    return [read_manifest(path.parent) for path in sorted(SHIPPED.glob(f"*/{MANIFEST}"))]


def find_application(name: str) -> Application:
    """One that is shipped, by name (dashes may stand for underscores), or a folder of yours."""
    if "/" in name or name == ".":
        return read_manifest(Path(name).resolve())
    folder = SHIPPED / name.replace("-", "_")
    if (folder / MANIFEST).is_file():
        return read_manifest(folder)
    known = [path.parent.name for path in SHIPPED.glob(f"*/{MANIFEST}")]
    hint = suggest(name.replace("-", "_"), known)
    if Path(name, MANIFEST).is_file():
        hint = f"./{name} is your own folder of that name"
    raise InvalidOption(f"there is no application {name!r}.", hint=hint)


def chosen(
    applications: Iterable[Application],
    *,
    domain: str | None = None,
    framework: str | None = None,
    technique: str | None = None,
    words: Iterable[str] = (),
) -> list[Application]:
    """Those with all of the given properties, and with every word somewhere in their texts."""
    return [
        one
        for one in applications
        if (domain is None or one.domain == domain)
        and (framework is None or one.framework == framework)
        and (technique is None or technique in one.techniques)
        and all(word.lower() in searched_text(one) for word in words)
    ]


def searched_text(one: Application) -> str:
    """What words are looked for in, in lower case."""
    parts = (one.name, one.title, one.summary, one.domain, one.framework, one.data, *one.techniques)
    return " ".join(parts).lower()
