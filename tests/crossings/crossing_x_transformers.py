"""x-transformers: transformers with many options."""

import torch
from crossing import Trial, adam, exact

from camshaft import supervised
from camshaft.handlers import EMA, ClipGradNorm


@exact("x-transformers", "Models", "supervised(model, optimizer, lambda loss, _: loss)")
def test_autoregressive(folder):
    """AutoregressiveWrapper with rotary positions, dropped layers and masked tokens."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    torch.manual_seed(0)
    layers = Decoder(
        dim=16, depth=2, heads=2, attn_dim_head=8, rotary_pos_emb=True, layer_dropout=0.1,
        attn_dropout=0.1, attn_qk_norm=True,
    )  # fmt: skip
    inner = TransformerWrapper(num_tokens=50, max_seq_len=12, attn_layers=layers)
    model = AutoregressiveWrapper(inner, mask_prob=0.15)
    texts = torch.randint(0, 50, (44, 12))
    engine = supervised(model, adam(model), lambda loss, _: loss)
    engine.add(ClipGradNorm(1.0), EMA(0.9))
    return Trial(engine, torch.utils.data.DataLoader(texts, 4, shuffle=True))
