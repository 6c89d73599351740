"""A process group on a device, as far as one GPU shows it; several ranks are in distributed/."""

import json

import pytest


def test_ddp_and_fsdp_with_one_rank_resume_to_the_last_bit(device, run_script, processes, tmp_path):
    store = processes.rank_store()
    env = {
        **processes.rank_environment(store, 0, 1),
        **{"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"},  # there may be no network
    }
    said = json.loads(run_script("one_rank.py", tmp_path, env=env).splitlines()[-1])
    backend = "gloo" if device.type == "cpu" else "nccl"
    assert said == {"backend": backend, "ddp": [True, 6, 6], "fsdp": [True, 6, 6]}


def test_the_script_of_one_process_is_that_of_a_rank_on_its_device(device, run_script, processes):
    store = processes.rank_store()
    env = {
        **processes.rank_environment(store, 0, 1),
        **{"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"},
    }
    alone, rank = (
        json.loads(run_script("prepared.py", env=each).splitlines()[-1]) for each in ((), env)
    )
    assert (alone[0], rank[0]) == (False, True)
    assert alone[1:] == rank[1:]
    assert [where for where, _ in alone[1:]] == ["cpu" if device.type == "cpu" else "cuda:0"]


@pytest.mark.slow
def test_ranks_that_see_one_device_each_use_it(processes):
    """As under Slurm with a GPU for each task, where every one of them is number 0."""
    script = """
        import torch

        used = []
        torch.cuda.is_available = lambda: True  # of torch, for a machine without a GPU
        torch.cuda.device_count = lambda: 1
        torch.cuda.set_device = used.append
        from camshaft import ranks

        with ranks.process_group("gloo"):
            print(ranks.rank(), used)
    """
    results = processes.run_ranks(2, script)
    assert [each.stdout for each in results] == ["0 [0]\n", "1 [0]\n"]
