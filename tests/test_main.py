"""The command line as a process: it starts without torch, and fails in one line."""

import subprocess
import sys

import pytest

from camshaft import Engine, Events, __version__
from camshaft.__main__ import main
from camshaft.handlers import Checkpoint, checkpoints, latest

COMMANDS = ["inspect", "verify", "prune", "export", "report", "watch", "prove"]
COMMANDS += ["compare", "run"]


def start(*arguments, **options):
    command = [sys.executable, "-W", "error", "-m", "camshaft", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, **options)


@pytest.fixture
def path(tmp_path):
    """The newest of the three checkpoints in `run`."""
    when = Events.ITERATION_COMPLETED
    keeping = Checkpoint(tmp_path / "run", when=when, keep=latest(3))
    Engine(lambda state, batch: None, keeping).run("abc", max_epochs=1)
    return checkpoints(tmp_path / "run")[-1].path


def test_a_process_shows_a_directory_and_exits_by_what_it_found(path, tmp_path):
    result = start("inspect", tmp_path / "run")
    assert (result.returncode, result.stderr) == (0, "")
    assert path.name in result.stdout
    (path / "state.json").unlink()
    assert start("verify", tmp_path / "run").returncode == 1
    result = start("verify", tmp_path / "nowhere")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"camshaft: {tmp_path / 'nowhere'} is no directory\n"


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert (end.value.code, capsys.readouterr().out) == (0, f"camshaft {__version__}\n")


def test_looking_verifying_and_pruning_import_no_torch(path, tmp_path):
    script = (
        "import sys\n"
        "from camshaft.__main__ import main\n"
        "run, one = sys.argv[1:]\n"
        "codes = [main(['inspect', run]), main(['inspect', one, '--json'])]\n"
        "codes += [main(['verify', run]), main(['prune', run, '--keep', 'latest()'])]\n"
        "assert codes == [0, 0, 0, 0], codes\n"
        "from camshaft.handlers.checkpoint.commands import export\n"
        "assert 'torch' not in sys.modules\n"
    )
    command = [sys.executable, "-c", script, tmp_path / "run", path]
    subprocess.run(command, check=True, capture_output=True)


def test_a_reader_that_has_enough_is_no_error(path):
    command = [sys.executable, "-m", "camshaft", "verify", path.parent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    "arguments", [[], ["look"], ["verify"], ["prune", "run"], ["inspect", "run", "--what"]]
)
def test_a_wrong_command_line_is_code_2(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: camshaft" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], *([each] for each in COMMANDS)])
def test_help_tells_the_exit_codes(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    code = "2  there is no checkpoint or nothing to report, or the command line is wrong"
    assert code in capsys.readouterr().out
