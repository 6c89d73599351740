"""What ranks ask one another, of all and of a part of them."""

import os

import torch
import torch.distributed as dist

from camshaft import ranks

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

assert (ranks.rank(), ranks.world_size()) == (rank, size)
assert ranks.agreed(rank + 1 / 3) == 1 / 3  # every bit of it
assert ranks.any_rank(rank == 1) is True
assert ranks.any_rank(False) is False
assert ranks.total(rank) == sum(range(size))
assert type(ranks.total(1)) is int
assert ranks.total(0.5) == size / 2
assert ranks.total(2**53 + 1) == (2**53 + 1) * size
whole = torch.ones(2, requires_grad=True)
assert ranks.total(whole).tolist() == [size, size]
assert not ranks.total(whole).requires_grad
everybody = [{"rank": each} for each in range(size)]
assert ranks.gathered({"rank": rank}) == everybody
assert ranks.gathered_at_first({"rank": rank}) == (None if rank else everybody)

assert ranks.largest(torch.tensor([rank, -rank])).tolist() == [size - 1, 0]
assert ranks.most([rank, -rank]) == [size - 1, 0]
assert ranks.from_rank(2, {"told by": rank}) == {"told by": 2}
assert ranks.decided([rank, 1], lambda rows: rows.amax(0)) == [size - 1, 1]
alike = {"b": 2**60 + rank, "a": 1}
assert ranks.summed(alike) == {"b": 2**60 * size + sum(range(size)), "a": size}
assert list(ranks.summed(alike)) == ["b", "a"]
assert ranks.summed({"a": 0.5, "b": 1}) == {"a": size / 2, "b": size}
unlike = {"all": 1} if rank else {"first": 0.5, "all": 1}
assert ranks.summed(unlike) == {"first": 0.5, "all": size}
assert ranks.summed({}) == {}

own = [torch.full((2, 3), rank), torch.full((), rank + 0.5), torch.full((5,), rank), torch.ones(0)]
ranks.share(own)
assert [each.unique().tolist() for each in own] == [[0], [0.5], [0], []], own

# Rows of a mesh: tensor-parallel pairs; columns: ranks that read different batches.
mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
data = mesh.get_group("data")
columns = [[0, 2], [1, 3]][rank % 2]
assert (ranks.rank(data), ranks.world_size(data)) == (rank // 2, 2)
assert ranks.total(rank, group=data) == sum(columns)
assert ranks.total(torch.tensor([rank]), group=data).tolist() == [sum(columns)]
assert ranks.count(rank > 1, group=data) == 1
assert ranks.any_rank(rank == 1, group=data) is (rank % 2 == 1)
assert ranks.gathered(rank, group=data) == columns
assert ranks.summed({"a": rank}, group=data) == {"a": sum(columns)}

# Where no launcher tells it, machines are known by their names.
assert (ranks.local_rank(), ranks.local_world_size()) == (rank, size)
del os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]
assert (ranks.local_rank(), ranks.local_world_size()) == (rank, size)
dist.barrier()
del mesh, data
dist.destroy_process_group()
