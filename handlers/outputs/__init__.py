"""What an engine makes of all samples of a data set: in memory, or in files."""

from .collect import Collect
from .predict import predict
from .predictions import Predictions
from .rows import chain, deal, join_parts, rows_of

__all__ = ["Collect", "Predictions", "chain", "deal", "join_parts", "predict", "rows_of"]
