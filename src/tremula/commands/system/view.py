"""`tremula system view`: the fleet's page in a browser, live."""

import argparse
import webbrowser
from typing import Any
from urllib.parse import quote

from tremula.base.errors import InvalidOption
from tremula.commands.system.vipu import client_of


def add_view(tools: Any) -> None:  # noqa: ANN401 - argparse's own class is private
    view = tools.add_parser("view", help="open the fleet's page")
    view.add_argument("--no-browser", action="store_true", help="only print the address")
    view.set_defaults(action=_view)


def _view(args: argparse.Namespace) -> int:
    client = client_of(args)
    if not client.key:
        raise InvalidOption(
            "the page needs an access key.", hint="--config FILE.hcl, or $VIPU_CLI_API_ACCESS_KEY"
        )
    client.get("clusters")  # rejects a wrong key here, with an explanation
    url = f"http://{client.host}:{client.port}/?key={quote(client.key, safe='')}"
    print(url)
    if not args.no_browser:
        webbrowser.open(url)
    return 0
