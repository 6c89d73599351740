"""The command line as a process: it starts without torch, and fails in one line."""

import io
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from camshaft import Engine, Events, __version__
from camshaft.__main__ import main
from camshaft.handlers import Checkpoint, checkpoints, latest

PRINT_FACTS = ["inspect", "verify", "prune", "export", "report", "runs", "tail", "diff"]
PRINT_FACTS += ["compare", "prove", "replay", "set", "doctor"]
COMMANDS = [*PRINT_FACTS, "watch", "run", "init", "completion"]
PAGE = Path(__file__).parents[1] / "docs" / "guides" / "command-line.md"


@pytest.fixture
def path(tmp_path):
    """The newest of the three checkpoints in `run`."""
    when = Events.ITERATION_COMPLETED
    keeping = Checkpoint(tmp_path / "run", when=when, keep=latest(3))
    Engine(lambda state, batch: None, keeping).run("abc", max_epochs=1)
    return checkpoints(tmp_path / "run")[-1].path


def test_a_process_shows_a_directory_and_exits_by_what_it_found(processes, path, tmp_path):
    start = partial(processes.module, "camshaft", code=None, env={"PYTHONWARNINGS": "error"})
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


def test_looking_verifying_and_pruning_import_no_torch(processes, path, tmp_path):
    script = (
        "import sys\n"
        "from camshaft.__main__ import main\n"
        "run, one = sys.argv[1:]\n"
        "codes = [main(['inspect', run]), main(['inspect', one, '--json'])]\n"
        "codes += [main(['verify', run]), main(['prune', run, '--keep', 'latest()'])]\n"
        "assert codes == [0, 0, 0, 0], codes\n"
        "from camshaft.handlers.tools.checkpoints import export\n"
        "assert 'torch' not in sys.modules\n"
    )
    processes.run(script, tmp_path / "run", path, fresh=True)


def test_a_table_of_runs_imports_nothing_that_trains_and_no_config(processes, path):
    script = (
        "import sys\n"
        "from camshaft.__main__ import main\n"
        "assert main(['runs', sys.argv[1]]) == 0\n"
        "slow = {'torch', 'importlib.metadata', 'camshaft.engine.loop', 'camshaft.engine.checks'}\n"
        "assert not slow & {*sys.modules}\n"
    )
    processes.run(script, path.parent, fresh=True)


