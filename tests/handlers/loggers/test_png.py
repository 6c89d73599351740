"""Pictures as PNG, read back by Pillow."""

import io
import math

import numpy
import PIL.Image
import pytest
import torch

from camshaft.handlers.common import Image
from camshaft.handlers.loggers.png import png


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_bytes_come_back_as_they_were(channels, mode):
    pixels = torch.randint(0, 256, (channels, 5, 3), dtype=torch.uint8)
    with PIL.Image.open(io.BytesIO(png(Image(pixels)))) as back:
        assert back.mode == mode
        found = torch.tensor(numpy.array(back)).reshape(5, 3, channels)
    assert torch.equal(found, pixels.permute(1, 2, 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floats_go_from_black_at_0_to_white_at_1_and_no_further(dtype):
    values = torch.tensor([[-1.0, 0.0, 0.5, 1.0, 2.0, math.nan, math.inf]], dtype=dtype)
    with PIL.Image.open(io.BytesIO(png(Image(values)))) as back:
        assert numpy.array(back).tolist() == [[0, 0, 128, 255, 255, 0, 255]]
