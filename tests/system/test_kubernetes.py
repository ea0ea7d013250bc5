"""Manifests for Kubernetes: their fields and types, and the offer of IPUs to a node.

The schema here is of the fields that the manifests use, by the API reference; nothing unknown may
stand in them. With KUBERNETES_SCHEMAS naming a folder of published schemas
(`deployment-apps-v1.json`, …) they are checked against those, too.
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml

from tremula.commands import main

FOLDER = files("tremula.system") / "cluster" / "kubernetes"
NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
TEXT, WHOLE, YES = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
MAP = {"type": "object", "additionalProperties": TEXT}
AMOUNTS = {
    "type": "object",
    "additionalProperties": {"type": "string", "pattern": r"^\d+(m|Mi|Gi)?$"},
}


def fields(required=(), **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def several(item):
    return {"type": "array", "items": item, "minItems": 1}


METADATA = fields(("name",), name=NAME, namespace=NAME, labels=MAP, annotations=MAP)
SOURCE = fields(
    fieldRef=fields(("fieldPath",), fieldPath=TEXT),
    secretKeyRef=fields(("name", "key"), name=NAME, key=TEXT),
)
CONTAINER = fields(
    ("name", "image"),
    name=NAME, image=TEXT, args=TEXTS, command=TEXTS,
    env=several(fields(("name",), name=TEXT, value=TEXT, valueFrom=SOURCE)),
    ports=several(fields(("containerPort",), name=NAME, containerPort=WHOLE)),
    readinessProbe=fields(
        httpGet=fields(("port",), path=TEXT, port={"type": ["string", "integer"]}),
        periodSeconds=WHOLE,
    ),
    resources=fields(requests=AMOUNTS, limits=AMOUNTS),
    securityContext=fields(
        allowPrivilegeEscalation=YES, readOnlyRootFilesystem=YES, runAsNonRoot=YES
    ),
    volumeMounts=several(fields(("name", "mountPath"), name=NAME, mountPath=TEXT)),
)  # fmt: skip
VOLUME = fields(
    ("name",),
    name=NAME,
    persistentVolumeClaim=fields(("claimName",), claimName=NAME),
    emptyDir=fields(medium={"enum": ["", "Memory"]}, sizeLimit=TEXT),
)
POD = fields(
    ("containers",),
    containers=several(CONTAINER), volumes=several(VOLUME), serviceAccountName=NAME,
    nodeSelector=MAP, restartPolicy={"enum": ["Always", "OnFailure", "Never"]},
    terminationGracePeriodSeconds=WHOLE,
    securityContext=fields(runAsNonRoot=YES, runAsUser=WHOLE, fsGroup=WHOLE),
)  # fmt: skip
TEMPLATE = fields(("spec",), metadata=fields(labels=MAP, annotations=MAP), spec=POD)
SELECTOR = fields(("matchLabels",), matchLabels=MAP)
SUBJECT = fields(("kind", "name"), kind=TEXT, name=NAME, namespace=NAME)
RULE = fields(("verbs",), apiGroups=TEXTS, resources=TEXTS, verbs=TEXTS)
KINDS = {
    ("v1", "Namespace"): {},
    ("v1", "ServiceAccount"): {},
    ("v1", "PersistentVolumeClaim"): {
        "spec": fields(accessModes=TEXTS, resources=fields(requests=AMOUNTS))
    },
    ("v1", "Service"): {
        "spec": fields(
            selector=MAP,
            ports=several(fields(("port",), name=NAME, port=WHOLE, targetPort=TEXT)),
        )
    },
    ("apps/v1", "Deployment"): {
        "spec": fields(
            ("selector", "template"),
            replicas=WHOLE, selector=SELECTOR, template=TEMPLATE,
            strategy=fields(type={"enum": ["Recreate", "RollingUpdate"]}),
        )
    },
    ("apps/v1", "DaemonSet"): {
        "spec": fields(("selector", "template"), selector=SELECTOR, template=TEMPLATE)
    },
    ("batch/v1", "Job"): {
        "spec": fields(
            ("template",), backoffLimit=WHOLE, ttlSecondsAfterFinished=WHOLE, template=TEMPLATE
        )
    },
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): {"rules": several(RULE)},
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): {
        "roleRef": fields(("apiGroup", "kind", "name"), apiGroup=TEXT, kind=TEXT, name=NAME),
        "subjects": several(SUBJECT),
    },
}  # fmt: skip


def documents():
    for file in sorted(FOLDER.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
                yield pytest.param(document, id=f"{file.name}-{document['kind']}")


@pytest.mark.parametrize("document", list(documents()))
def test_a_manifest_has_known_fields_of_right_types(document):
    """Nothing is misspelt, missing or of another type."""
    extra = KINDS[document["apiVersion"], document["kind"]]
    head = {"apiVersion": TEXT, "kind": TEXT, "metadata": METADATA}
    jsonschema.validate(document, fields(("metadata", *extra), **head, **extra))
    template = document.get("spec", {}).get("template")
    if template and "selector" in document["spec"]:
        wanted = document["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= template["metadata"]["labels"].items()


def published(document):
    group, _, version = document["apiVersion"].rpartition("/")
    parts = [document["kind"].lower(), *([group.split(".")[0]] if group else []), version]
    return Path(os.environ["KUBERNETES_SCHEMAS"]) / f"{'-'.join(parts)}.json"


@pytest.mark.skipif("KUBERNETES_SCHEMAS" not in os.environ, reason="$KUBERNETES_SCHEMAS is not set")
@pytest.mark.parametrize("document", list(documents()))
def test_a_manifest_satisfies_the_published_schema(document):
    """The schemas that others publish agree."""
    jsonschema.validate(document, json.loads(published(document).read_text(encoding="utf-8")))


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
