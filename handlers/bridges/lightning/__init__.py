"""An engine from a LightningModule, of either package: `lightning` or `pytorch_lightning`.

Neither is imported here: a LightningModule is known by its class, and what it reads of its trainer
is answered by a `TrainerView` of the run under way.
"""

from .callbacks import FromLightning
from .hooks import NOT_TAKEN, TAKEN
from .module_engine import from_lightning
from .trainer import LightningEvents

__all__ = [
    "NOT_TAKEN",
    "TAKEN",
    "FromLightning",
    "LightningEvents",
    "from_lightning",
]
