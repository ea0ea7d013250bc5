"""Errors that a server answers with: an HTTP status and a reason."""

from http import HTTPStatus


class RequestError(Exception):
    """Ends a request; the reason goes to the client as `{"error": reason}`."""

    def __init__(self, status: HTTPStatus, reason: str):
        self.status, self.reason = status, reason
        super().__init__(reason)


def bad_request(reason: str) -> RequestError:
    """The client must change its request."""
    return RequestError(HTTPStatus.BAD_REQUEST, reason)


def unavailable(reason: str) -> RequestError:
    """A request that may succeed later, unchanged."""
    return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, reason)
