"""The software bill of materials of a wheel, as CycloneDX: what it needs, and what it contains.

PEP 770 puts it into the wheel, under `.dist-info/sboms/`. `tools/dist.py` does.
"""

import hashlib
import json
import tomllib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.requirements import Requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class VendoredPart:
    """A file of another project that is in the wheel."""

    distribution: str
    name: str
    file: str  # under src
    licence: str  # an SPDX expression, or a name
    source: str


_MNIST = "http://yann.lecun.com/exdb/mnist/"
VENDORED = (
    VendoredPart(
        distribution="tremula-garden",
        name="hydronet-gnn measurements",
        file="tremula/validate/data/bow_gather_scatter_schnet.csv",
        licence="MIT",
        source="https://github.com/graphcore-research/hydronet-gnn",
    ),
    VendoredPart(
        distribution="tremula",
        name="digits of MNIST",
        file="tremula/demo/data/digits.npz",
        licence="LicenseRef-MNIST",
        source=_MNIST,
    ),
    VendoredPart(
        distribution="tremula-garden",
        name="more digits of MNIST",
        file="tremula/garden/models/datasets/data/more_digits.npz",
        licence="LicenseRef-MNIST",
        source=_MNIST,
    ),
)


def sbom(project: Path, version: str, epoch_s: int) -> str:
    """The bill of a project's folder, with no facts of the machine it is made on."""
    data = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = data["name"]
    reference = f"pkg:pypi/{name}@{version}"
    required = [_required(text) for text in data["dependencies"]]
    source = project / "src" if (project / "src").is_dir() else project.parent / "src"
    contained = [_contained(part, source) for part in VENDORED if part.distribution == name]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, reference)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch_s, UTC).isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "library",
                "bom-ref": reference,
                "name": name,
                "version": version,
                "purl": reference,
                "licenses": [{"license": {"id": data["license"]}}],
            },
        },
        "components": [*required, *contained],
        "dependencies": [
            {"ref": reference, "dependsOn": [part["bom-ref"] for part in (*required, *contained)]}
        ],
    }
    return json.dumps(bill, indent=2, sort_keys=True) + "\n"


def _required(text: str) -> dict[str, object]:
    """A package that pip installs beside the wheel; which version is the user's."""
    requirement = Requirement(text)
    reference = f"pkg:pypi/{requirement.name}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": requirement.name,
        "purl": reference,
        "scope": "required",
        "properties": [{"name": "python:requirement", "value": text}],
    }


def _contained(part: VendoredPart, source: Path) -> dict[str, object]:
    kind = "name" if part.licence.startswith("LicenseRef") else "id"
    digest = hashlib.sha256((source / part.file).read_bytes()).hexdigest()
    return {
        "type": "data",
        "bom-ref": part.file,
        "name": part.name,
        "licenses": [{"license": {kind: part.licence}}],
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "externalReferences": [{"type": "website", "url": part.source}],
    }
