"""Runs a controller: state in a folder, API on the loop-back address unless set otherwise."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from tremula.hardware import System
from tremula.system.control.access import Caller
from tremula.system.control.controller import Controller
from tremula.system.private_files import write_private
from tremula.system.web.rest import make_app
from tremula.system.web.slow_clients import ImpatientProtocol

LOOP_BACK = "127.0.0.1"
STATE_FILE, KEY_FILE = "vipu.sqlite", "admin.hcl"
_BOOT = Caller("controller", "admin")


def open_controller(folder: Path, cluster: str, system: System) -> Controller:
    """The controller of a folder. A new one gets a cluster, and a file with the first key."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    controller = Controller(folder / STATE_FILE)
    if controller.admin_key is not None:
        controller.add_cluster(_BOOT, cluster, system)
        text = f'api-user-id = "admin"\napi-access-key = "{controller.admin_key}"\n'
        write_private(folder / KEY_FILE, text)
    return controller


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket to serve on; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    made.listen(1024)
    return made


def serve(controller: Controller, listening: socket.socket) -> None:
    """Answer requests until a signal ends it."""
    make_server(controller).run(sockets=[listening])


@contextmanager
def serving(controller: Controller) -> Iterator[int]:
    """Answer requests in a thread, on any free port of the loop-back address, which is given."""
    server = make_server(controller)
    with listening_socket(LOOP_BACK, 0) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(10)


def make_server(controller: Controller) -> uvicorn.Server:
    config = uvicorn.Config(
        make_app(controller),
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # or a header could pretend to come from this computer
        server_header=False,
        timeout_graceful_shutdown=2,
        http=ImpatientProtocol,
    )
    return uvicorn.Server(config)
