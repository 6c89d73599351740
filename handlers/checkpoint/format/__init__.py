"""What the files of a checkpoint say: manifest, tensors, values as JSON, claims. Without torch."""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
