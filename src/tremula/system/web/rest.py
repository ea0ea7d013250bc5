"""The controller over HTTP: a REST API with its OpenAPI page, metrics, the fleet's page."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from h11 import LocalProtocolError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tremula.base.storage.strict_json import JsonObject
from tremula.base.version import VERSION
from tremula.system.control.access import Caller
from tremula.system.control.controller import Controller
from tremula.system.control.errors import ControlError
from tremula.system.control.inventory import requested_system
from tremula.system.control.partitions import PartitionRequest
from tremula.system.web import exporter
from tremula.system.web.api_page import api_page
from tremula.system.web.fleet_page import POLICY, page_file, state_json
from tremula.vision.serve.page_files import CONTENT_TYPES

MAX_BODY_BYTES = 64 << 10
COOKIE = "tremula_vipu"
_LOG = logging.getLogger("uvicorn.error")
_OWN_NAMES = ("127.0.0.1", "::1", "localhost")
_SECONDS_BETWEEN_CHECKS = 1.0
_PLAIN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"

Name = Annotated[str, Field(pattern=_PLAIN, examples=["p1"])]
NameInPath = Annotated[str, Path(pattern=_PLAIN)]
Count = Annotated[int, Field(ge=0, le=2**31)]
Text = Annotated[str, Field(max_length=255)]
Number = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewCluster(_RequestBody):
    name: Name
    system: Text | None = Field(None, examples=["pod64"])
    chip: Text | None = Field(None, examples=["bow"])
    n_ipus: Annotated[int, Field(ge=1, le=16_384)] | None = None


class NewAllocation(_RequestBody):
    name: Name
    cluster: Name
    agents: Annotated[list[Name], Field(max_length=4096)] = []
    users: Annotated[list[Name], Field(max_length=1024)] = []


class NewUser(_RequestBody):
    name: Name
    role: Text = "user"
    max_ipus: Count | None = None
    max_partitions: Count | None = None


class NewPartition(_RequestBody):
    name: Name
    size: Count
    allocation: Name | None = None
    n_gcds: Count = 1
    is_reconfigurable: bool = False
    topology: Text = "auto"
    first: Count | None = None


class NewLease(_RequestBody):
    partition: Name
    gcd: Count = 0
    ipus: Annotated[list[Count], Field(min_length=1, max_length=4096)]
    pid: Count
    host: Text
    user: Text
    command: Text


class Load(_RequestBody):
    busy_s: Number = 0
    cycles: Number = 0
    joules: Number = 0
    modelled_s: Number = 0
    host_bytes: Number = 0
    exchange_bytes: Number = 0
    link_bytes: Number = 0
    tile_bytes: Number = 0


class NewFault(_RequestBody):
    kind: Text
    cluster: Name
    a: Count
    b: Count | None = None


_ERRORS: dict[int | str, JsonObject] = {
    status: {"description": text}
    for status, text in (
        (400, "The request cannot be read"),
        (401, "No key, or an unknown one"),
        (403, "Not allowed"),
        (404, "There is no such thing"),
        (409, "It cannot be done now"),
        (413, "The body is too large"),
        (422, "A value is wrong"),
    )
}


def make_app(controller: Controller) -> FastAPI:
    """The application of one controller."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        checking = asyncio.create_task(_take_back_for_ever(controller))
        yield
        checking.cancel()

    app = FastAPI(
        title="Tremula V-IPU controller",
        version=VERSION,
        description="Clusters of modelled IPU-Machines: partitions, programs, faults, metrics.",
        lifespan=lifespan,
        responses=_ERRORS,
        docs_url=None,  # its page needs the Internet; ours is below
        redoc_url=None,
    )
    app.state.controller = controller
    app.add_middleware(Guard, controller=controller)
    _add_error_pages(app, controller)
    _add_inventory(app, controller)
    _add_allocations(app, controller)
    _add_users(app, controller)
    _add_partitions(app, controller)
    _add_programs(app, controller)
    _add_views(app, controller)
    return app


async def _take_back_for_ever(controller: Controller) -> None:
    while True:
        try:
            controller.take_back()
        except sqlite3.Error:  # a full disk, say: it may be over in a second
            _LOG.exception("devices of dead programs could not be taken back")
        await asyncio.sleep(_SECONDS_BETWEEN_CHECKS)


# -- who calls -------------------------------------------------------------------------------------


async def _caller(request: Request) -> Caller:
    """Whose key the request has; a browser's cookie may only look."""
    controller: Controller = request.app.state.controller
    key = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not key and request.method == "GET":
        key = request.cookies.get(COOKIE, "")
    try:
        return controller.authenticate(key)
    except ControlError as error:
        what = f"{request.method} {request.url.path}"
        controller.refused(_address(request), what, "", error)
        raise


Who = Annotated[Caller, Depends(_caller)]


def _address(request: Request) -> str:
    return request.client.host if request.client else "unknown"


