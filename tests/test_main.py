"""The command line as a process: it starts without torch, and fails in one line."""

import subprocess
import sys

import pytest

from camshaft.__main__ import main

COMMANDS = [["inspect"], ["verify"], ["prune"], ["export"], ["report"], ["watch"]]


def start(*arguments, **options):
    command = [sys.executable, "-W", "error", "-m", "camshaft", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, **options)


def test_a_process_shows_a_directory_and_exits_by_what_it_found(save, tmp_path):
    path = save(1)
    result = start("inspect", tmp_path / "run")
    assert (result.returncode, result.stderr) == (0, "")
    assert path.name in result.stdout
    (path / "state.json").unlink()
    assert start("verify", tmp_path / "run").returncode == 1
    result = start("verify", tmp_path / "nowhere")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"camshaft: {tmp_path / 'nowhere'} is no directory\n"


def test_looking_verifying_and_pruning_import_no_torch(save, tmp_path):
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
    command = [sys.executable, "-c", script, tmp_path / "run", save(1)]
    subprocess.run(command, check=True, capture_output=True)


def test_a_reader_that_has_enough_is_no_error(save, tmp_path):
    for iteration in range(3):
        save(iteration)
    command = [sys.executable, "-m", "camshaft", "verify", tmp_path / "run"]
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


@pytest.mark.parametrize("command", [[], *COMMANDS])
def test_help_tells_the_exit_codes(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    code = "2  there is no checkpoint or nothing to report, or the command line is wrong"
    assert code in capsys.readouterr().out
