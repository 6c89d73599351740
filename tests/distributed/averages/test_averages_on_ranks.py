"""Handlers that hold copies of weights, on sharded models: each equals one process."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_averages_of_a_sharded_model_equal_one_process_and_updates_send_nothing(processes):
    processes.run_ranks(2, HERE / "averages_on_ranks.py", "FSDP", 3)


@pytest.mark.soak
@pytest.mark.parametrize("form", ["FSDP", "HSDP", "TP x FSDP"])
def test_averages_and_best_weights_do_so_on_four_ranks_in_every_layout(processes, form):
    processes.run_ranks(4, HERE / "averages_on_ranks.py", form)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [*(pytest.param(n, marks=pytest.mark.soak) for n in ("FSDP", "HSDP")), "TP x FSDP"]
)
def test_exports_are_those_of_one_process_and_a_failure_of_one_rank_is_one_of_all(
    processes, tmp_path, form
):
    processes.run_ranks(4, HERE / "exports_on_ranks.py", tmp_path, form)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        pytest.param("FSDP", marks=pytest.mark.soak),
        pytest.param("HSDP", marks=pytest.mark.soak),
        "TP x FSDP",
    ],
)
def test_adapters_of_a_frozen_model_train_are_averaged_and_exported_alone(
    processes, tmp_path, form
):
    processes.run_ranks(4, HERE / "adapters_on_ranks.py", tmp_path, form)


@pytest.mark.slow
def test_averages_resume_on_other_numbers_of_ranks_and_other_meshes(processes, tmp_path):
    parts = [(4, "TP x FSDP"), (2, "FSDP"), (1, "plain"), (4, "HSDP"), (4, "FSDP"), (2, "FSDP")]
    for number, (count, form) in enumerate(parts, 1):
        processes.run_ranks(count, HERE / "resumes_on_ranks.py", tmp_path, form, number)
