"""The files of the fleet's page, and what browsers may do with them."""

from functools import lru_cache
from importlib.resources import files

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
}
# Only the page's own files run, nothing is sent elsewhere, no other page can frame it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@lru_cache(maxsize=1)
def _contents() -> dict[str, bytes]:
    folder = files("tremula.system.web") / "page"
    return {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()}


def page_file(name: str) -> bytes | None:
    """A file by its name; None if the page has none of that name."""
    return _contents().get(name)
