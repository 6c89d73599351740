"""What torchrun gives to the ranks of a host, for tests that start ranks themselves."""


def rank_store():
    """What torchrun's agent keeps for its ranks."""
    from torch.distributed import TCPStore

    return TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


def rank_environment(store, rank, count):
    """The variables that torchrun sets for one of the ranks of a host."""
    return {
        **{"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)},
        **{"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)},
        **{"RANK": str(rank), "LOCAL_RANK": str(rank)},
        **{"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"},
    }
