from .engine import StepEvents as StepEvents
from .from_ignite import FromIgnite as FromIgnite
from .from_ignite import as_ignite as as_ignite
