"""Who may do what: users with roles, quotas and keys; programs with the key of one partition."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from tremula.base.errors import suggest
from tremula.system.control.errors import (
    ControlError,
    checked_name,
    forbidden,
    not_found,
    taken,
    wrong,
)
from tremula.system.control.store import StateStore

# Each role may do what those before it may, and more: see `_NEEDS`.
ROLES = ("program", "viewer", "user", "operator", "admin")
_NEEDS = {
    "attach": "program",
    "read": "viewer",
    "partition": "user",  # make, reset and remove one's own
    "operate": "operator",  # others' partitions, faults, the state of all
    "administer": "admin",  # agents, clusters, allocations, users, the audit log
}
_KEY_PREFIX = "ipuof"


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request; `partition` is the one that a program's key is for."""

    name: str
    role: str
    partition: int | None = None

    def may(self, action: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(_NEEDS[action])

    def need(self, action: str) -> None:
        """Refuse unless the role allows it."""
        if not self.may(action):
            raise forbidden(
                f"{self.name!r} is a {self.role}, and this takes a {_NEEDS[action]}.",
                "ask an administrator",
            )


def start_access(store: StateStore) -> str | None:
    """Make the controller's secret and its first administrator; returns that one's new key."""
    with store.change():
        if store.value("SELECT value FROM settings WHERE name = 'secret'") is not None:
            return None
        secret = secrets.token_hex(32)
        store.run("INSERT INTO settings VALUES ('secret', ?)", secret)
        return add_user(store, "admin", "admin")


def add_user(
    store: StateStore,
    name: str,
    role: str,
    max_ipus: int | None = None,
    max_partitions: int | None = None,
) -> str:
    """Add a user; returns the key, which is kept nowhere else."""
    checked_name("user", name)
    if role not in ROLES[1:]:
        raise wrong(f"there is no role {role[:40]!r}.", suggest(role[:40], ROLES[1:]))
    key = _drawn_key()
    with store.change():
        if store.row("SELECT 1 FROM users WHERE name = ?", name):
            raise taken("user", name)
        values = name, role, _hash(key), max_ipus, max_partitions
        store.run("INSERT INTO users VALUES (?, ?, ?, ?, ?)", *values)
    return key


def _drawn_key() -> str:
    """Letters that no command line takes for an option."""
    while (key := secrets.token_urlsafe(32)).startswith("-"):
        pass
    return key


def new_key(store: StateStore, name: str) -> str:
    """Another key for a user; the one before it is worth nothing any more."""
    key = _drawn_key()
    with store.change():
        if not store.run("UPDATE users SET key_hash = ? WHERE name = ?", _hash(key), name):
            raise not_found("user", name)
    return key


def remove_user(store: StateStore, name: str) -> None:
    with store.change():
        if store.row("SELECT 1 FROM partitions WHERE owner = ?", name):
            raise ControlError(409, "in-use", f"user {name!r} has partitions.", "remove them first")
        n_admins = store.value(
            "SELECT count(*) FROM users WHERE role = 'admin' AND name != ?", name
        )
        if not n_admins:
            raise ControlError(
                409, "in-use", "the last administrator stays.", "add another one first"
            )
        if not store.run("DELETE FROM users WHERE name = ?", name):
            raise not_found("user", name)


def list_users(store: StateStore) -> list[dict]:
    sql = "SELECT name, role, max_ipus, max_partitions FROM users ORDER BY name"
    return [dict(row) for row in store.rows(sql)]


def authenticate(store: StateStore, key: str | None) -> Caller:
    """Whose key this is."""
    if key and key.startswith(f"{_KEY_PREFIX}."):
        return _program(store, key)
    row = None
    if key:
        row = store.row("SELECT name, role FROM users WHERE key_hash = ?", _hash(key))
    if row is None:
        raise ControlError(
            401,
            "no-key" if not key else "wrong-key",
            "the request has no access key." if not key else "the access key is not known.",
            "send `Authorization: Bearer KEY`; `tremula vipu` takes it from --api-access-key",
        )
    return Caller(row["name"], row["role"])


def partition_key(store: StateStore, partition: int) -> str:
    """The key with which programs attach to one partition and do nothing else."""
    secret = store.value("SELECT value FROM settings WHERE name = 'secret'")
    mac = hmac.new(secret.encode(), f"partition {partition}".encode(), hashlib.sha256)
    return f"{_KEY_PREFIX}.{partition}.{mac.hexdigest()}"


def _program(store: StateStore, key: str) -> Caller:
    number = key.split(".")[1]
    if number.isascii() and number.isdecimal() and len(number) < 18:
        known = partition_key(store, int(number))
        row = store.row("SELECT owner FROM partitions WHERE id = ?", int(number))
        if row is not None and hmac.compare_digest(known.encode(), key.encode()):
            return Caller(row["owner"], "program", int(number))
    raise ControlError(
        401, "wrong-key", "the key is of no partition.", "`tremula vipu get config` writes it"
    )


def _hash(key: str) -> str:
    # Keys are 32 random bytes: a plain hash cannot be searched.
    return hashlib.sha256(key.encode()).hexdigest()
