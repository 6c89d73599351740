"""What an engine would call and what it did call: tables, a diagram, traces."""

from .describe import Description, describe
from .handler_rows import HandlerRow
from .trace import Call, Trace, record, rehearse, watching

__all__ = [
    "Call",
    "Description",
    "HandlerRow",
    "Trace",
    "describe",
    "record",
    "rehearse",
    "watching",
]
