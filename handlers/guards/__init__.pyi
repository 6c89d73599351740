from .hang_watchdog import HangWatchdog as HangWatchdog
from .memory_snapshot import MemorySnapshot as MemorySnapshot
from .non_finite_guard import NonFiniteGuard as NonFiniteGuard
from .spike_guard import SpikeGuard as SpikeGuard
