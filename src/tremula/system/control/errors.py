"""What a controller rejects: each error has an HTTP status, a short code, a text and a hint."""

import re

from tremula.base.errors import PoplarError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class ControlError(PoplarError):
    """A request that the controller rejects."""

    def __init__(self, status: int, code: str, what: str, hint: str = ""):
        self.status, self.code = status, code
        super().__init__(what, hint=hint)


def not_found(kind: str, name: object) -> ControlError:
    return ControlError(404, "not-found", f"there is no {kind} {str(name)[:80]!r}.")


def taken(kind: str, name: str) -> ControlError:
    return ControlError(409, "taken", f"there is already a {kind} {name!r}.", "choose another name")


def forbidden(what: str, hint: str = "") -> ControlError:
    return ControlError(403, "forbidden", what, hint)


def wrong(what: str, hint: str = "") -> ControlError:
    return ControlError(422, "wrong", what, hint)


def checked_name(kind: str, name: str) -> str:
    """A name that is safe in addresses, file names and labels of metrics."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise wrong(
            f"{name[:80]!r} is not a name for a {kind}.",
            "use up to 63 letters, digits, '-', '_' and single '.', first a letter or digit",
        )
    return name
