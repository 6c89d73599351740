from .describe import Description as Description
from .handler_rows import RunRows as RunRows
from .trace import Call as Call
from .trace import Trace as Trace
from .trace import record as record
from .trace import rehearse as rehearse
from .trace import watching as watching
