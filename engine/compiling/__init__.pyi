from .forward import CompiledForward as CompiledForward
from .forward import explained as explained
from .options import Compile as Compile
from .options import options_of as options_of
from .options import replays as replays
from .step import CompiledStep as CompiledStep
