"""Guards of a run: against NaN, spikes of the loss, memory that runs out, and hangs."""

from .hang_watchdog import HangWatchdog
from .memory_snapshot import MemorySnapshot
from .non_finite_guard import NonFiniteGuard
from .spike_guard import SpikeGuard

__all__ = ["HangWatchdog", "MemorySnapshot", "NonFiniteGuard", "SpikeGuard"]
