"""One thread for torch, here and in the processes that tests start.

What tests train is too small for more to help, and threads that wait for each other on a busy
machine take many times as long.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, so before it is
