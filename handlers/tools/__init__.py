"""What looks at runs from outside: reports, comparisons, proofs, the command line.

A ring around the core: nothing in `engine/`, the usual handlers or `checkpoint/` imports it.
"""
