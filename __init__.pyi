from .engine import Engine as Engine
from .engine import EventEnum as EventEnum
from .engine import Events as Events
from .engine import Handler as Handler
from .engine import Stage as Stage
from .engine import State as State
from .engine import Trigger as Trigger
from .engine import on_rank as on_rank
from .engine import ranks as ranks
from .engine import seed_everything as seed_everything
from .engine.data.loaders import LengthBatches as LengthBatches
from .engine.data.loaders import Mixture as Mixture
from .engine.data.loaders import Padded as Padded
from .engine.data.loaders import SeededSamples as SeededSamples
from .engine.data.loaders import SharedOrder as SharedOrder
from .engine.data.loaders import loader as loader
from .engine.modules import checkpoint_activations as checkpoint_activations
from .engine.modules import unwrap as unwrap
from .engine.supervised import Output as Output
from .engine.supervised import Transfer as Transfer
from .engine.supervised import count_next_tokens as count_next_tokens
from .engine.supervised import count_tokens as count_tokens
from .engine.supervised import supervised as supervised
from .engine.supervised import to_device as to_device
from .engine.update import Update as Update

__version__: str
