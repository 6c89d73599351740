"""`camshaft prove`: kills a script again and again, and compares it with the run of no kill.

Imports no torch; tensorboardX, which reads the files of TensorBoard that a trial has written, does.
`hook.py` and `witness.py` run in the processes of the script.
"""

from .prove import prove

__all__ = ["prove"]
