"""`camshaft prove` kills a script again and again, and compares it with the run of no kill.

`compare.py` says where two runs part, by the files of `Fingerprints`. No other file here imports
torch but `witness.py`, which runs with `hook.py` in the processes of the script; tensorboardX,
which reads a trial's files, does.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
