"""Manifests for Kubernetes against its published schemas, and the offer of IPUs to a node."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files

import kubernetes_validate
import pytest
import yaml

from tremula.commands import main

FOLDER = files("tremula.system") / "cluster" / "kubernetes"


def documents():
    for file in sorted(FOLDER.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
                yield pytest.param(document, id=f"{file.name}-{document['kind']}")


@pytest.mark.parametrize("document", list(documents()))
def test_a_manifest_satisfies_the_published_schema(document):
    """Nothing is misspelt, missing or of another type; selectors choose their own pods."""
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    template = document.get("spec", {}).get("template")
    if template and "selector" in document["spec"]:
        wanted = document["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= template["metadata"]["labels"].items()


def test_commands_of_the_manifests_exist():
    """What a container runs is a command of Tremula, with options that it knows."""
    commands = []
    for parameters in documents():
        (document,) = parameters.values
        template = document.get("spec", {}).get("template")
        if template:
            commands += [c["args"] for c in template["spec"]["containers"]]
    assert [args[0] for args in commands] == ["vipu-server", "poprun", "system"]
    for args in commands:
        with pytest.raises(SystemExit) as stopped:
            main([*args, "--help"] if args[0] != "poprun" else [args[0], *args[1:-1], "--help"])
        assert stopped.value.code == 0


def test_a_node_offers_the_ipus_that_work(admin, tmp_path, capsys):
    """The number of working chips goes into the node's status, with the pod's token."""
    asked = []

    class Api(BaseHTTPRequestHandler):
        def do_PATCH(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers["Authorization"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    (tmp_path / "token").write_text("secret\n")
    admin.post("faults", kind="agent", cluster="cl0", a=0)
    server = HTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    line = ["system", "--api-port", str(admin.port), "--api-access-key", admin.key, "offer-node"]
    url = f"http://127.0.0.1:{server.server_port}"
    assert main([*line, "n1", "--kubernetes", url, "--account", str(tmp_path)]) == 0
    thread.join()
    server.server_close()
    patch = [{"op": "add", "path": "/status/capacity/tremula.dev~1ipu", "value": "12"}]
    assert asked == [("/api/v1/nodes/n1/status", "Bearer secret", patch)]


def test_files_are_written_where_asked(tmp_path, capsys):
    """`tremula system files` writes each kind; scripts can be run; nothing is overwritten."""
    for kind, name in (("slurm", "ipu-prolog.sh"), ("kubernetes", "job.yaml")):
        assert main(["system", "files", kind, str(tmp_path / kind)]) == 0
        assert (tmp_path / kind / name).is_file()
    assert os.access(tmp_path / "slurm" / "ipu-prolog.sh", os.X_OK)
    assert main(["system", "files", "slurm", str(tmp_path / "slurm")]) == 1
