from .collect import Collect as Collect
from .predict import predict as predict
from .predictions import Predictions as Predictions
from .rows import chain as chain
from .rows import deal as deal
from .rows import join_parts as join_parts
from .rows import rows_of as rows_of
