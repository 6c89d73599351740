from .replay_check import ReplayCheck as ReplayCheck
