"""Serves the analyser page to this computer's browser alone: a token, no other site.

It is read-only but for reports that the user opens in the page, which go to a temporary folder.
"""

import hmac
import json
import re
import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from urllib.parse import parse_qs, unquote, urlsplit

from tremula.base.errors import FileLoadError, InvalidOption, PoplarError
from tremula.vision.page_data.fetch import PageData
from tremula.vision.serve.page_files import CONTENT_TYPES, served_files
from tremula.vision.serve.uploads import MOST_UPLOAD_BYTES, Uploads

HOST = "127.0.0.1"
# Names this computer has for itself. Any port: a tunnel may end at another one.
_OWN_NAMES = (HOST, "localhost", "[::1]")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d{1,5})?")
# Only the page's own files run, nothing is sent elsewhere, no other page can frame it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_COMMON_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """A server of one page. Use `url` to open it, `serve_forever` to run it."""

    daemon_threads = True

    def __init__(
        self,
        data: PageData,
        port: int = 0,
        host_names: Sequence[str] = (),
        *,
        is_watching: bool = False,
    ):
        self.names = frozenset((*_OWN_NAMES, *map(_checked_name, host_names)))
        self.data = data
        self.is_watching = is_watching  # newer reports are shown without asking
        self._renewing = threading.Lock()
        self._before: PageData | None = None
        self.uploads = Uploads()
        self.token = secrets.token_urlsafe(24)
        self.files = served_files()
        super().__init__((HOST, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away while it is answered is no news; anything else is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # pyright: ignore[reportArgumentType]

    @cached_property
    def authority(self) -> str:
        return f"{HOST}:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.authority}/?token={self.token}"

    def renew(self) -> str:
        """Open reports again that were written again; says why that was not possible."""
        with self._renewing:
            if not self.data.newer():
                return ""
            try:
                renewed = self.data.renewed()
            except PoplarError as error:
                return str(error)
            # Requests may still be reading the last one; none reads the one before it.
            if self._before is not None:
                self._before.close()
            self._before, self.data = self.data, renewed
            return ""

    def open_upload(self, name: str, source: BufferedIOBase, n_bytes: int) -> int:
        """Show another report, copied from a stream; returns its number on the page."""
        with self._renewing:
            path = self.uploads.add(name, source, n_bytes)
            paths = [reader.path for reader in self.data.readers]
            try:
                opened = PageData.of_files([*paths, path], self.data.generation + 1)
            except PoplarError as error:
                self.uploads.remove(path)
                what = error.what.replace(repr(str(path)), repr(name)).replace(str(path), name)
                raise FileLoadError(what, hint=error.hint) from error
            if self._before is not None:
                self._before.close()
            self._before, self.data = self.data, opened
            return len(paths)

    def server_close(self) -> None:
        super().server_close()
        self.uploads.close()
        for data in (self._before, self.data):
            if data is not None:
                data.close()

    @property
    def cookie_name(self) -> str:
        # Cookies are shared between ports, so each server needs a distinct name.
        return f"tremula_{self.server_address[1]}"

    def is_token(self, text: str | None) -> bool:
        return text is not None and hmac.compare_digest(text.encode(), self.token.encode())


def _checked_name(name: str) -> str:
    """A host name as browsers send it."""
    if not _NAME.fullmatch(name.lower()):
        raise InvalidOption(
            f"{name!r} is not a host name.", hint="give a name like mybox.example, without a port"
        )
    return name.lower()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tremula", ""
    timeout = 60

    def log_message(self, format: str, *args: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Requests are not logged."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        token = parse_qs(url.query).get("token", [None])[0]
        why_not = self._why_not_own()
        if why_not:
            self._refuse(HTTPStatus.FORBIDDEN, why_not)
        elif url.path == "/" and self.server.is_token(token):
            self._let_in()
        elif not self._has_token():
            self._refuse(
                HTTPStatus.UNAUTHORIZED,
                "Open the page with the address that `tremula view` printed.",
            )
        else:
            self._answer(unquote(url.path), parse_qs(url.query))

    def do_POST(self) -> None:
        """A report that the page's user opens or drops there: the one thing that can be sent."""
        if urlsplit(self.path).path != "/open":
            self.send_error(HTTPStatus.NOT_IMPLEMENTED)
            return
        why_not = self._why_not_own()
        if why_not or not self._has_token():
            status = HTTPStatus.FORBIDDEN if why_not else HTTPStatus.UNAUTHORIZED
            self._reject_upload(status, why_not or "Only the page itself can send a report.")
            return
        text = self.headers.get("Content-Length", "")
        n_bytes = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1
        if not 0 < n_bytes <= MOST_UPLOAD_BYTES:
            why = (
                f"Expected a report of 1 to {MOST_UPLOAD_BYTES:,} bytes, got {text[:20] or 'none'}."
            )
            self._reject_upload(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
            return
        try:
            name = unquote(self.headers.get("X-Tremula-Name", ""))
            number = self.server.open_upload(name, self.rfile, n_bytes)
        except PoplarError as error:
            self._reject_upload(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
            return
        self._send(HTTPStatus.OK, json.dumps({"report": number}).encode(), "application/json")

    def _reject_upload(self, status: HTTPStatus, why: str) -> None:
        """What was sent may not have been read: the connection cannot be used again."""
        self.close_connection = True
        self._send(status, why.encode(), "text/plain; charset=utf-8", {"Connection": "close"})

    def _why_not_own(self) -> str:
        """Why a request is rejected (DNS rebinding, other sites); empty if it is the page's own."""
        host = self.headers.get("Host", "").lower()
        named = _AUTHORITY.fullmatch(host)
        if named is None:
            return "The request does not say which host it is for."
        if named[1] not in self.server.names:
            return (
                f"This server does not go by the name {named[1][:253]!r}, so that other sites "
                f"cannot reach it under one of theirs.\nIf the name is yours: "
                f"tremula view --host-name {named[1][:253]} REPORT"
            )
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return "This server answers only its own page, not other sites."
        is_own = self.headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none") or (
            # A link on another site may open the page: that site cannot read the answer.
            self.headers.get("Sec-Fetch-Mode") == "navigate"
            and self.headers.get("Sec-Fetch-Dest") == "document"
        )
        return "" if is_own else "This server answers only its own page, not other sites."

    def _has_token(self) -> bool:
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return False
        cookie = cookies.get(self.server.cookie_name)
        sent = self.headers.get("X-Tremula-Token")
        return self.server.is_token(sent if cookie is None else cookie.value)

    def _let_in(self) -> None:
        """Move the token from the address to a cookie."""
        cookie = f"{self.server.cookie_name}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(HTTPStatus.SEE_OTHER, b"", "text/plain", {"Location": "/", "Set-Cookie": cookie})

    def _answer(self, path: str, query: dict[str, list[str]]) -> None:
        name = path.removeprefix("/page/") if path.startswith("/page/") else ""
        if path == "/":
            name = "index.html"
        if path.startswith("/data/"):
            self._send_data(path.removeprefix("/data/"), query.get("generation", [None])[0])
        elif path == "/news":
            self._send_news()
        elif name in self.server.files:
            kind = CONTENT_TYPES[name[name.rindex(".") :]]
            self._send(HTTPStatus.OK, self.server.files[name], kind)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "Not found.")

    def _send_data(self, name: str, generation: str | None) -> None:
        """A pack; a page that starts gets the newest reports, one of older reports is told."""
        problem = self.server.renew() if name == "index" else ""
        data = self.server.data
        if generation is not None and generation != str(data.generation):
            why = "The report was written again, and this page shows the old one: load it again."
            self._refuse(HTTPStatus.CONFLICT, why)
            return
        try:
            pack = data.index_pack(problem) if name == "index" else data.pack(name)
        except PoplarError as error:
            self._refuse(HTTPStatus.NOT_FOUND, str(error))
            return
        except Exception:
            why = "This is a bug in Tremula: the terminal of `tremula view` shows where."
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, why)
            raise
        self._send(HTTPStatus.OK, pack, "application/octet-stream")

    def _send_news(self) -> None:
        """Whether reports were written again since they were opened, and what is under way."""
        data = self.server.data
        news = {
            "generation": data.generation,
            "newer": data.newer(),
            "stamp": data.stamps_now(),
            "is_watching": self.server.is_watching,
            "sweep": data.progress(),
        }
        self._send(HTTPStatus.OK, json.dumps(news).encode(), "application/json")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, why.encode(), "text/plain; charset=utf-8")

    def _send(
        self, status: HTTPStatus, body: bytes, kind: str, more: dict[str, str] | None = None
    ) -> None:
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **_COMMON_HEADERS}
        with suppress(ConnectionError):  # the tab was closed before its answer came
            self.send_response(status)
            for name, value in {**headers, **(more or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
