"""The files of the page, and its modules as one script: a browser asks for one, not for sixty."""

import posixpath
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

ENTRY = "main.js"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[\w./-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)


def page_files() -> dict[str, bytes]:
    """All files of the page by path."""
    return dict(_files_in(files("tremula.vision") / "page", ""))


def served_files() -> dict[str, bytes]:
    """Only these are served, so no path can leave the folder; the first script holds all others."""
    result = page_files()
    return {**result, ENTRY: bundled(result).encode()}


def _files_in(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files_in(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(tuple(CONTENT_TYPES)):
            yield f"{prefix}{entry.name}", entry.read_bytes()


def bundled(files: dict[str, bytes]) -> str:
    """The script that starts the page, with all modules that it needs."""
    return bundle({name: content.decode() for name, content in files.items()}, ENTRY)


def bundle(sources: dict[str, str], entry: str) -> str:
    """All modules as one script, each in a function that returns its exports.

    The page's modules keep to two forms, `import { a, b } from "../other.js";` and `export` before
    a declaration, so this is enough.
    """
    parts: list[str] = []
    done: set[str] = set()

    def add(name: str) -> None:
        if name in done:
            return
        done.add(name)
        source = sources[name]
        for match in _IMPORT.finditer(source):
            add(_imported(name, match[2]))
        exported = ", ".join(_EXPORT.findall(source))
        body = _IMPORT.sub(lambda m: _constants(m[1], _imported(name, m[2])), source)
        body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
        opening = f"// {name}\nconst {_variable(name)} = (() => {{\n"
        parts.append(f"{opening}{body}\nreturn {{ {exported} }};\n}})();\n")

    add(entry)
    return "\n".join(parts).replace("</script", "<\\/script")


def _imported(importer: str, path: str) -> str:
    """The module that a path in another one names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), path))


def _constants(names: str, module: str) -> str:
    return f"const {{{names.replace(' as ', ': ')}}} = {_variable(module)};\n"


def _variable(name: str) -> str:
    return "m_" + re.sub(r"\W", "_", name)
