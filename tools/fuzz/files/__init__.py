"""Mutated files of every format the product reads: a result, or one of its errors.

formats.py    each format: a good file, how it is read, which errors may come
mutations.py  changes of bytes and of text, as data
check.py      the kind of case
"""
