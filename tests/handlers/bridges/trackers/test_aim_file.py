"""The file beside Aim's own, which names its run; Aim itself need not be installed."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

from camshaft.handlers.loggers import Aim
from camshaft.handlers.loggers.rows import Start


def test_a_run_s_name_from_a_checkpoint_leads_to_no_other_folder(tmp_path, monkeypatch):
    class Run(dict):
        hash = "abc"

        def __init__(self, **options):
            pass

        def close(self):
            pass

    aim = ModuleType("aim")
    aim.__spec__ = ModuleSpec("aim", None)
    aim.Run, aim.Repo = Run, SimpleNamespace(from_path=lambda path, init: None)
    monkeypatch.setitem(sys.modules, "aim", aim)
    board = tmp_path / "board"
    (board / ".aim" / "camshaft-").mkdir(parents=True)
    Aim("tests", directory=board).writer(Start("/../../../mine", 1))
    assert not (tmp_path / "mine").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["board"]
    found = [each.read_text() for each in (board / ".aim").iterdir() if each.is_file()]
    assert found == ["abc"]
