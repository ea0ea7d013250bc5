"""Small reports for the site: what the analyser shows of an application, without the finest detail.

    tremula garden run heat_stencil --tiny --report reports/heat_stencil
    python tools/site_reports.py reports/heat_stencil …    # writes docs/reports/heat_stencil.packs

`tools/site.py` makes a page of each; all of them use one copy of the analyser's script and style.
"""

import base64
import json
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from tremula.vision.page_data.fetch import PageData
from tremula.vision.page_data.memory import TILES_PER_PART
from tremula.vision.page_data.pack import pack_of, unpack_pack
from tremula.vision.serve.page_files import bundled, page_files

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reports"
MOST_BYTES = 120_000  # of one report: dozens of them are in the repository
# Details per step and per tile, which take most of an export.
_DETAILS = ("trace-file", "traffic", "tile-contents", "host")
_MOST_TOO_LARGE = 8  # details that do not fit, after which no more are tried
_NO_PACKS = '<script type="module" src="page/main.js"></script>'
_STYLE = '<link rel="stylesheet" href="page/style.css">'


def small_packs(folder: Path) -> dict[str, bytes]:
    """What every view shows first and what is linked to; then details, as far as there is room."""
    data = PageData.of_files([folder])
    names = list(data.names())
    is_detail = {name: name.split("/")[1:2][0] in _DETAILS for name in names if name.count("/") > 1}
    packs = {n: _anywhere(data.pack(n)) for n in names if not is_detail.get(n) and n.count("/") < 2}
    linked = _linked_details(packs)
    n_bytes = sum(map(len, packs.values()))
    rest = [name for name in names if name not in packs]
    n_too_large = 0
    for name in sorted(rest, key=lambda name: (name not in linked, is_detail[name])):
        if n_too_large == _MOST_TOO_LARGE:
            break  # a long run has thousands of details, each of which takes time to make
        pack = _anywhere(data.pack(name))
        if name in linked or n_bytes + len(pack) <= MOST_BYTES:
            packs[name] = pack
            n_bytes += len(pack)
        else:
            n_too_large += 1
    data.close()
    return packs


def _linked_details(packs: Mapping[str, bytes]) -> set[str]:
    """Packs that the pages behind `deep_links` ask for."""
    tile = int(unpack_pack(packs["0/tiles"])[1]["including_gaps"].argmax())
    step = int(unpack_pack(packs["0/steps"])[1]["total_cycles"].argmax())
    return {f"0/tile-contents/{tile // TILES_PER_PART}", f"0/traffic/{step}"}


def _anywhere(pack: bytes) -> bytes:
    """A pack without the folders of the computer that it was made on."""
    facts, columns = unpack_pack(pack)
    text = json.dumps(facts, ensure_ascii=False)
    for folder in (ROOT / "src", ROOT, Path(sys.prefix), Path(sys.base_prefix), Path.home()):
        text = text.replace(f"{folder}/", "")
    return pack_of(json.loads(text), columns)


def write_packs(name: str, packs: dict[str, bytes]) -> Path:
    """A zip file in `docs/reports`, equal for equal packs: inflated, and compressed by LZMA."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.packs"
    with zipfile.ZipFile(path, "w") as archive:
        for pack_name, pack in packs.items():
            entry = zipfile.ZipInfo(pack_name)  # with a fixed date
            archive.writestr(entry, zlib.decompress(pack), zipfile.ZIP_LZMA)
    return path


@cache
def read_packs(path: Path) -> Mapping[str, bytes]:
    """The packs as the page reads them; level 9 takes three times as long and saves 1 %."""
    with zipfile.ZipFile(path) as archive:
        packs = {name: zlib.compress(archive.read(name)) for name in archive.namelist()}
    return MappingProxyType(packs)


def deep_links(packs: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Links into a report, with what each shows."""
    yield "the whole", "view=summary"
    cycles = unpack_pack(packs["0/steps"])[1]["total_cycles"]
    yield "the step that takes longest", f"view=execution&step={int(cycles.argmax())}"
    used = unpack_pack(packs["0/tiles"])[1]["including_gaps"]
    yield "the fullest tile", f"view=memory&tile={int(used.argmax())}"


def write_site_reports(folder: Path) -> list[str]:
    """A page of each report, with the script and style that they share; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    files = page_files()
    script = f'"use strict";\n{bundled(files)}'
    (folder / "analyser.js").write_text(script, encoding="utf-8")
    (folder / "analyser.css").write_bytes(files["style.css"])
    html = files["index.html"].decode()
    names = []
    for path in sorted(FOLDER.glob("*.packs")):
        (folder / f"{path.stem}.html").write_text(page(html, read_packs(path)), encoding="utf-8")
        names.append(path.stem)
    return names


def page(html: str, packs: Mapping[str, bytes]) -> str:
    """The analyser with the packs of a report inside. A plain script runs from a folder, too."""
    encoded = {name: base64.b64encode(pack).decode() for name, pack in packs.items()}
    text = json.dumps(encoded).replace("</", "<\\/")  # nothing in it can end the element
    inside = f'<script type="application/json" id="packs">{text}</script>'
    for old, new in (
        (_STYLE, '<link rel="stylesheet" href="analyser.css">'),
        (_NO_PACKS, f'{inside}\n<script defer src="analyser.js"></script>'),
    ):
        assert html.count(old) == 1, f"index.html lacks {old}"
        html = html.replace(old, new)
    return html


def main() -> int:
    for folder in map(Path, sys.argv[1:]):
        path = write_packs(folder.resolve().name, small_packs(folder))
        print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
