"""One thread for torch, here and in the processes that tests start; and those processes.

What tests train is too small for more threads to help, and threads that wait for each other on a
busy machine take many times as long.
"""

import gc
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from threading import Lock, Thread

import hypothesis
import pytest

MODULE = """
import runpy, sys
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
LEFT_OUT = pytest.StashKey[Counter]()
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, so before it is
# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")


class Process:
    """A process of the server, used like one of `subprocess.Popen`; it leads a group of its own."""

    def __init__(self, stdout, stderr, answer):
        self.stdout, self.stderr, self._answer = stdout, stderr, answer
        self.pid, self.returncode = int(answer.readline()), None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self.wait()
        finally:
            if kind or self.returncode is None:
                self.send_signal(signal.SIGKILL, group=True)
                self.wait()
            for file in (self.stdout, self.stderr, self._answer):
                file.close()

    def wait(self, timeout=None):
        """Wait for the end; the exit code, negative after a signal, or None if it still runs."""
        if self.returncode is None and select.select([self._answer], [], [], timeout)[0]:
            self.returncode = int(self._answer.readline())
        return self.returncode

    def poll(self):
        return self.wait(0)

    def send_signal(self, number, group=False):
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self):
        """What it and its children write from here on to their end, as a pair of texts."""
        errors = []
        reader = Thread(target=lambda: errors.append(self.stderr.read()), daemon=True)
        reader.start()
        # The gloo of torch 2.8 tells there of each group that is made.
        output = re.sub(r"^\[Gloo\] Rank .*\n", "", self.stdout.read(), flags=re.MULTILINE)
        reader.join()
        return output, errors[0]

    def result(self):
        """Wait for the end; the exit code and all that was written."""
        stdout, stderr = self.communicate()
        return subprocess.CompletedProcess(self.pid, self.wait(), stdout, stderr)


class Processes:
    """Runs scripts, each in a process forked from a server in which torch is imported already."""

    def __init__(self, *way):
        """`way` is the beginning of the server's command, to run it elsewhere."""
        self._one_at_a_time, self._way = Lock(), way

    @cached_property
    def _server(self):
        ours, theirs = socket.socketpair()
        command = [*self._way, sys.executable, Path(__file__).with_name("fork_server.py")]
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs, start_new_session=True)
        return ours

    def start(self, script, *arguments, cwd=None, env=(), fresh=False):
        """Start a script, a path or the source itself; `fresh` is in an interpreter of its own."""
        request = {
            "file": str(script) if isinstance(script, Path) else None,
            "source": None if isinstance(script, Path) else dedent(script),
            "arguments": list(map(str, arguments)),
            "cwd": str(cwd or Path.cwd()),
            "env": {**os.environ, **dict(env)},
            "fresh": fresh,
        }
        with self._one_at_a_time:
            pipes = [os.pipe() for _ in range(3)]
            message = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(self._server, [message], [writing for _, writing in pipes])
            self._server.sendall(message[sent:])
            for _, writing in pipes:
                os.close(writing)
            return Process(*(os.fdopen(reading) for reading, _ in pipes))

    def run(self, script, *arguments, code=0, **options):
        """Run a script to its end, which is an exit code that is checked unless None."""
        with self.start(script, *arguments, **options) as process:
            result = process.result()
        assert code in (None, result.returncode), result.stderr[-4000:]
        return result

    def module(self, name, *arguments, **options):
        """Run a module to its end, as `python -m` does in an interpreter of its own."""
        return self.run(MODULE, name, *arguments, fresh=True, **options)

    def torchrun(self, script, *arguments, given=(), **options):
        """Run a script on two ranks under torchrun itself, `given` options of its own."""
        given = ("--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *given)
        return self.module("torch.distributed.run", *given, script, *arguments, **options)

    def start_ranks(self, count, script, *arguments, store=None, env=(), **options):
        """Start it on so many ranks, with what torchrun puts into the environment of each.

        Attempts that share a `store` see what the ones before have left in it, as under torchrun.
        """
        store = store or self.rank_store()
        started = [
            self.start(
                script,
                *arguments,
                env={**self.rank_environment(store, rank, count), **dict(env)},
                **options,
            )
            for rank in range(count)
        ]
        for each in started:
            each.store = store  # which closes with the last of them
        return started

    @staticmethod
    def rank_store():
        """What torchrun's agent keeps for its ranks."""
        from torch.distributed import TCPStore

        return TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    @staticmethod
    def rank_environment(store, rank, count):
        """The variables that torchrun sets for one of the ranks of a host."""
        return {
            **{"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)},
            **{"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)},
            **{"RANK": str(rank), "LOCAL_RANK": str(rank)},
            **{"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"},
        }

    def run_ranks(self, count, script, *arguments, code=0, **options):
        """Run a script on so many ranks to its end, as `run` does; a result for each."""
        with ThreadPoolExecutor(count) as pool, ExitStack() as stack:
            started = self.start_ranks(count, script, *arguments, **options)
            for each in started:
                stack.enter_context(each)
            results = list(pool.map(Process.result, started))
        for result in results:
            assert code in (None, result.returncode), result.stderr[-4000:]
        return results

    def end(self):
        if "_server" in vars(self):
            # Not only closed: a worker of a loader that is still alive has a copy of it.
            self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._process.wait()


@pytest.fixture(scope="session")
def processes():
    """Runs scripts in processes of their own, without the seconds that importing torch takes."""
    running = Processes()
    yield running
    running.end()


@pytest.fixture(scope="session")
def in_child():
    """Calls a function in a forked process, of which a test may ask anything."""

    def call(task, megabytes=None):
        """What it returns as JSON, or None if it raises or is killed; and the exit status.

        With `megabytes`, it may take so much memory beside what this process has.
        """
        reading, writing = os.pipe()
        if (process := os.fork()) == 0:
            gc.freeze()  # garbage of this process may end threads that a child does not have
            os.close(reading)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # what is captured may be a file
            status = 1
            try:
                if megabytes is not None:
                    used = int(Path("/proc/self/statm").read_text().split()[0])
                    most = used * resource.getpagesize() + megabytes * 2**20
                    resource.setrlimit(resource.RLIMIT_AS, (most, most))
                os.write(writing, json.dumps(task()).encode("ascii"))
                status = 0
            except BaseException:
                with suppress(BaseException):
                    sys.stderr.write(traceback.format_exc())
                    sys.stderr.flush()
            finally:
                os._exit(status)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            said = file.read()
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        return json.loads(said) if said else None, status

    return call


def pytest_itemcollected(item):
    """With `quick(name=2)`, what a test does with the third and later values of a name is slow."""
    mark = item.get_closest_marker("quick")
    quick = mark.kwargs if mark else {}
    if any(item.callspec.indices[name] >= count for name, count in quick.items()):
        item.add_marker("slow")


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device: make gpu")


def pytest_configure(config):
    config.stash[LEFT_OUT] = Counter()


def pytest_deselected(items):
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        item.config.stash[LEFT_OUT].update(
            [each for each in ("gpu", "soak", "slow") if each in marks][:1]
        )


def pytest_sessionfinish(session):
    if output := getattr(session.config, "workeroutput", None):
        output["left out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Each worker of pytest-xdist has left out the same tests."""
    output = getattr(node, "workeroutput", {})  # one that was killed has none
    node.config.stash[LEFT_OUT] = Counter(output.get("left out", {}))


def pytest_terminal_summary(terminalreporter, config):
    left_out = {f"marked {name}: make {name}": n for name, n in config.stash[LEFT_OUT].items()}
    left_out |= Counter(each.longrepr[2] for each in terminalreporter.stats.get("skipped", ()))
    for reason, count in left_out.items():
        terminalreporter.write_line(f"left out, {count} x {reason}")
