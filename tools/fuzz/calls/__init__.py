"""Sequences of public calls with odd arguments: a result, or an error that callers may expect."""