def test_a_reader_that_has_enough_is_no_error(path):
    command = [sys.executable, "-m", "camshaft", "verify", path.parent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_closed_standard_output_is_no_error(path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)  # as after `>&-`
    assert main(["verify", str(path.parent)]) == 0
    sys.stdout.close()


def test_a_name_that_the_terminal_cannot_write_is_escaped(path, monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    path.parent.rename(other := path.parent.with_name("\xfcbung"))
    assert main(["inspect", str(other)]) == 0
    assert rb"\xfcbung: 3 checkpoints" in terminal.buffer.getvalue()


def test_a_port_that_no_machine_has_is_one_line(path, capsys):
    assert main(["watch", str(path.parent), "--port", "70000"]) == 1
    assert capsys.readouterr().err == "camshaft: bind(): port must be 0-65535.\n"


@pytest.mark.parametrize(
    "arguments", [[], ["look"], ["verify"], ["run"], ["prune", "run"], ["inspect", "run", "--what"]]
)
def test_a_wrong_command_line_is_code_2(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: camshaft" in capsys.readouterr().err


def help_of(capsys, *command):
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    return capsys.readouterr().out


def test_help_tells_the_exit_codes_of_all_commands_and_of_one_its_own(capsys):
    usual = "2  there is no checkpoint or nothing to report, or the command line is wrong"
    text = help_of(capsys)
    assert usual in text
    own = {
        "diff": "2  there is nothing to compare",
        "run": "2  the config is wrong",
        "set": "2  there is no",
    }
    for command in COMMANDS:
        shown = help_of(capsys, command).partition("exit codes:")[2]
        assert own.get(command, "  1  ") in shown
        assert shown.strip() in text
        assert shown.count("  1  ") == 1, command


def test_every_command_has_help_is_on_its_page_and_gives_json_if_it_prints_facts(capsys):
    shown = help_of(capsys).partition("exit codes:")[0]
    assert sorted(re.findall(r"^    (\w+)\b", shown, re.MULTILINE)) == sorted(COMMANDS)
    page = PAGE.read_text()
    for command in COMMANDS:
        text = help_of(capsys, command)
        assert ("--json" in text) == (command in PRINT_FACTS), command
        assert f"$ camshaft {command}" in page, command
        for option in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE):
            assert option in page, (command, option)
        assert re.search(r"\n\n[A-Z][^\n]+[.:]\s", text), command


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("inspekt runs", "inspect"),
        ("Inspect runs", "inspect"),
        ("inspect runs --jsno", "--json"),
        ("inspect --verfy=1 runs", "--verify"),
        ("prune runs --kep latest", "--keep"),
        ("--verson", "--version"),
        ("run c.yaml lr=1 --maxbatches 3", "--max-batches"),
        ("prove --kils 3 -- python train.py --jsno", "--kills"),
        ("completion bsh", "bash"),
    ],
)
def test_a_mistyped_word_gets_the_one_that_was_probably_meant(line, meant, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    error = capsys.readouterr().err
    assert error.endswith(f"; did you mean {meant!r}?\n")
    assert error.count("did you mean") == 1


def test_a_word_that_is_like_no_other_gets_no_advice(capsys):
    for line in ("zzz", "inspect runs --zzz", "compare a b --rtol -x"):
        with pytest.raises(SystemExit, match="2"):
            main(line.split())
        assert "did you mean" not in capsys.readouterr().err


def test_a_number_that_would_find_all_equal_or_start_no_rank_is_refused(capsys):
    for line in ("compare a b --rtol nan", "compare a b --rtol -1", "prove --ranks 0 -- x"):
        with pytest.raises(SystemExit, match="2"):
            main(line.split())
        assert "number of" in capsys.readouterr().err


def test_facts_are_given_as_json(path, tmp_path, capsys):
    run, file = tmp_path / "run", tmp_path / "x.pt"
    lines = {
        "verify": [run],
        "prune": [run, "--keep", "latest(1)", "--dry-run"],
        "export": [run, file],
        "report": [run, "-o", tmp_path / "page.html"],
    }
    told = {}
    for name, options in lines.items():
        assert main([name, *map(str, options), "--json"]) == 0
        told[name] = json.loads(capsys.readouterr().out)
    assert [each["broken"] for each in told["verify"]] == [None] * 3
    assert told["prune"]["checkpoints"][-1] == {
        "checkpoint": path.name,
        "fate": "kept by latest(1)",
    }
    assert (told["prune"]["count"], told["prune"]["dry_run"]) == (2, True)
    assert told["export"] == {
        **{"file": str(file), "size": file.stat().st_size, "checkpoint": str(path)}
    }
    assert told["report"]["size"] == (tmp_path / "page.html").stat().st_size


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("ins", ["inspect"]), ("inspect --v", ["--verify"]), ("verify ru", ["runs"])],
)
def test_bash_completes_commands_options_and_paths(typed, completed, tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "runs").mkdir()
    words = f"camshaft {typed}".split()
    script = (
        "source ./script; registered=($(complete -p camshaft))\n"
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
        '"${registered[-2]}" camshaft\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    shown = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert shown.stdout.split() == completed, shown.stderr


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script_too(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "camshaft" in capsys.readouterr().out


def test_without_shtab_one_line_says_what_to_install(processes):
    script = "import sys\nsys.modules['shtab'] = None\nfrom camshaft.__main__ import main\n"
    shown = processes.run(f"{script}raise SystemExit(main())", "completion", "bash", code=1)
    assert shown.stdout == ""
    text = 'camshaft: completion needs shtab: pip install "camshaft[completion]"\n'
    assert shown.stderr == text
