"""An engine from a LightningModule, of either package: `lightning` or `pytorch_lightning`.

Neither is imported here: a LightningModule is known by its class, and what it reads of its trainer
is answered by a `TrainerView` of the run under way.
"""

from .carried import Carried
from .factory import from_lightning
from .hooks import NOT_TAKEN, TAKEN
from .manual import LightningEvents
from .optimizers import Schedule
from .steps import LightningSteps
from .trainer import TrainerView, stage_of

__all__ = [
    "NOT_TAKEN",
    "TAKEN",
    "Carried",
    "LightningEvents",
    "LightningSteps",
    "Schedule",
    "TrainerView",
    "from_lightning",
    "stage_of",
]
