"""tokenizers: BPE with dropout, which draws in a generator that nobody can seed."""

from crossing import told, trained_on
from crossing_sentencepiece import Pieces, texts
from torch.utils.data import DataLoader


@told(
    "tokenizers",
    "Data",
    "Tokenize without dropout, or draw pieces by sentencepiece's nbest_encode",
    match="the same indices and other values",
)
def test_dropout(folder):
    """BPE with dropout, in two workers: what it draws is in no checkpoint."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(dropout=0.3))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=100, show_progress=False)
    tokenizer.train_from_iterator(texts(400), trainer)
    samples = Pieces(lambda text: tokenizer.encode(text).ids)
    return trained_on(DataLoader(samples, 4, shuffle=True, num_workers=2))
