"""Directories of `torch.distributed.checkpoint` (DCP): loaded without pickle, and written."""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
