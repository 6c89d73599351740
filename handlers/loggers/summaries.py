"""What TensorBoard shows besides numbers: summaries, embeddings, hyper-parameters and graphs."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...engine.modules import untouched
from ..common import Embedding, Histogram, Image, Medium, PRCurve, Text, grid
from ..files import LARGEST_TEXT, make_directory_inside, regular, replacing, safe_name
from .images import as_bytes, png
from .logger import flat_hparams

logger = logging.getLogger("camshaft")
CONFIG = "projector_config.pbtxt"


def summary_value(name: str, medium: Medium) -> Any:
    """One value of a summary, under a name."""
    summary: Any = import_module("tensorboardX.summary")
    if isinstance(medium, Image):
        height, width, channels = as_bytes(medium).shape
        image = summary.Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=png(medium)
        )
        return summary.Summary.Value(tag=name, image=image)
    if isinstance(medium, Text):
        made = summary.text(name, medium.text)
    elif isinstance(medium, Histogram):
        made = _histogram(summary, name, medium)
    elif isinstance(medium, PRCurve):
        made = summary.pr_curve(name, medium.targets.numpy(), medium.scores.double().numpy())
    else:
        raise TypeError(f"a {type(medium).__name__} is no summary")
    return made.value[0]


def hparams_summary(hparams: Mapping[str, Any]) -> Any:
    """Hyper-parameters as the beginning of a session, from which TensorBoard finds the metrics."""
    summary: Any = import_module("tensorboardX.summary")
    _, begun, _ = summary.hparams(flat_hparams(hparams), {})
    return begun


def _histogram(summary: Any, name: str, histogram: Histogram) -> Any:
    counts, edges = histogram.counts.double(), histogram.edges.double()
    middles = (edges[1:] + edges[:-1]) / 2
    return summary.histogram_raw(
        name,
        min=edges[0].item(),
        max=edges[-1].item(),
        num=counts.sum().item(),
        sum=(counts * middles).sum().item(),
        sum_squares=(counts * middles**2).sum().item(),
        # TensorBoard takes the upper ends of the ranges, the first of which has no lower end.
        bucket_limits=edges.tolist(),
        bucket_counts=[0.0, *counts.tolist()],
    )


def graph_of(model: Any, inputs: Any) -> bytes | None:
    """A model's graph as a serialised `GraphDef`; the model is run once, and left untouched.

    None, and a warning, if torch cannot trace the model: the log does without its graph then.

    The only public way to this graph is torch's `SummaryWriter`, which has a queue and writes a
    file of its own; so it writes to a folder that is thrown away.

    Args:
        model: The module.
        inputs: An example of its inputs: a tensor, or a tuple of them.
    """
    board: Any = import_module("torch.utils.tensorboard")
    reader: Any = import_module("tensorboard.backend.event_processing.event_accumulator")
    try:
        with (
            untouched({"model": model}, None),
            warnings.catch_warnings(),
            TemporaryDirectory() as folder,
        ):
            warnings.simplefilter("ignore")  # of tracing, which torch would like to remove
            with board.SummaryWriter(folder) as writer:
                writer.add_graph(model, inputs)
            graph = reader.EventAccumulator(folder).Reload().Graph()
    except Exception as error:
        logger.warning("TensorBoard cannot draw the model's graph: %s", error)
        return None
    serialised: bytes = graph.SerializeToString()
    return serialised


def write_embedding(directory: Path, name: str, iteration: int, embedding: Embedding) -> None:
    """Write the points into a folder of their own, and its name into the projector's settings.

    They replace points of the same name and iteration.
    """
    names = ("embeddings", safe_name(name), str(iteration))
    inside, files = "/".join(names), dict[str, bytes]()
    rows = ("\t".join(map(repr, row)) for row in embedding.vectors.double().tolist())
    files["tensors.tsv"] = _lines(rows)
    settings = [f"  tensor_name: {json.dumps(f'{name}:{iteration}')}"]
    settings.append(f'  tensor_path: "{inside}/tensors.tsv"')
    if embedding.labels is not None:
        files["metadata.tsv"] = _lines(" ".join(each.split()) for each in embedding.labels)
        settings.append(f'  metadata_path: "{inside}/metadata.tsv"')
    if embedding.images is not None:
        height, width = embedding.images.shape[-2:]
        files["sprite.png"] = png(Image(grid(embedding.images)))
        settings.append(f'  sprite {{ image_path: "{inside}/sprite.png"')
        settings.append(f"    single_image_dim: {width} single_image_dim: {height} }}")
    folder = make_directory_inside(directory, *names)
    for each, content in files.items():
        with replacing(folder / each) as file:
            file.write(content)
    _add("embeddings {\n" + "\n".join(settings) + "\n}\n", directory / CONFIG)


def _add(entry: str, config: Path) -> None:
    known = ""
    with suppress(FileNotFoundError), regular(config) as file:
        known = file.read(LARGEST_TEXT).decode()
    if entry not in known:
        with replacing(config) as file:
            file.write((known + entry).encode())


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
