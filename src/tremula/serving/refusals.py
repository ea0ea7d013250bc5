"""What a server answers when it does not do what it was asked: a status of HTTP and a reason."""

from http import HTTPStatus


class Refusal(Exception):
    """Ends a request; the reason goes to the client as `{"error": reason}`."""

    def __init__(self, status: HTTPStatus, reason: str):
        self.status, self.reason = status, reason
        super().__init__(reason)


def bad_request(reason: str) -> Refusal:
    """The client must change its request."""
    return Refusal(HTTPStatus.BAD_REQUEST, reason)


def unavailable(reason: str) -> Refusal:
    """The same request may succeed later."""
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, reason)
