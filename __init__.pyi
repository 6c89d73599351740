from .engine import ranks as ranks
from .engine.engine import Engine as Engine
from .engine.engine import Handler as Handler
from .engine.events import EventEnum as EventEnum
from .engine.events import Events as Events
from .engine.events import Stage as Stage
from .engine.events import Trigger as Trigger
from .engine.modules.activations import checkpoint_activations as checkpoint_activations
from .engine.modules.wrappers import unwrap as unwrap
from .engine.on_rank import on_rank as on_rank
from .engine.seeds import seed_everything as seed_everything
from .engine.state.state import State as State
from .engine.supervised import Output as Output
from .engine.supervised import Transfer as Transfer
from .engine.supervised import supervised as supervised
from .engine.supervised import to_device as to_device
from .engine.update import Update as Update

__version__: str
