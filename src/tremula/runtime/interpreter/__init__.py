"""The native interpreter: runs the instruction table without Python until a step needs it.

Numba compiles it once per machine, while the user of the first engine waits. So it works on plain
addresses: a function whose arguments are integers compiles several times faster than one that takes
arrays. Everything it reads is found through the record of a machine (`record.py`). What not every
program needs compiles when one does: threads for large tables and copies, counting, and what strict
mode runs in an order of its choice.
"""
