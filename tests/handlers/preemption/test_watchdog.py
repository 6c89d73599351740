"""A deadline, and who else hears of signals meanwhile."""

import signal
import socket

from camshaft.handlers.preemption.watchdog import Watchdog


def test_who_listened_before_hears_every_signal_and_is_put_back():
    source, sink = socket.socketpair()
    source.settimeout(60)
    sink.setblocking(False)
    replaced = signal.signal(signal.SIGUSR2, lambda number, frame: None)
    before = signal.set_wakeup_fd(sink.fileno())
    try:
        watchdog = Watchdog((signal.SIGTERM,), 60)
        signal.raise_signal(signal.SIGUSR2)
        assert source.recv(1)[0] == signal.SIGUSR2
        watchdog.close()
        assert signal.set_wakeup_fd(before) == sink.fileno()
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGUSR2, replaced)
        source.close()
        sink.close()
