"""The fuzzer: random cases of every kind, checked against independent oracles, shrunk, recorded.

    generate(random) ──► case (plain JSON) ──► check(case) ──► passed · set aside · failed
                                                                              │
                          tests/corpus ◄── shrink: smaller cases that fail alike ◄┘

A case is plain JSON, never a seed alone, so that a corpus file rebuilds it after generators change.
`docs/fuzzing.md` says how to run it and what was run. Not part of the installed package.
"""
