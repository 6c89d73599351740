from .average import Average as Average
from .metrics import Metrics as Metrics
from .totals import Totals as Totals
