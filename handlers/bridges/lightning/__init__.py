"""An engine from a LightningModule, of either package: `lightning` or `pytorch_lightning`.

Neither is imported here: a LightningModule is known by its class, and what it reads of its trainer
is answered by a `TrainerView` of the run under way.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
