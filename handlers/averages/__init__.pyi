from .ema import EMA as EMA
from .swa import SWA as SWA
