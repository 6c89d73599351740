"""nlpaug: changes of texts."""

import torch
from crossing import Augmented, exact, trained_on
from nlpaug import flow
from nlpaug.augmenter import char, word


@exact("nlpaug", "Augmentations", "DataLoader(data_that_augments, num_workers=2)")
def test_texts(folder):
    """Random changes of characters and words, in two workers."""
    augment = flow.Sequential([char.RandomCharAug("substitute"), word.RandomWordAug("swap")])
    texts = [("one run that resumes to the very last bit", i % 4) for i in range(44)]

    def features(text):
        (changed,) = augment.augment(text)
        counts = [
            sum(map(changed.count, letters))
            for letters in ["ab", "cd", "ef", "gh", "is", "or", "no", "tu"]
        ]
        return torch.tensor(counts, dtype=torch.float32)

    torch.manual_seed(0)
    data = Augmented(texts, features)
    return trained_on(torch.utils.data.DataLoader(data, 4, shuffle=True, num_workers=2))
