"""Decoder language models in PyTorch for pytorch_baseline.py, written as nanoGPT and transformers write them: one projection
for queries, keys and values of GPT-2, scaled_dot_product_attention, and the loss over all logits in forward."""

import torch
from torch import nn
from torch.nn import functional

GPT2 = {"vocabulary": 50257, "context": 1024, "mlp": 4, "tied": True}
SHAPES = {
    "gpt2-124m": {**GPT2, "layers": 12, "width": 768, "heads": 12},
    "gpt2-355m": {**GPT2, "layers": 24, "width": 1024, "heads": 16},
    "llama-1b": {"vocabulary": 128256, "layers": 16, "width": 2048, "heads": 32, "key_heads": 8, "mlp": 4, "tied": True},
    "llama-8b": {"vocabulary": 128256, "layers": 32, "width": 4096, "heads": 32, "key_heads": 8, "mlp": 3.5, "tied": False},
}


def attend(queries, keys, values):
    """Causal attention of [batch, tokens, heads, features], with groups of queries that share keys."""
    queries, keys, values = (part.transpose(1, 2) for part in (queries, keys, values))
    mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=queries.shape[1] != keys.shape[1])
    return mixed.transpose(1, 2).flatten(2)


class Gpt2Block(nn.Module):
    def __init__(self, width, heads, mlp):
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, mlp * width), nn.Linear(mlp * width, width)

    def forward(self, x, _):
        parts = self.joint(self.first_norm(x)).chunk(3, -1)
        x = x + self.out(attend(*(part.unflatten(-1, (self.heads, -1)) for part in parts)))
        return x + self.narrow(functional.gelu(self.wide(self.second_norm(x)), approximate="tanh"))


def rotate(x, rotation):
    """Rotates pairs of features that are half of a head apart, as transformers does."""
    cosine, sine = rotation
    low, high = x.float().chunk(2, -1)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], -1).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, key_heads, mlp):
        super().__init__()
        self.head = width // heads
        self.first_norm, self.second_norm = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        keys, mlp = key_heads * self.head, int(mlp * width)
        self.queries, self.keys, self.values, self.out = (
            nn.Linear(*widths, bias=False) for widths in [(width, width), (width, keys), (width, keys), (width, width)]
        )
        self.gate, self.up, self.down = (nn.Linear(*widths, bias=False) for widths in [(width, mlp), (width, mlp), (mlp, width)])

    def forward(self, x, rotation):
        y = self.first_norm(x)
        queries, keys, values = (part(y).unflatten(-1, (-1, self.head)) for part in (self.queries, self.keys, self.values))
        x = x + self.out(attend(rotate(queries, rotation), rotate(keys, rotation), values))
        y = self.second_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, vocabulary, layers, width, heads, mlp, tied, context=None, key_heads=None):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width) if context else None
        block = (lambda: Gpt2Block(width, heads, mlp)) if context else (lambda: LlamaBlock(width, heads, key_heads, mlp))
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.norm = nn.LayerNorm(width) if context else nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, 0.02)
        if not context:
            frequencies = 500000.0 ** -(torch.arange(0, width // heads, 2) / (width // heads))
            self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, tokens, targets, reduction="mean"):
        x, places = self.embedding(tokens), torch.arange(tokens.shape[1], device=tokens.device)
        rotation = None
        if self.positions:
            x = x + self.positions(places)
        else:
            angles = (places[:, None] * self.frequencies)[:, None]
            rotation = angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, rotation)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction=reduction)
