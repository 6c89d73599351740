"""What reading a file may cost: files may come from elsewhere, and a small one can ask for much.

Every reader of a run directory takes its limits from here. A reader that meets one of them says so:
a checkpoint is broken, and a report names what it leaves out.
"""

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
LARGEST_MANIFEST = 4 * 2**20
"""Bytes of a manifest, of which a directory has many; 16 TB on 16,384 ranks take a fifth of it."""
LARGEST_FILE = 2**44
"""Bytes of a file of a checkpoint: one with holes takes no room, and yet seconds to verify."""
MOST_PIECES = 2**28
"""Pieces of sharded tensors in a checkpoint: sixteen thousand tensors on as many ranks."""
LARGEST_METADATA = 2**30
"""Bytes of the `.metadata` of a DCP directory; a piece of a tensor takes about a hundred."""
MOST_PIECES_OF_RANK = 2**17
"""Pieces in one rank's file: only these are ever listed. Its header has room for no more."""
LARGEST_LOG = 4 * 2**30
"""Bytes of a journal, or of a file of rows."""
LONGEST_LINE = 16 * 2**20
"""Bytes of one line of them: histograms of six thousand weights."""
MOST_IN_LINE = 500_000
"""Values in such a line."""
MOST_IN_EVENTS = 1_000_000
"""Values in the events of a journal: a year of saves, one each five minutes."""
ORDINARY = 10
"""The most values of a sign of life in a journal, and the fewest that an event counts for."""
MOST_RANGES = 10_000
"""Ranges of a histogram; a page shows forty."""
MOST_KEPT = 2000
"""Signs of life of a process, and clocks of the rows of a file, that are kept."""
MOST_HISTOGRAMS = 240
"""Histograms of a metric that are kept: a page shows a quarter of them."""
BEYOND = 2**63
"""Clocks and counts are below it."""
LARGEST_IMAGES = 12_000_000
"""Bytes of the images of a page that holds them, as they are on the disk."""
LARGEST_MEDIA = 2_000_000
"""Characters of the texts, curves and matrices of a page."""
LONGEST_TEXT = 20_000
"""Characters of one text of a page."""
MOST_IN_MEDIUM = 40_000
"""Numbers of one curve or matrix of a page: 200 classes."""
MOST_MEDIA = 24
"""Texts, curves or matrices of one name that are kept: a page shows half of them."""
LARGEST_NOTES = 64_000
"""Characters of the notes on a run."""
MOST_SHOWN = 2000
"""Things of one kind that a page shows: metrics, images, settings, handlers, parts of a run."""
LONGEST_NAME = 300
"""Characters of the name of a metric or of a setting: a page says it in twenty places."""
MOST_FILES = 200
"""Files of rows in one directory."""
MOST_CHECKPOINTS = 10_000
"""Checkpoints that a command or a page lists."""
MOST_IMAGES = 20_000
"""Images, and folders, that a page looks through."""
MOST_CLAIMS = 50
"""Claims on the checkpoints of a directory."""
