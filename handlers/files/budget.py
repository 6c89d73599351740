"""What reading a file may cost: files may come from elsewhere, and a small one can ask for much."""

LARGEST_TEXT = 64 * 2**20
"""Bytes of a text."""
MOST = 2_000_000
"""Values in a text: even a small one takes a hundred bytes in memory."""
DEEPEST = 200
"""Lists and objects inside each other."""
LONGEST = 4300
"""Digits of a number; Python itself converts no more."""
LARGEST_HEADER = 16 * 2**20
"""Bytes of the header that lists the tensors of a file: each takes a hundred or two."""
