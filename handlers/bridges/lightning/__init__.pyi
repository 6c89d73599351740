from .callbacks import FromLightning as FromLightning
from .hooks import NOT_TAKEN as NOT_TAKEN
from .hooks import TAKEN as TAKEN
from .module_engine import from_lightning as from_lightning
from .trainer import LightningEvents as LightningEvents
