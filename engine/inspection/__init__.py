"""What an engine would call and what it did call: tables, a diagram, traces."""

from .describe import Description
from .handler_rows import HandlerRow
from .part import Part
from .trace import Call, Trace, record, rehearse, watching

__all__ = [
    "Call",
    "Description",
    "HandlerRow",
    "Part",
    "Trace",
    "record",
    "rehearse",
    "watching",
]
