"""Executable → results: storage, the interpreter, streams, the engine and its reports."""
