"""`camshaft prove` kills a script again and again, and compares it with the run of no kill.

`compare.py` says where two runs part. No file here imports torch but `witness.py`, which runs with
`hook.py` in the processes of the script; tensorboardX, which reads a trial's files, does.
"""

from .compare import compare
from .prove import prove

__all__ = ["compare", "prove"]
