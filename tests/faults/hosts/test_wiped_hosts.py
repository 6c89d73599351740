"""A host with a disk of its own is wiped at a random moment; the run goes on to the same bits."""

import json
import os
import random
import shutil
import time
from collections import Counter
from contextlib import ExitStack, suppress
from itertools import count

import pytest

SLOWLY = ("--sharded", "--delay=0.03", "--iterations=24", "--timeout=8")
TRIALS = int(os.environ.get("TRIALS", "25"))
KINDS = ("host", "neighbours", "shared", "everything")
"""What is lost besides the host: nothing; the host that has the copy of its files; the shared
directory; all disks and the shared directory, so that only the store is left."""
OWN = ("host", "neighbours", "everything")
"""The same where the hosts share no directory, and copy to the store by themselves."""


class Disks:
    """Hosts each of which sees a disk of its own under one path, and starts ranks fast."""

    def __init__(self, hosts, processes, directory, stack):
        self.hosts, self.ports = hosts, count(29_500)
        self.place = directory / "disk"
        self.place.mkdir()
        self.own = [directory / f"disk-{number}" for number in range(len(hosts))]
        self.servers = []
        for host, own in zip(hosts, self.own, strict=True):
            own.mkdir()
            server = type(processes)(*host.way(f"mount --bind {own} {self.place}"))
            stack.callback(server.end)
            self.servers.append(server)
        run([each.start("") for each in self.servers])  # until all have imported torch

    def start(self, directory, *arguments):
        """One rank on each host; the first host has the store of the group, as under Slurm."""
        size, port = len(self.hosts), next(self.ports)
        shared = {"MASTER_ADDR": self.hosts[0].address, "MASTER_PORT": str(port)}
        shared |= {"WORLD_SIZE": str(size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        return [
            server.start(
                self.hosts.script,
                *(directory, f"--local={self.place}/{directory.parent.name}", *arguments),
                env={**shared, "RANK": str(rank), **host.environment},
            )
            for rank, (host, server) in enumerate(zip(self.hosts, self.servers, strict=True))
        ]

    def of(self, number, directory):
        """What a host has of a run."""
        return self.own[number] / directory.parent.name

    def listed(self, directory):
        """What each host has of a run, for people."""
        found = [self.of(number, directory) for number in range(len(self.hosts))]
        return [sorted(str(f.relative_to(p)) for f in p.glob("**/*.*")) for p in found]

    def wipe(self, number, directory):
        """A host comes back with an empty disk."""
        shutil.rmtree(self.of(number, directory), ignore_errors=True)
        assert not self.of(number, directory).exists()


def run(started):
    results = [each.result() for each in started]
    for each in started:
        each.__exit__(None, None, None)
    return results


def saved(place):
    """By iteration: the checkpoints that have a name there; in a store, the name has a tail."""
    found = [*place.glob("iteration-*/manifest.json"), *place.glob("host-*/i*/manifest.json")]
    return {int(each.parent.stem.split("-")[1]): each.parent for each in found}


def newest_whole(places):
    """The newest checkpoint that these places have all files of together."""
    parts = {}
    for path in (path for place in places for path in place.glob("iteration-*/manifest.json")):
        parts.setdefault(path.read_text(), []).append(path.parent)
    whole = [0]
    for text, folders in parts.items():
        files = json.loads(text)["files"]
        if all(any((folder / name).is_file() for folder in folders) for name in files):
            whole.append(json.loads(text)["iteration"])
    return max(whole)


def wait_for_moment(chance, disks, directory, victim, started, place):
    """Until a random time after a first checkpoint in a place; or until a copy is under way."""

    def is_over():
        return all(each.poll() is not None for each in started)

    while not saved(place) and not is_over():
        time.sleep(0.002)
    time.sleep(chance.uniform(0, 1.0))
    if chance.random() < 0.5:
        return "at any time"
    after = disks.of((victim + 1) % len(started), directory)
    name = f"rank-{victim:05d}"
    while not is_over():
        with suppress(FileNotFoundError):  # it is renamed while it is listed
            if any(each.name.startswith(name) for each in after.glob(".tmp-*/*")):
                time.sleep(chance.uniform(0, 0.004))
                return "during a copy"
    return "too late"


def outcome(directory, rank):
    return json.loads(directory.with_name(f"{directory.name}.rank-{rank}.json").read_text())


def same(directory, alone, rank):
    """The same to the last bit; of samples, those that the last start has read."""
    own, expected = outcome(directory, rank) | {"rows": ""}, outcome(alone, rank) | {"rows": ""}
    assert own.pop("samples").items() <= expected.pop("samples").items()
    return own | {"began": []} == expected | {"began": []}


def strike(chance, disks, victim, started):
    """A host loses its power; what its ranks and those of the others end with."""
    is_cut = chance.random() < 0.2
    if is_cut:  # no other host hears of it
        disks.hosts[victim].connect("down")
    started[victim].kill()
    results = run(started)
    disks.hosts[victim].connect("up")
    return results, ", cut off" * is_cut


def trial(chance, disks, directory, alone, kind, *, is_shared=True):
    """What happened, in words; None if the run was over too soon."""
    size, store = len(disks.hosts), directory.with_name("store")
    arguments = (*SLOWLY, f"--samples={2 * size}", f"--store=file://{store}")
    arguments = arguments if is_shared else (*arguments, "--own-disks")
    victim = chance.randrange(size)
    started = disks.start(directory, *arguments)
    places = {"host": disks.of(victim, directory)}
    if is_shared:
        places["neighbours"] = directory
    place = places.get(kind, store)
    moment = wait_for_moment(chance, disks, directory, victim, started, place)
    results, cut = strike(chance, disks, victim, started)
    if moment == "too late" or any(each.returncode == 0 for each in results):
        return None
    moment += cut
    lost = {"host": [victim], "shared": [victim], "everything": range(size)}
    for number in lost.get(kind, (victim, (victim + 1) % size)):
        disks.wipe(number, directory)
    if kind in ("shared", "everything") and is_shared:
        shutil.rmtree(directory)
    if chance.random() < 0.3:  # at the next start, too, perhaps before it has gone on
        victim = chance.randrange(size)
        started = disks.start(directory, *arguments)
        time.sleep(chance.uniform(0.1, 1.5))
        results, cut = strike(chance, disks, victim, started)
        if any(each.returncode == 0 for each in results):
            return None
        moment += f", and at the next start{cut}"
        disks.wipe(victim, directory)
    own = [disks.of(number, directory) for number in range(size)]
    places = {"local": newest_whole(own), "shared": max(saved(directory), default=0)}
    prefixes = [store, *store.glob("host-*")]
    places["store"] = newest_whole(prefixes)
    if not is_shared:
        places["together"] = newest_whole([*own, *prefixes])
    expected = max(places.values())
    text = f"{moment}, {places}, {disks.listed(directory)}\n"
    is_held = any(map(saved, own))
    again = run(disks.start(directory, *arguments))
    text += "\n".join(each.stderr[-3000:] for each in again)
    if not expected and is_held:
        assert all("does not silently start anew" in each.stderr for each in again), text
        return f"{kind} {moment}: refused"
    assert all(each.returncode == 0 for each in again), text
    assert outcome(directory, 0)["began"] == [expected], text
    assert all(same(directory, alone, rank) for rank in range(size)), text
    if is_shared and kind in ("host", "neighbours"):
        # Else the store may lack the last rows of the lost log.
        assert outcome(directory, 0)["rows"] == outcome(alone, 0)["rows"], text
    elif outcome(directory, 0)["rows"] != outcome(alone, 0)["rows"]:
        moment += " (rows lost)"
    for number in range(0 if is_shared else size):
        left = [*disks.of(number, directory).rglob("*")]
        assert not [each for each in left if ".tmp" in each.name or ".del" in each.name], left
    assert not [path for path in directory.rglob("*") if ".tmp" in path.name]
    origin = next((name for name in places if places[name] == expected and expected), "nowhere")
    return f"{kind} {moment}: from {origin}"


SOAK = [pytest.mark.soak, pytest.mark.timeout(7200)]


@pytest.mark.parametrize(
    ("hosts", "trials"),
    [
        pytest.param(3, 2, marks=pytest.mark.slow, id="few"),
        pytest.param(2, TRIALS, marks=SOAK, id="two"),
        pytest.param(3, TRIALS, marks=SOAK, id="three"),
    ],
    indirect=["hosts"],
)
@pytest.mark.parametrize(
    "is_shared",
    [True, pytest.param(False, marks=pytest.mark.soak)],
    ids=["shared", "own disks"],
)
def test_a_host_that_is_wiped_at_any_moment_leaves_the_same_run(
    hosts, processes, tmp_path, trials, is_shared
):
    chance, counts = random.Random(len(hosts)), Counter()
    alone = tmp_path / "alone/run"
    alone.parent.mkdir()
    with ExitStack() as stack:
        disks = Disks(hosts, processes, tmp_path, stack)
        whole = run(disks.start(alone, *SLOWLY, f"--samples={2 * len(hosts)}"))
        assert all(each.returncode == 0 for each in whole), whole[0].stderr[-3000:]
        for number in count():
            directory = tmp_path / f"{number}/run"
            directory.parent.mkdir()
            kinds = KINDS if is_shared else OWN
            kind = kinds[sum(counts.values()) % len(kinds)]
            if found := trial(chance, disks, directory, alone, kind, is_shared=is_shared):
                counts[found] += 1
                print(sum(counts.values()), found, flush=True)
            shutil.rmtree(directory.parent)
            if sum(counts.values()) == trials:
                break
    print(dict(sorted(counts.items())))


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_busy", [pytest.param(False, marks=pytest.mark.soak), True], ids=["alone", "in a save"]
)
def test_a_rank_ends_in_time_when_the_host_with_the_store_is_gone_without_a_word(
    hosts, processes, tmp_path, is_busy
):
    """Calls of the store would wait for a quarter of an hour, or for ever."""
    directory = tmp_path / "0/run"
    directory.parent.mkdir()
    with ExitStack() as stack:
        disks = Disks(hosts, processes, tmp_path, stack)
        often = "--delay=0" if is_busy else "--delay=0.5"
        started = disks.start(directory, "--timeout=6", "--iterations=9999", often)
        while not saved(disks.of(1, directory)):
            time.sleep(0.01)
        hosts[0].connect("down")
        started[0].kill()
        began = time.monotonic()
        result = run(started)[1]
    assert result.returncode not in (0, None)
    assert time.monotonic() - began < 120
    assert "the reasons of other ranks cannot be read from the store" in result.stderr
