"""Where two runs part: each cause, placed on purpose, is named as the first."""

import json
import os

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from camshaft.__main__ import main
from camshaft.handlers import Fingerprints
from camshaft.handlers.tools.prove import compare


def train(path, *, fault="", seed=0, order=0, clip=1.0):
    """A loop with one fault; the shuffle has a generator of its own, and dropout draws."""
    torch.manual_seed(seed)
    data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
    torch.manual_seed(1 if fault == "first weights" else 0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    shuffle = torch.Generator().manual_seed(order)
    loader = DataLoader(data, 8, shuffle=True, generator=shuffle)
    fingerprint = Fingerprints(path).by_hand(model)
    number = 0
    for _ in range(2):
        for inputs, targets in loader:
            number += 1
            if (fault, number) == ("perturbed", 3):
                model[0].weight.data[0, 0] += 1e-3
            optimizer.zero_grad()
            loss = mse_loss(model(inputs), targets)
            loss.backward()
            if (fault, number) == ("kernel", 4):  # sums in another order
                model[2].weight.grad.mul_(1 + 1e-6)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            if (fault, number) == ("rate", 5):
                optimizer.param_groups[0]["lr"] = 0.11
            optimizer.step()
            if (fault, number) == ("after", 6):
                model[2].bias.data += 1e-5
            fingerprint((inputs, targets), loss)
        if fault == "draw":
            torch.rand(1)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole") / "a.jsonl")


def answer(capsys, *arguments, **options):
    code = compare(*arguments, as_json=True, **options)
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("fault", "kind", "iteration", "name", "nearly"),
    [
        ({"order": 1}, "batch", 1, "0", False),
        ({"seed": 1}, "batch", 1, "0", False),
        ({"fault": "first weights"}, "loss", 1, "loss", False),
        ({"fault": "perturbed"}, "loss", 3, "loss", True),
        ({"clip": 0.5}, "gradients", 1, "0.weight", False),
        ({"fault": "kernel"}, "gradients", 4, "2.weight", True),
        ({"fault": "rate"}, "weights", 5, "0.weight", True),
        ({"fault": "after"}, "weights", 6, "2.bias", True),
        ({"fault": "draw"}, "generators", 6, "torch", None),
    ],
)
def test_each_cause_is_named_as_the_first(
    tmp_path, capsys, whole, fault, kind, iteration, name, nearly
):
    code, found = answer(capsys, whole, train(tmp_path / "b.jsonl", **fault))
    first = found["differences"][kind]
    assert (code, found["first"], first["iteration"]) == (1, kind, iteration)
    assert first["names"][0] == name
    assert nearly is None or (0 < first["apart"] < 0.01) is nearly
    compare(whole, tmp_path / "b.jsonl")
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith(f"first: {kind}; likely ")
    assert f"iteration {iteration}: {name}, " in next(each for each in said if kind in each)


def test_an_equal_run_is_told_as_such(tmp_path, capsys, whole):
    assert compare(whole, train(tmp_path / "b.jsonl")) == 0
    said = capsys.readouterr().out.splitlines()
    assert (said[0], said[-1]) == ("10 iterations compared, 1 to 10", "no difference")


ROW = {
    **{"iteration": 1, "ranks": 1, "batch": {"0": "float32[2] ab 1.0 1.0"}, "loss": {}},
    **{"generators": {}, "gradients": {}, "weights": {"w": "float32[1] cd 2.0 2.0"}},
}


def written(path, *rows, end=""):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + end)
    return path


def test_a_generator_that_nobody_draws_from_does_not_matter(tmp_path, capsys):
    def rows(*states):
        return [
            ROW | {"iteration": number, "generators": {"random": state}}
            for number, state in enumerate(states, 1)
        ]

    unused = written(tmp_path / "a", *rows("12", "12", "12"))
    assert answer(capsys, unused, written(tmp_path / "b", *rows("ab", "ab", "ab")))[0] == 0
    code, found = answer(capsys, unused, written(tmp_path / "b", *rows("12", "12", "cd")))
    assert (code, found["first"]) == (1, "generators")
    assert found["differences"]["generators"]["iteration"] == 3


