"""sentencepiece: pieces of texts, drawn anew in each epoch."""

import random

import torch
from crossing import exact, told, trained_on
from torch.utils.data import DataLoader, Dataset


def texts(n):
    draw = random.Random(3)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(60)]
    return [" ".join(draw.choices(words, k=6)) for _ in range(n)]


class Pieces(Dataset):
    """How often each of eight groups of pieces is in a text, as `encode` cuts it."""

    def __init__(self, encode):
        self.texts, self.encode = texts(44), encode

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        pieces = torch.tensor(self.encode(self.texts[index]))
        return torch.bincount(pieces % 8, minlength=8).float(), index % 4


def trained():
    import io

    import sentencepiece

    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts(400)), model_writer=file, vocab_size=60, minloglevel=2
    )
    return sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())


@told(
    "sentencepiece",
    "Data",
    "pieces = model.nbest_encode(text, nbest_size=8); pieces[int(torch.randint(8, ()))]",
    match="the same indices and other values",
)
def test_sampling(folder):
    """Pieces that encode(enable_sampling=True) draws, after a seed for each sample."""
    import sentencepiece

    model = trained()

    def encode(text):
        sentencepiece.set_random_generator_seed(int(torch.randint(2**31, ())))
        return model.encode(text, enable_sampling=True, alpha=0.1, nbest_size=-1)

    return trained_on(DataLoader(Pieces(encode), 4, shuffle=True))


@exact(
    "sentencepiece",
    "Data",
    "pieces = model.nbest_encode(text, nbest_size=8); pieces[int(torch.randint(8, ()))]",
)
def test_nbest(folder):
    """One of the eight best ways to cut a text, drawn by torch's generator, in two workers."""
    model = trained()

    def encode(text):
        ways = model.nbest_encode(text, nbest_size=8)
        return ways[int(torch.randint(len(ways), ()))]

    return trained_on(DataLoader(Pieces(encode), 4, shuffle=True, num_workers=2))
