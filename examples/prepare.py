"""Prepare a data set on all processors, once, and read it without loading it.

    python examples/prepare.py
    torchrun --nproc-per-node=2 examples/prepare.py    # rank 0 prepares, the others find it ready

The functions of Python's own library are the texts, their bytes the tokens. Put your tokenizer,
resampling or decoding in the place of `prepared`.
"""

import argparse
import ast
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from camshaft import LengthBatches, Padded, ranks


def prepared(path: Path) -> list[bytes]:
    """The samples of one file; runs in a process of the pool."""
    source = path.read_text(encoding="utf-8", errors="ignore")
    try:
        nodes = ast.walk(ast.parse(source))
    except (SyntaxError, ValueError):  # the library has some on purpose
        return []
    lines = source.split("\n")
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef))
    return ["\n".join(lines[each.lineno - 1 : each.end_lineno]).encode() for each in functions]


def prepare(files: Sequence[Path], directory: Path, workers: int | None = None) -> None:
    """Write the samples of all files, in their order, unless that has been done."""
    if (directory / "lengths.npy").exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    lengths = []
    with ProcessPoolExecutor(workers) as pool, open(directory / "tokens.bin", "wb") as tokens:
        for samples in pool.map(prepared, files, chunksize=16):  # in order; errors come out here
            tokens.writelines(samples)
            lengths += [len(sample) for sample in samples]
    np.save(directory / "unfinished.npy", np.array(lengths))
    os.replace(directory / "unfinished.npy", directory / "lengths.npy")  # last: now it is complete


class Prepared(Dataset[Tensor]):
    """Samples in a file, of which the operating system reads what is asked for."""

    def __init__(self, directory: Path) -> None:
        """Open the files; nothing is read but the lengths."""
        self.lengths = np.load(directory / "lengths.npy")
        self.ends = self.lengths.cumsum()
        self.tokens = np.memmap(directory / "tokens.bin", dtype=np.uint8, mode="r")

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.lengths)

    def __getitem__(self, index: int) -> Tensor:
        """The tokens of one sample."""
        end = self.ends[index]
        return torch.from_numpy(self.tokens[end - self.lengths[index] : end].astype(np.int64))


def library() -> Iterator[Path]:
    """The files of Python's library that come with Python."""
    return Path(os.__file__).parent.glob("*.py")


def main(arguments: Sequence[str] | None = None) -> DataLoader[Tensor]:
    """Prepare the data, or find it ready; say how much of a batch is padding."""
    parser = argparse.ArgumentParser(description="Prepare a data set on all processors.")
    parser.add_argument("--directory", type=Path, default=Path("runs/prepared"))
    parser.add_argument("--workers", type=int, help="all processors by default")
    parser.add_argument("--files", type=int, help="to try it on a few files")
    options = parser.parse_args(arguments)

    with ranks.rank_zero_first():
        prepare(sorted(library())[: options.files], options.directory, options.workers)
    data = Prepared(options.directory)
    loader = DataLoader(data, batch_sampler=LengthBatches(data.lengths, 32), collate_fn=Padded())
    padding = 1 - sum(int((batch > 0).sum()) for batch in loader) / sum(map(torch.numel, loader))
    print(f"rank {ranks.rank()}: {len(data)} samples, {len(loader)} batches, {padding:.1%} padding")
    return loader


if __name__ == "__main__":
    with ranks.process_group():
        main()