def test_generators_that_one_machine_lacks_are_not_compared(tmp_path, capsys):
    def rows(*names):
        return [
            ROW | {"iteration": n, "generators": {name: f"{name} {n}" for name in names}}
            for n in (1, 2)
        ]

    a = written(tmp_path / "a", *rows("torch", "torch.cuda"))
    code, found = answer(capsys, a, written(tmp_path / "b", *rows("torch")))
    assert (code, found["not_compared"].get("generators", 0)) == (0, 0)
    assert answer(capsys, a, written(tmp_path / "b", *rows("random")))[1]["not_compared"] == {
        "iterations": 0,
        **dict.fromkeys(("generators", "loss", "gradients"), 2),
    }


@pytest.mark.parametrize(
    ("mark", "text", "apart"),
    [
        ("float32[3] cd 2.0 2.0", "w, float32[1] and float32[3], relative difference 0.0", 0.0),
        ("float32[1] ef 2.0 2.0", "w, float32[1], relative difference 0.0", 0.0),
        ("float32[1] ef 2.0 -2.0", "w, float32[1], relative difference 2.0", 2.0),
        ("float32[1] ef nan nan", "w, float32[1]", None),
        (None, "w, float32[1] and None; 1 more", None),
    ],
)
def test_a_difference_says_what_differs_and_by_how_much(tmp_path, capsys, mark, text, apart):
    a = written(tmp_path / "a", ROW)
    b = written(tmp_path / "b", ROW | {"weights": {"w": mark} if mark else {"other": "ab"}})
    code, found = answer(capsys, a, b, rtol=0.5 if apart is None else -1.0)
    assert code == 1
    assert found["differences"]["weights"] == {
        **{"iteration": 1, "text": text, "apart": apart},
        "names": ["w"] if mark else ["w", "other"],
    }


FOREIGN = [
    *("\x00\xff", "[]\n", "{}\n", '{"iteration": 1, "step": 1, "epoch": 1, "loss": 0.5}\n'),
    json.dumps(ROW | {"iteration": "1"}) + "\n",
    json.dumps(ROW | {"iteration": 0}) + "\n",
    json.dumps(ROW | {"weights": []}) + "\n",
    f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n",
    f"{json.dumps(ROW)}\n{{torn\n{json.dumps(ROW | {'iteration': 2})}\n",
]


@pytest.mark.parametrize("text", FOREIGN)
def test_another_file_is_refused_by_its_line(tmp_path, capsys, text):
    a = written(tmp_path / "a", ROW)
    (b := tmp_path / "b\x1b[2J").write_text(text)
    assert compare(a, b) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "\x1b" not in said.err
    assert "is no row of Fingerprints in its place" in said.err or "in common" in said.err


def test_marks_of_any_kind_are_compared(tmp_path, capsys):
    odd = [None, 1, {}, "x", 10**400, "a 1e999 1", "1 2 3 4 5"]
    for one in odd:
        for other in odd:
            a = written(tmp_path / "a", ROW | {"batch": {"x": one}, "generators": {"g": one}})
            b = written(tmp_path / "b", ROW | {"batch": {"x": other}, "generators": {"g": other}})
            assert answer(capsys, a, b)[0] in (0, 1)


def test_the_command_tells_by_its_code(tmp_path, capsys, whole):
    other = str(train(tmp_path / "b.jsonl", fault="rate"))
    assert main(["compare", str(whole), str(whole)]) == 0
    assert main(["compare", str(whole), other]) == 1
    assert main(["compare", str(whole), other, "--rtol", "10", "--json"]) == 0
    assert main(["compare", str(whole), str(tmp_path / "nowhere")]) == 2
    later = written(tmp_path / "later", ROW | {"iteration": 99})
    assert main(["compare", str(whole), str(later)]) == 2
    assert "no iteration in common" in capsys.readouterr().err
    assert main(["compare", str(whole), str(tmp_path)]) == 2
    assert f"{tmp_path} is a directory: name a file of Fingerprints" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe")
    assert main(["compare", str(whole), str(tmp_path / "pipe")]) == 2


def test_comparing_imports_no_torch(processes, tmp_path):
    a = written(tmp_path / "a", ROW)
    script = (
        "import sys\n"
        "from camshaft.__main__ import main\n"
        "assert main(['compare', sys.argv[1], sys.argv[1]]) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    processes.run(script, a, fresh=True)
