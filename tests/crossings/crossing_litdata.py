"""litdata: chunks that are written once and streamed."""

from crossing import digits, exact, told, trained_on


def stream(folder, workers):
    import litdata
    from litdata.streaming.writer import BinaryWriter

    chunks = folder.parent / f"chunks of {folder.name}"
    if not chunks.exists():  # as litdata.optimize does in processes of its own
        writer = BinaryWriter(f"{chunks}", chunk_size=5)
        for i, sample in enumerate(digits()):
            writer[i] = sample
        writer.done()
        writer.merge()
    data = litdata.StreamingDataset(f"{chunks}", shuffle=True, seed=3)
    return litdata.StreamingDataLoader(data, batch_size=4, num_workers=workers)


@exact("litdata", "Data", "engine.run(StreamingDataLoader(StreamingDataset(...), batch_size=4))")
def test_stream(folder):
    """A StreamingDataLoader without workers, over a StreamingDataset that shuffles."""
    return trained_on(stream(folder, workers=0))


@exact(
    "litdata",
    "Data",
    "engine.run(StreamingDataLoader(data, batch_size=4, num_workers=2))",
    warns="workers of a StreamingDataLoader draw",
    note="Samples that draw random numbers in workers need a plain DataLoader.",
)
def test_stream_with_workers(folder):
    """A StreamingDataLoader with two workers."""
    return trained_on(stream(folder, workers=2))


@told(
    "litdata",
    "Data",
    "StreamingDataLoader(data, num_workers=n) with the same n, or a change between epochs",
    match="workers 2 -> 1",
)
def test_stream_with_other_workers(folder):
    """A StreamingDataLoader with another number of workers in mid-epoch."""
    return trained_on(stream(folder, workers=1 if (folder / "checkpoints").exists() else 2))
