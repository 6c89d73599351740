from .replay import replay_iteration as replay_iteration
from .replay_check import ReplayCheck as ReplayCheck