class Guard:
    """Large bodies never get in; answers tell browsers to trust nothing."""

    def __init__(self, app: ASGIApp, controller: Controller):
        self._app, self._controller = app, controller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._guarded(scope, receive, send)
        except LocalProtocolError:  # the server has answered a broken body by itself, and hung up
            _LOG.info("%s %s was broken off", scope.get("method"), scope.get("path"))

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        is_long = not length.isdigit() or int(length) > MAX_BODY_BYTES
        if is_long or b"transfer-encoding" in headers:
            error = ControlError(413, "too-large", f"a body may have {MAX_BODY_BYTES} bytes.")
            who = scope["client"][0] if scope.get("client") else "unknown"
            what = f"{scope['method']} {scope['path']}"
            self._controller.refused(who, what, "", error)
            await _answer_of(error)(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_GUARD_HEADERS]
            await send(message)

        await self._app(scope, receive, send_guarded)


_GUARD_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


def _answer_of(error: ControlError) -> JSONResponse:
    table = {"error": error.what, "code": error.code, "hint": error.hint}
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return JSONResponse(table, error.status, headers)


def _add_error_pages(app: FastAPI, controller: Controller) -> None:
    """Rejected requests, values of wrong types, unknown addresses: one form of answer for all."""

    @app.exception_handler(ControlError)
    async def on_control_error(_request: Request, error: ControlError) -> Response:
        return _answer_of(error)

    @app.exception_handler(RequestValidationError)
    async def on_wrong_value(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        answered = ControlError(422, "wrong", f"{where}: {first['msg']}", "see /docs")
        what = f"{request.method} {request.url.path}"
        controller.refused(_address(request), what, where, answered)
        return _answer_of(answered)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        answered = ControlError(error.status_code, "http", str(error.detail), "see /docs")
        what = f"{request.method} {request.url.path}"
        controller.refused(_address(request), what, "", answered)
        answer = _answer_of(answered)
        answer.headers.update(error.headers or {})
        return answer


# -- what there is ---------------------------------------------------------------------------------


def _add_inventory(app: FastAPI, controller: Controller) -> None:
    @app.get("/api/v1/version")
    async def version() -> Response:
        return JSONResponse({"version": VERSION})

    @app.get("/api/v1/clusters")
    async def clusters(who: Who) -> Response:
        return JSONResponse(controller.clusters(who))

    @app.post("/api/v1/clusters")
    async def add_cluster(who: Who, new: NewCluster) -> Response:
        system = requested_system(new.system, new.chip, new.n_ipus)
        controller.add_cluster(who, new.name, system)
        return JSONResponse({"name": new.name, "n_ipus": system.n_ipus})

    @app.delete("/api/v1/clusters/{name}")
    async def remove_cluster(who: Who, name: NameInPath) -> Response:
        controller.remove_cluster(who, name)
        return JSONResponse({})

    @app.get("/api/v1/devices")
    async def devices(
        who: Who, cluster: Annotated[str | None, Query(pattern=_PLAIN)] = None
    ) -> Response:
        return Response(controller.devices_json(who, cluster), media_type="application/json")


def _add_allocations(app: FastAPI, controller: Controller) -> None:
    @app.get("/api/v1/agents")
    async def agents(who: Who) -> Response:
        return JSONResponse(controller.agents(who))

    @app.get("/api/v1/allocations")
    async def allocations(who: Who) -> Response:
        return JSONResponse(controller.allocations(who))

    @app.post("/api/v1/allocations")
    async def add_allocation(who: Who, new: NewAllocation) -> Response:
        controller.add_allocation(who, new.name, new.cluster, new.agents, new.users)
        return JSONResponse({"name": new.name})

    @app.delete("/api/v1/allocations/{name}")
    async def remove_allocation(who: Who, name: NameInPath) -> Response:
        controller.remove_allocation(who, name)
        return JSONResponse({})

    @app.put("/api/v1/allocations/{name}/users/{user}")
    async def grant(who: Who, name: NameInPath, user: NameInPath) -> Response:
        controller.grant(who, name, user)
        return JSONResponse({})


def _add_users(app: FastAPI, controller: Controller) -> None:
    @app.get("/api/v1/users")
    async def users(who: Who) -> Response:
        return JSONResponse(controller.users(who))

    @app.post("/api/v1/users")
    async def add_user(who: Who, new: NewUser) -> Response:
        key = controller.add_user(who, new.name, new.role, new.max_ipus, new.max_partitions)
        return JSONResponse({"name": new.name, "role": new.role, "key": key})

    @app.post("/api/v1/users/{name}/key")
    async def new_key(who: Who, name: NameInPath) -> Response:
        return JSONResponse({"name": name, "key": controller.new_key(who, name)})

    @app.delete("/api/v1/users/{name}")
    async def remove_user(who: Who, name: NameInPath) -> Response:
        controller.remove_user(who, name)
        return JSONResponse({})

    @app.get("/api/v1/audit")
    async def audit(
        who: Who,
        n: Annotated[int, Query(ge=1, le=10_000)] = 100,
        outcome: Annotated[str | None, Query(max_length=40)] = None,
    ) -> Response:
        return JSONResponse(controller.audit(who, n, outcome))


# -- partitions and programs -----------------------------------------------------------------------


def _add_partitions(app: FastAPI, controller: Controller) -> None:
    @app.get("/api/v1/partitions")
    async def partitions(who: Who) -> Response:
        return JSONResponse(controller.partitions(who))

    @app.post("/api/v1/partitions")
    async def add_partition(who: Who, new: NewPartition) -> Response:
        return JSONResponse(controller.add_partition(who, PartitionRequest(**new.model_dump())))

    @app.get("/api/v1/partitions/{name}")
    async def partition(who: Who, name: NameInPath) -> Response:
        return JSONResponse(controller.partition(who, name))

    @app.delete("/api/v1/partitions/{name}")
    async def remove_partition(who: Who, name: NameInPath, force: bool = False) -> Response:
        controller.remove_partition(who, name, is_forced=force)
        return JSONResponse({})

    @app.post("/api/v1/partitions/{name}/reset")
    async def reset_partition(who: Who, name: NameInPath) -> Response:
        controller.reset_partition(who, name)
        return JSONResponse({})

    @app.get("/api/v1/partitions/{name}/monitor")
    async def monitor_partition(who: Who, name: NameInPath) -> Response:
        return JSONResponse(controller.monitor(who, name))

    @app.get("/api/v1/partitions/{name}/ipuof")
    async def ipuof(
        who: Who, name: NameInPath, gcd: Annotated[int, Query(ge=0, le=2**31)] = 0
    ) -> Response:
        return JSONResponse(controller.ipuof(who, name, gcd))


def _add_programs(app: FastAPI, controller: Controller) -> None:
    @app.get("/api/v1/monitor")
    async def monitor(who: Who) -> Response:
        return JSONResponse(controller.monitor(who, None))

    @app.get("/api/v1/leases")
    async def leases(who: Who) -> Response:
        return JSONResponse(controller.leases(who))

    @app.post("/api/v1/leases")
    async def add_lease(who: Who, new: NewLease) -> Response:
        return JSONResponse(controller.add_lease(who, new.model_dump()))

    @app.post("/api/v1/leases/{id}/beat")
    async def beat(who: Who, id: NameInPath, load: Annotated[Load, Body()]) -> Response:
        return JSONResponse({"faults": controller.beat(who, id, load.model_dump())})

    @app.delete("/api/v1/leases/{id}")
    async def remove_lease(who: Who, id: NameInPath) -> Response:
        controller.remove_lease(who, id)
        return JSONResponse({})

    @app.get("/api/v1/faults")
    async def faults(who: Who) -> Response:
        return JSONResponse(controller.faults(who))

    @app.post("/api/v1/faults")
    async def add_fault(who: Who, new: NewFault) -> Response:
        return JSONResponse(controller.add_fault(who, new.kind, new.cluster, new.a, new.b))

    @app.delete("/api/v1/faults/{number}")
    async def clear_fault(who: Who, number: Annotated[int, Path(ge=0, le=2**31)]) -> Response:
        controller.clear_fault(who, number)
        return JSONResponse({})


# -- metrics and the page --------------------------------------------------------------------------


def _add_views(app: FastAPI, controller: Controller) -> None:
    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        """For Prometheus: this computer needs no key, others do."""
        is_proxied = "x-forwarded-for" in request.headers or "forwarded" in request.headers
        # A page of another site may have its own name lead here: then this is not our name.
        is_here = _address(request) in _OWN_NAMES and request.url.hostname in _OWN_NAMES
        if not is_here or is_proxied:
            (await _caller(request)).need("read")
        return Response(exporter.scrape(controller), media_type=exporter.CONTENT_TYPE)

    @app.get("/", include_in_schema=False)
    async def page(key: str = "") -> Response:
        if key:  # moves from the address into a cookie that scripts cannot read
            controller.authenticate(key)
            answer = Response(status_code=303, headers={"Location": "/"})
            answer.set_cookie(COOKIE, key, httponly=True, samesite="strict")
            return answer
        return _page_answer("index.html")

    @app.post("/api/v1/session")
    async def sign_in(request: Request, who: Who) -> Response:
        """Let a browser look: the key of this request moves into a cookie."""
        key = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        answer = JSONResponse({"user": who.name})
        answer.set_cookie(COOKIE, key, httponly=True, samesite="strict")
        return answer

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        headers = {"Content-Security-Policy": POLICY}
        return Response(api_page(app.openapi()), media_type="text/html", headers=headers)

    @app.get("/page/{name}", include_in_schema=False)
    async def page_part(name: str) -> Response:
        return _page_answer(name)

    @app.get("/api/v1/state")
    async def state(who: Who) -> Response:
        """Everything that the page shows, in columns."""
        return Response(state_json(controller, who), media_type="application/json")


def _page_answer(name: str) -> Response:
    content = page_file(name)
    if content is None:
        raise ControlError(404, "not-found", "there is no such page.")
    kind = CONTENT_TYPES[PurePosixPath(name).suffix]
    return Response(content, media_type=kind, headers={"Content-Security-Policy": POLICY})
