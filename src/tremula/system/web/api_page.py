"""The page `/docs`: the requests of the API, made from its OpenAPI document without any script.

FastAPI's own page loads its scripts from the Internet, which a controller need not reach.
"""

from html import escape

from tremula.base.storage.strict_json import JsonObject

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>API · Tremula</title><link rel="stylesheet" href="page/style.css"></head>
<body><header><h1>{title}</h1></header><main class="stage">
<p>{about} Version {version}. <a href="openapi.json">openapi.json</a> says the same for programs.
Requests have the header <code>Authorization: Bearer KEY</code>; the administrator's key is in the
file that the controller named when it started.</p>
"""


def api_page(document: JsonObject) -> str:
    """The page of an OpenAPI document."""
    info = document["info"]
    head = _HEAD.format(
        title=escape(info["title"]),
        about=escape(info.get("description", "")),
        version=escape(info["version"]),
    )
    schemas = document.get("components", {}).get("schemas", {})
    cards = (
        _card(method.upper(), path, operation, schemas)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    return f"{head}{''.join(cards)}</main></body></html>\n"


def _card(method: str, path: str, operation: JsonObject, schemas: JsonObject) -> str:
    rows = [
        (p["name"], p["in"], _kind(p.get("schema", {}), schemas), bool(p.get("required")))
        for p in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = _resolved(body.get("schema", {}), schemas)
    rows += [
        (name, "body", _kind(field, schemas), name in schema.get("required", ()))
        for name, field in schema.get("properties", {}).items()
    ]
    about = operation.get("description") or operation.get("summary", "")
    return (
        f'<section class="card"><h2><code>{method} {escape(path)}</code></h2>'
        f"<p>{escape(about)}</p>{_table(rows)}</section>\n"
    )


def _table(rows: list[tuple[str, str, str, bool]]) -> str:
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{where}</td><td>{escape(kind)}</td>"
        f"<td>{'yes' if is_needed else ''}</td></tr>"
        for name, where, kind, is_needed in rows
    )
    return f"<table><tr><th>Name</th><th>In</th><th>Type</th><th>Needed</th></tr>{cells}</table>"


def _resolved(schema: JsonObject, schemas: JsonObject) -> JsonObject:
    name = schema.get("$ref", "").rpartition("/")[2]
    return schemas.get(name, {}) if name else schema


def _kind(schema: JsonObject, schemas: JsonObject) -> str:
    """A type in words, with its limits."""
    schema = _resolved(schema, schemas)
    if "anyOf" in schema:
        return " or ".join(_kind(one, schemas) for one in schema["anyOf"])
    words = [str(schema.get("type", "anything"))]
    if "items" in schema:
        words.append(f"of {_kind(schema['items'], schemas)}")
    limits = {"minimum": "from", "maximum": "to", "maxLength": "of at most", "pattern": "like"}
    words += [f"{word} {schema[key]}" for key, word in limits.items() if key in schema]
    if "default" in schema:
        words.append(f"(default: {schema['default']!r})")
    return " ".join(words)
