"""How many messages a run sends, and how large they are, with every handler on."""

import json
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
START, REPORTS, VALIDATION, SIGNALS, SAVE, END = (0, 1), (10, 30), 15, (18, 36), 20, 40


@pytest.fixture(scope="module")
def counts(processes, tmp_path_factory):
    """By rank, who asked and iteration: messages and bytes of a run on so many ranks."""

    @cache
    def run(size):
        directory = tmp_path_factory.mktemp("counted")
        processes.run_ranks(size, HERE / "counted_on_ranks.py", directory)
        files = (directory / f"{size}-{rank}.json" for rank in range(size))
        return [
            {by: {int(n): pair for n, pair in found.items()} for by, found in each.items()}
            for each in (json.loads(file.read_text()) for file in files)
        ]

    return run


def test_between_reports_ranks_send_gradients_and_nothing_else(counts):
    for each in counts(2):
        asked = {*START, *REPORTS, VALIDATION, *SIGNALS, SAVE, END}
        assert set(each["camshaft"]) == asked
        assert set(each["torchmetrics"]) == {VALIDATION, END}
        gradients = {n: number for n, (number, _) in each["torch"].items() if n}
        assert {n for n, number in gradients.items() if number != 1} == {2}  # DDP's first buckets
        assert set(gradients) == set(range(1, END + 1))


def test_a_report_a_validation_and_a_question_about_signals_are_a_few_small_messages(counts):
    for rank, each in enumerate(counts(2)):
        ours = each["camshaft"]
        answers = 1 if rank else 2  # rank 0 sends its answer, too
        # Averages and totals: are the names alike, and the sums, each there and back; throughput:
        # the speed of each rank to rank 0, and its answer, each as a size and the bytes.
        assert [number for number, _ in (ours[n] for n in REPORTS)] == [12, 12]
        assert all(size < 1000 for _, size in (ours[n] for n in REPORTS))  # a host's name is in it
        assert ours[VALIDATION][0] == 7  # mean loss, targets, early stopping
        assert [ours[n] for n in SIGNALS] == [[2, answers * 16]] * 2
        assert ours[SAVE][0] <= 10


@pytest.mark.slow
def test_four_ranks_send_as_much_each_as_two(counts):
    two, four = counts(2), counts(4)
    for fewer, more in [(two[0], four[0]), (two[1], four[1]), (two[1], four[3])]:
        for by in ("camshaft", "torchmetrics", "torch"):
            assert {n: number for n, (number, _) in more[by].items()} == {
                n: number for n, (number, _) in fewer[by].items()
            }
            sizes = {n: size for n, (_, size) in more[by].items() if n != SAVE}
            assert sizes == {n: size for n, (_, size) in fewer[by].items() if n != SAVE}
        # What a rank tells of its part of a save has its number in it.
        assert more["camshaft"][SAVE][1] <= 1.1 * fewer["camshaft"][SAVE][1]


@pytest.mark.slow
def test_what_one_rank_decides_or_finds_ends_both_at_one_iteration(processes, tmp_path):
    processes.run_ranks(2, HERE / "decisions_on_ranks.py", tmp_path)


@pytest.mark.slow
def test_what_costs_messages_in_each_step_costs_as_many_as_the_page_says(processes):
    for rank, result in enumerate(processes.run_ranks(2, HERE / "choices_on_ranks.py")):
        assert result.stdout.count(f"rank {rank}: ") == 13
