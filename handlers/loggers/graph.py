"""The graph of a model, as TensorBoard draws it."""

from __future__ import annotations

import logging
import warnings
from importlib import import_module
from typing import Any

from ...engine.modules.evaluation import untouched

logger = logging.getLogger("camshaft")


def graph_of(model: Any, inputs: Any) -> bytes | None:
    """A model's graph as a serialised `GraphDef`; the model is run once, and left untouched.

    None, and a warning, if torch cannot trace it: that is no reason to have no log.

    Args:
        model: The module.
        inputs: An example of what it takes: a tensor, or a tuple of them.
    """
    torch_graph: Any = import_module("torch.utils.tensorboard._pytorch_graph")
    try:
        with untouched({"model": model}, None), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tracing, which torch would give up
            graph, _ = torch_graph.graph(model, inputs)
    except Exception as error:
        logger.warning("TensorBoard cannot draw the model's graph: %s", error)
        return None
    serialised: bytes = graph.SerializeToString()
    return serialised
