"""Sessions of PopART, by the path of its Python file."""

from tremula.frontends.popart.exceptions import OutOfMemoryException
from tremula.frontends.popart.sessions.session import InferenceSession, TrainingSession

__all__ = ["InferenceSession", "OutOfMemoryException", "TrainingSession"]
