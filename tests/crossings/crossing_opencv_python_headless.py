"""opencv: pictures that are changed by functions with a generator of their own."""

import cv2
import numpy as np
import torch
from crossing import Augmented, exact, flat_network, pictures, trained_on


@exact(
    "opencv-python-headless",
    "Augmentations",
    "cv2.setRNGSeed(int(torch.randint(2**31, ()))) before each sample",
)
def test_seeded_by_sample(folder):
    """Noise of cv2.randn, seeded for each sample by torch's generator."""
    cv2.setNumThreads(0)

    def augment(picture):
        cv2.setRNGSeed(int(torch.randint(2**31, ())))
        noise = np.zeros(picture.shape, "float32")
        cv2.randn(noise, 0, 20)
        noisy = cv2.GaussianBlur(picture + noise, (3, 3), 0)
        return torch.from_numpy(noisy).permute(2, 0, 1) / 255

    torch.manual_seed(0)
    data = Augmented(pictures(), augment)
    return trained_on(torch.utils.data.DataLoader(data, 4, shuffle=True), flat_network)
