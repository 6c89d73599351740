"""Embeddings, read as TensorBoard's projector reads them."""

import numpy
import PIL.Image
import torch
from google.protobuf import text_format
from tensorboard.plugins.projector import projector_config_pb2

from camshaft.handlers.loggers import Embedding


def test_an_embedding_can_be_projected(shown, tmp_path):
    points = Embedding(torch.eye(3, 5), ["a", "b b", "c\td"], torch.rand(3, 1, 4, 4))
    shown({"digits/last": points})
    config = projector_config_pb2.ProjectorConfig()
    text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), config)
    [found] = config.embeddings
    assert found.tensor_name == "digits/last:1"
    vectors = numpy.loadtxt(tmp_path / found.tensor_path, delimiter="\t")
    assert numpy.array_equal(vectors, numpy.eye(3, 5))
    assert (tmp_path / found.metadata_path).read_text() == "a\nb b\nc d\n"
    assert list(found.sprite.single_image_dim) == [4, 4]
    with PIL.Image.open(tmp_path / found.sprite.image_path) as sprite:
        assert sprite.size == (8, 8)


def test_an_embedding_that_is_written_again_is_listed_once(shown, tmp_path):
    for _ in range(2):
        shown({"points": Embedding(torch.eye(2))})
    assert (tmp_path / "projector_config.pbtxt").read_text().count("embeddings {") == 1
