"""The page and its data as one HTML file that works without a server."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.base.processes import n_cores
from tremula.base.storage.atomic_file import write_text
from tremula.vision.page_data.fetch import PageData
from tremula.vision.serve.page_files import bundled, page_files
from tremula.vision.serve.program_packs import PROGRAM_NAMES, program_packs

# The finest detail is left out first if it does not fit; the page says where it is missing.
MOST_DATA_BYTES = 24 << 20
_MOST_THREADS, _NAMES_AT_ONCE = 2, 48
# Of a heat map, in whole levels: more of them take minutes to make and are rarely looked at.
_MOST_HEAT_BLOCKS = 400


def export_page(
    data: PageData,
    path: str | Path,
    *,
    most_bytes: int = MOST_DATA_BYTES,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[int, int]:
    """Write the file; returns how many packs it holds and how many were left out.

    `progress` is called with the share done, 0 … 1.
    """
    with ThreadPoolExecutor(1) as pool:
        of_programs = pool.submit(program_packs, data)
        packs, n_left_out = _packs_that_fit(data, most_bytes, lambda share: progress(0.9 * share))
        packs |= of_programs.result()
    write_page(path, packs)
    progress(1.0)
    return len(packs), n_left_out


def _packs_that_fit(
    data: PageData, most_bytes: int, progress: Callable[[float], None]
) -> tuple[dict[str, bytes], int]:
    """Packs by name, the most needed first, and how many others there are."""
    all_names, n_bytes = [name for name in data.names() if not _needs_program(name)], 0
    names = _without_finest(all_names)
    packs: dict[str, bytes] = {}
    # Another core is busy with programs, in a separate process if they are large.
    with ThreadPoolExecutor(min(_MOST_THREADS, max(1, n_cores() - 1))) as pool:
        for first in range(0, len(names), _NAMES_AT_ONCE):
            if n_bytes >= most_bytes:
                break
            some = names[first : first + _NAMES_AT_ONCE]
            packs |= zip(some, pool.map(data.pack, some), strict=True)
            n_bytes += sum(len(packs[name]) for name in some)
            progress(max(len(packs) / len(names), n_bytes / most_bytes))
    return packs, len(all_names) - len(packs)


def _needs_program(name: str) -> bool:
    """Whether a pack is one of `program_packs`, made from the tile program."""
    return "".join(name.split("/")[1:2]) in PROGRAM_NAMES


def _without_finest(names: list[str]) -> list[str]:
    """Names without the finest levels of large heat maps; blocks are named coarsest first."""
    counts = Counter(level for level in map(_heat_level, names) if level)
    n_blocks: Counter[tuple[str, ...]] = Counter()
    too_fine = set()
    for level, n in counts.items():
        heat_map = level[:-1]
        n_blocks[heat_map] += n
        if n_blocks[heat_map] > max(n, _MOST_HEAT_BLOCKS):
            too_fine.add(level)
    return [name for name in names if _heat_level(name) not in too_fine]


def _heat_level(name: str) -> tuple[str, ...]:
    """(report, kind, level) of a heat map's block; of anything else nothing."""
    number, what, *place = [*name.split("/"), ""]
    return (number, *place[:2]) if what == "heat" else ()


def write_page(path: str | Path, packs: dict[str, bytes]) -> None:
    """The page and its packs as one file."""
    encoded = {name: base64.b64encode(pack).decode() for name, pack in packs.items()}
    try:
        write_text(path, page_html(encoded))
    except OSError as error:
        raise FileLoadError(
            f"cannot write {str(path)!r}: {error.strerror or error}.",
            hint="give a file in a folder you may write to",
        ) from error


def page_html(packs: dict[str, str]) -> str:
    """The page with its style, script and data inside."""
    result = page_files()
    return one_file(
        result["index.html"].decode(), result["style.css"].decode(), bundled(result), packs
    )


def one_file(html: str, style: str, script: str, data: object) -> str:
    """A page with everything inside, which may load nothing and run nothing else."""
    style, script = f"\n{style}", f"\n{script}"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    text = json.dumps(data).replace("</", "<\\/")  # nothing in it can end the element
    packs = f'<script type="application/json" id="packs">{text}</script>'
    for old, new in (
        ('<meta charset="utf-8">', f'<meta charset="utf-8">\n{meta}'),
        ('<link rel="stylesheet" href="page/style.css">', f"<style>{style}</style>"),
        (
            '<script type="module" src="page/main.js"></script>',
            f'{packs}\n<script type="module">{script}</script>',
        ),
    ):
        assert html.count(old) == 1, f"index.html lacks {old}"
        html = html.replace(old, new)
    return html


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
