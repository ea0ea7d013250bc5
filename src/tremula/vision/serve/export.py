"""The page and its data as one HTML file that works without a server."""

import base64
import hashlib
import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.vision.page_data.fetch import PageData
from tremula.vision.serve.server import page_files

# The finest detail is left out first if it does not fit; the page says where it is missing.
MOST_DATA_BYTES = 24 << 20
_N_THREADS, _NAMES_AT_ONCE = 2, 48
# Of a heat map, the coarsest first: more of them take minutes to make and are rarely looked at.
_MOST_HEAT_BLOCKS = 400
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[\w./-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)


def export_page(
    data: PageData,
    path: str | Path,
    *,
    most_bytes: int = MOST_DATA_BYTES,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[int, int]:
    """Write the file; returns how many packs it holds and how many were left out.

    `progress` is told how much is done, 0 … 1.
    """
    # Sweeps compute in Python; packs are mostly read and deflated, which does not need its lock.
    with ThreadPoolExecutor(1) as pool:
        sweeps = pool.submit(lambda: {name: data.pack(name) for name in data.sweep_names()})
        packs, n_left_out = _packs_that_fit(data, most_bytes, lambda share: progress(0.9 * share))
        packs |= sweeps.result()
    write_page(path, packs)
    progress(1.0)
    return len(packs), n_left_out


def _packs_that_fit(
    data: PageData, most_bytes: int, progress: Callable[[float], None]
) -> tuple[dict[str, bytes], int]:
    """Packs by name, the most needed first, and how many others there are."""
    all_names, n_bytes = list(data.names()), 0
    names = _without_finest(all_names)
    packs: dict[str, bytes] = {}
    with ThreadPoolExecutor(_N_THREADS) as pool:
        for first in range(0, len(names), _NAMES_AT_ONCE):
            if n_bytes >= most_bytes:
                break
            some = names[first : first + _NAMES_AT_ONCE]
            packs |= zip(some, pool.map(data.pack, some), strict=True)
            n_bytes += sum(len(packs[name]) for name in some)
            progress(max(len(packs) / len(names), n_bytes / most_bytes))
    return packs, len(all_names) - len(packs)


def _without_finest(names: list[str]) -> list[str]:
    """Names without the finest blocks of large heat maps; blocks are named coarsest first."""
    counts: Counter[tuple[str, str]] = Counter()
    kept = []
    for name in names:
        number, what, *rest = [*name.split("/"), "", ""]
        if what == "heat":
            counts[number, rest[0]] += 1
        if what != "heat" or counts[number, rest[0]] <= _MOST_HEAT_BLOCKS:
            kept.append(name)
    return kept


def write_page(path: str | Path, packs: dict[str, bytes]) -> None:
    """The page and its packs as one file."""
    encoded = {name: base64.b64encode(pack).decode() for name, pack in packs.items()}
    try:
        Path(path).write_text(page_html(encoded), encoding="utf-8")
    except OSError as error:
        raise FileLoadError(
            f"cannot write {str(path)!r}: {error.strerror or error}.",
            hint="give a file in a folder you may write to",
        ) from error


def page_html(packs: dict[str, str]) -> str:
    """The page with its style, script and data inside."""
    sources = {name: content.decode() for name, content in page_files().items()}
    style, script = f"\n{sources['style.css']}", f"\n{bundle(sources, 'main.js')}"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    html = sources["index.html"]
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    data = f'<script type="application/json" id="packs">{json.dumps(packs)}</script>'
    for old, new in (
        ('<meta charset="utf-8">', f'<meta charset="utf-8">\n{meta}'),
        ('<link rel="stylesheet" href="page/style.css">', f"<style>{style}</style>"),
        (
            '<script type="module" src="page/main.js"></script>',
            f'{data}\n<script type="module">{script}</script>',
        ),
    ):
        assert html.count(old) == 1, f"index.html lacks {old}"
        html = html.replace(old, new)
    return html


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


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
