"""Forks processes in which torch is imported already. `tests/conftest.py` starts and asks it.

A request is a line of JSON and three descriptors: standard output, standard error, and a pipe for
the answer, which is the id of the process at once and its exit code when it has ended.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType

PRELOADED = (
    *("camshaft", "camshaft.handlers", "ignite.distributed", "sklearn.datasets"),
    *("torchmetrics.classification", "tensorboardX.record_writer", "tensorboardX.summary"),
    "torch._dynamo",  # the first optimizer imports it
)


def serve(requests):
    """Answer until the other side hangs up; return, in each forked process, what it is to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for scripts
    while True:
        message, descriptors, *_ = socket.recv_fds(requests, 1 << 20, 3)
        while message and not message.endswith(b"\n"):
            message += requests.recv(1 << 20)
        if not message:
            sys.exit()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *streams, answer = descriptors
            if (process := os.fork()) == 0:
                os.setsid()
                os.write(answer, f"{os.getpid()}\n".encode())
                os.close(answer)
                requests.detach()  # standard input takes its number
                return json.loads(message), streams
            for stream in streams:
                os.close(stream)
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            os.write(answer, f"{code}\n".encode())
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def become(request, streams):
    """Run a script, as a fresh interpreter does or, if asked for, in one."""
    for number, stream in enumerate([os.open(os.devnull, os.O_RDONLY), *streams]):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    file, source, arguments = request["file"], request["source"], request["arguments"]
    if request["fresh"]:
        script = [file] if file else ["-c", source]
        os.execve(sys.executable, [sys.executable, *script, *arguments], request["env"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.modules["numpy"].random.seed()
    main = sys.modules["__main__"] = ModuleType("__main__")
    if file:
        main.__file__, source = file, Path(file).read_text()
    sys.path[0] = str(Path(file).parent) if file else ""
    sys.argv = [file or "-c", *arguments]
    exec(compile(source, file or "<string>", "exec"), vars(main))


def end():
    """End well, without freeing every module, which takes ten times as long as a short script."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    for name in PRELOADED:
        with suppress(ModuleNotFoundError):  # of a library that few tests need
            importlib.import_module(name)
    gc.freeze()  # the collections at a process's end leave alone what all of them share
    become(*serve(socket.socket(fileno=0)))
    end()
