"""What a save costs rank 0 of thousands: processor time, and the longest hold of Python's lock.

One process is rank 0: a run with `Checkpoint`, in torch's fake process group, which has any size
and sends nothing. Another process stands for all other ranks: it has the real store of the group,
as torchrun's agent does, makes their files, leaves their letters, and removes what they have to.
The files of tensors are sparse: 1 GB each, as of a run of 1T parameters, and not a block of it.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import page

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "project" / "ranks.md"
SIZES = (1024, 4096, 16_384)
SAVES, FIRST = 5, 3
"""The saves of a run, and the first that drops an older checkpoint, from when on they count."""
OF_TREE, OF_TENSORS, CHUNK = 3000, 10**9, 2**24
MOST_SECONDS, MOST_HELD = 1.0, 0.05
DISK = ("listdir", "scandir", "lstat", "stat", "unlink", "rmdir", "rename", "fsync", "mkdir")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--quick", action="store_true", help="128 ranks, nothing written")
    parser.add_argument("--directory", help="on the disk to measure; a temporary one otherwise")
    parser.add_argument("--size", type=int, help="measure one, in this process")
    parser.add_argument("--counts", action="store_true", help="print calls in the place of times")
    parser.add_argument("--others", action="store_true", help="stand for the other ranks")
    options = parser.parse_args()
    if options.others:
        others(Path(options.directory), options.size)
    elif options.size:
        with TemporaryDirectory(dir=options.directory) as directory:
            print(json.dumps(rank_zero(Path(directory), options.size, options.counts)))
    else:
        text = figures({size: taken(size, options.directory) for size in sizes(options)})
        print(text)
        if not options.quick:
            page.insert(PAGE, text, "thousands")


def sizes(options: argparse.Namespace) -> list[int]:
    return [128] if options.quick else options.sizes


def taken(size: int, directory: str | None) -> list[list[float]]:
    print(f"a save on {size} ranks", file=sys.stderr)
    command = [sys.executable, __file__, "--size", str(size)]
    command += ["--directory", directory] if directory else []
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    output = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True).stdout
    return json.loads(output.splitlines()[-1])


def figures(found: dict[int, list[list[float]]]) -> str:
    """The table, and under which circumstances it was taken."""
    rows, is_reached = [], True
    for size, saves in found.items():
        seconds, wall, held = (median(each) for each in zip(*saves, strict=True))
        is_reached &= seconds <= MOST_SECONDS and held <= MOST_HELD
        rows.append((f"{size:,}", f"{seconds:.2f}", f"{wall:.1f}", f"{held * 1e3:.0f}"))
    head = ("ranks", "CPU of rank 0, s", "after the last letter, s", "longest hold, ms")
    return (
        f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), Python "
        f"{platform.python_version()}, {page.versions('torch')}; medians of "
        f"{1 + SAVES - FIRST} saves.\n\n{page.table(head, rows)}\n\n"
        f"Goal: at most {MOST_SECONDS:.2f} s, and {MOST_HELD * 1e3:.0f} ms at a time; "
        f"reached: {'yes' if is_reached else 'no'}."
    )


def rank_zero(directory: Path, size: int, counts: bool) -> list[object]:
    """For each save that counts: seconds of processors, seconds, longest hold; or its calls."""
    command = [sys.executable, __file__, "--others", "--size", str(size)]
    with subprocess.Popen(
        [*command, "--directory", str(directory)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            return saves_of(directory, size, int(process.stdout.readline()), counts)
        finally:
            process.kill()


def saves_of(directory: Path, size: int, port: int, counts: bool) -> list[object]:
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # makes it known

    from camshaft import Engine, Events, Stage
    from camshaft.handlers import Checkpoint, latest

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("fake", rank=0, world_size=size, store=store)
    handler = Checkpoint(directory / "run", when=Events.ITERATION_COMPLETED, keep=latest(2))
    engine = Engine(lambda state, batch: None, objects={"model": torch.nn.Linear(4, 2)})
    watch: Calls | Lock = Calls() if counts else Lock()
    engine.on(Events.SAVING, stage=Stage.MEASURE)(lambda state: watch.begin())
    engine.add(handler)
    found: list[object] = []

    @engine.on(Events.ITERATION_STARTED)
    def waited(state: object) -> None:
        handler.wait(state)
        if watch.has_begun:
            letters = store.get(f"left/{len(found) + 1}").decode()
            found.append(watch.end(float(letters)))

    engine.run(range(SAVES + 1), max_epochs=1)
    return found[FIRST - 1 :]


class Lock:
    """Processor time of a save, and of the thread that writes between two ticks of another one.

    A thread that wants to run gets the lock as soon as the writing one lets it go. So what that one
    computes between two ticks is at least what it did while it held the lock. Time in which the
    machine runs other processes does not count.
    """

    def __init__(self) -> None:
        self.has_begun, self._held = False, 0.0
        self._lent = 0.0
        threading.Thread(target=self._tick, daemon=True).start()

    def begin(self) -> None:
        self.has_begun, self._held = True, 0.0
        self._since = time.process_time() - self._lent

    def end(self, letters: float) -> list[float]:
        own = time.process_time() - self._lent
        return [own - self._since, time.time() - letters, self._held]

    def _tick(self) -> None:
        with suppress(OSError):  # only root may: a thread that wakes up late sees a longer hold
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        before: dict[int, float] = {}
        while True:
            time.sleep(0.001)
            for each in threading.enumerate():
                if each.name.startswith("camshaft-checkpoints") and each.ident:
                    with suppress(OSError):  # it has just ended
                        now = time.clock_gettime(time.pthread_getcpuclockid(each.ident))
                        since = before.setdefault(each.ident, now)
                        self._held, before[each.ident] = max(self._held, now - since), now
            self._lent = time.thread_time()


class Calls:
    """The calls of a save that reach the store or the disk, without those that only wait."""

    def __init__(self) -> None:
        from camshaft.engine.ranks import letters

        self.has_begun, self.found = False, Counter[str]()
        real = letters.default_store
        letters.default_store = lambda: Counted(real(), self.found)
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def begin(self) -> None:
        self.has_begun = True
        self.found.clear()

    def end(self, letters: float) -> dict[str, int]:
        return dict(self.found)

    def _note(self, frame: object, event: str, argument: object) -> None:
        name = getattr(argument, "__name__", "")
        if event == "c_call" and name in DISK and getattr(argument, "__module__", "") == "posix":
            self.found[f"os.{name}"] += 1


class Counted:
    """A store whose calls are counted, but for questions whether there is something new."""

    def __init__(self, store: object, found: Counter[str]) -> None:
        self._store, self._found = store, found

    def __getattr__(self, name: str) -> object:
        if not name.startswith("_") and sys._getframe(1).f_code.co_name != "wait_for":
            self._found[f"store.{name}"] += 1
        return getattr(self._store, name)


def others(directory: Path, size: int) -> None:
    """Be all ranks but rank 0: write their files and leave their letters, save after save."""
    import torch.distributed as dist
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # makes it known

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    print(store.port, flush=True)
    dist.init_process_group("fake", rank=1, world_size=size, store=store)
    done, parent = set[str](), os.getppid()
    while os.getppid() == parent:  # rank 0 may be killed
        time.sleep(0.01)
        run = directory / "run"
        names = os.listdir(run) if run.is_dir() else []
        for name in [each for each in names if each.startswith(".tmp-iter") and each not in done]:
            if (run / name).is_dir():
                done.add(name)
                save(run / name, size, partial(tell, store, len(done)))


def tell(store: Any, number: int) -> None:
    store.set(f"left/{number}", str(time.time()))


def save(temporary: Path, size: int, left: Callable[[], object]) -> None:
    """Make the files of all other ranks and leave their letters; then do what rank 0 asks for."""
    from camshaft.handlers.checkpoint.format import Checksums, least_chunk, rank_file
    from camshaft.handlers.checkpoint.save.team import SHARE, Team

    class Other(Team):
        rank = 0

    team = Other(temporary.parent, is_alone=False)
    lengths = {".json": OF_TREE, ".safetensors": OF_TENSORS}
    # What ranks agree on by `all_have`, which a fake group cannot send.
    team._chunk = least_chunk(size * sum(lengths.values()), size * len(lengths))
    for team.rank in range(1, size):
        written = {}
        for kind, length in lengths.items():
            with open(temporary / f"{rank_file(team.rank)}{kind}", "xb") as file:
                file.truncate(length)
            sums = [random.getrandbits(32) for _ in range(-(-length // CHUNK))]
            written[f"{rank_file(team.rank)}{kind}"] = Checksums(length, sums)
        team.report(temporary, written, None)
    left()
    for team.rank in range(SHARE, size, SHARE):
        team.remove(temporary, [])


if __name__ == "__main__":
    main()
