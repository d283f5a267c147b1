#!/usr/bin/env python3
"""Computes the reference values in decoders.json for the tests of ringmark-worker.

Regenerate them with torch 2.11.0 (any machine, some seconds):

    .libtorch/venv/bin/python tests/golden/decoders.py > tests/golden/decoders.json

GPT-2 and Llama are written here after the published architectures, without a library of models: nanoGPT's model.py,
and Hugging Face's modeling_gpt2.py, modeling_llama.py and modeling_rope_utils.py. Only tensor operations are used:
attention has explicit scores and a mask, and normalizations are formulas. For each network:

`parameters`  name, shape, standard deviation and mean of each, in order
`loss`        mean cross entropy of one batch, in fp64
`gradients`   norm and projection of each gradient; a projection is the sum of g(i) cos(i), divided by the square root
              of the number of elements, with i from 0 in contiguous order
`updates`     the same of each parameter's change by one step of AdamW with the constants of `adamw`, whose decay applies
              to matrices alone, after clip_grad_norm_ to `clip_norm`
`next_loss`   the loss after that step

Parameters and tokens are drawn after manual_seed(8): each parameter in order, randn(shape) x deviation + mean in fp32,
then the tokens, randint(vocabulary, (2, TOKENS + 1)). Targets are the tokens shifted by one.
"""

import json
import math
import sys

import torch
import torch.nn.functional as F

TOKENS = 33
LLAMA = {
    **{"vocabulary": 256, "layers": 2, "width": 64, "heads": 4, "key_value_heads": 2, "mlp": 192},
    **{"theta": 500000.0, "factor": 8.0, "low": 1.0, "high": 4.0, "original": 8192},
}
# The bias of keys has no gradient except for rounding, which a smaller eps would amplify to an update.
ADAMW = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-4, "weight_decay": 0.1}
# Less than the norm of all gradients.
CLIP_NORM = 1.0
SHAPES = {
    "gpt2-tiny": {"vocabulary": 256, "context": 256, "layers": 2, "width": 64, "heads": 4, "mlp": 256},
    "llama-tiny": {**LLAMA, "is_tied": False},
    # The head of llama-1b is tied.
    "llama-tiny-tied": {**LLAMA, "is_tied": True},
    # For comparisons by hand.
    "gpt2-124m": {"vocabulary": 50257, "context": 1024, "layers": 12, "width": 768, "heads": 12, "mlp": 3072},
}


# --- GPT-2 ------------------------------------------------------------------------------------------------------------


def gpt2_parameters(shape):
    width, mlp = shape["width"], shape["mlp"]
    yield "transformer.wte.weight", [shape["vocabulary"], width]
    yield "transformer.wpe.weight", [shape["context"], width]
    for layer in range(shape["layers"]):
        name = f"transformer.h.{layer}."
        yield from ((name + "ln_1.weight", [width]), (name + "ln_1.bias", [width]))
        yield from ((name + "attn.c_attn.weight", [width, 3 * width]), (name + "attn.c_attn.bias", [3 * width]))
        yield from ((name + "attn.c_proj.weight", [width, width]), (name + "attn.c_proj.bias", [width]))
        yield from ((name + "ln_2.weight", [width]), (name + "ln_2.bias", [width]))
        yield from ((name + "mlp.c_fc.weight", [width, mlp]), (name + "mlp.c_fc.bias", [mlp]))
        yield from ((name + "mlp.c_proj.weight", [mlp, width]), (name + "mlp.c_proj.bias", [width]))
    yield from (("transformer.ln_f.weight", [width]), ("transformer.ln_f.bias", [width]))


def gpt2(shape, weights, tokens):
    """Returns the scores of the next token."""

    def norm(x, name):
        deviations = x - x.mean(-1, keepdim=True)
        scale = (deviations.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return deviations * scale * weights[name + ".weight"] + weights[name + ".bias"]

    def convolution_1d(x, name):
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    table = weights["transformer.wte.weight"]
    x = table[tokens] + weights["transformer.wpe.weight"][: tokens.shape[1]]
    for layer in range(shape["layers"]):
        name = f"transformer.h.{layer}."
        projected = convolution_1d(norm(x, name + "ln_1"), name + "attn.c_attn")
        queries, keys, values = (heads(part, shape["heads"]) for part in projected.chunk(3, dim=-1))
        x = x + convolution_1d(attention(queries, keys, values), name + "attn.c_proj")
        hidden = convolution_1d(norm(x, name + "ln_2"), name + "mlp.c_fc")
        hidden = 0.5 * hidden * (1 + torch.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
        x = x + convolution_1d(hidden, name + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ table.T


def heads(x, count):
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, count, width // count).transpose(1, 2)


def attention(queries, keys, values):
    tokens = queries.shape[-2]
    scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    attended = scores.masked_fill(later, -math.inf).softmax(-1) @ values
    return attended.transpose(1, 2).flatten(2)


# --- Llama ------------------------------------------------------------------------------------------------------------


def llama_parameters(shape):
    width, mlp, vocabulary = shape["width"], shape["mlp"], shape["vocabulary"]
    keys = width // shape["heads"] * shape["key_value_heads"]
    yield "model.embed_tokens.weight", [vocabulary, width]
    for layer in range(shape["layers"]):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", [width]
        yield name + "self_attn.q_proj.weight", [width, width]
        yield name + "self_attn.k_proj.weight", [keys, width]
        yield name + "self_attn.v_proj.weight", [keys, width]
        yield name + "self_attn.o_proj.weight", [width, width]
        yield name + "post_attention_layernorm.weight", [width]
        yield name + "mlp.gate_proj.weight", [mlp, width]
        yield name + "mlp.up_proj.weight", [mlp, width]
        yield name + "mlp.down_proj.weight", [width, mlp]
    yield "model.norm.weight", [width]
    if not shape["is_tied"]:
        yield "lm_head.weight", [vocabulary, width]


def llama(shape, weights, tokens):
    """Returns the scores of the next token."""

    def norm(x, name):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weights[name + ".weight"]

    def linear(x, name):
        return x @ weights[name + ".weight"].T

    x = weights["model.embed_tokens.weight"][tokens]
    angles = torch.arange(tokens.shape[1], dtype=x.dtype)[:, None] * frequencies(shape, x.dtype)[None, :]
    angles = torch.cat((angles, angles), dim=-1)
    shared = shape["heads"] // shape["key_value_heads"]
    for layer in range(shape["layers"]):
        name = f"model.layers.{layer}."
        normalized = norm(x, name + "input_layernorm")
        queries = rotary(heads(linear(normalized, name + "self_attn.q_proj"), shape["heads"]), angles)
        keys = rotary(heads(linear(normalized, name + "self_attn.k_proj"), shape["key_value_heads"]), angles)
        values = heads(linear(normalized, name + "self_attn.v_proj"), shape["key_value_heads"])
        keys, values = (part.repeat_interleave(shared, dim=1) for part in (keys, values))
        x = x + linear(attention(queries, keys, values), name + "self_attn.o_proj")
        normalized = norm(x, name + "post_attention_layernorm")
        gate = linear(normalized, name + "mlp.gate_proj")
        hidden = gate * torch.sigmoid(gate) * linear(normalized, name + "mlp.up_proj")
        x = x + linear(hidden, name + "mlp.down_proj")
    return linear(norm(x, "model.norm"), "model.embed_tokens" if shape["is_tied"] else "lm_head")


def rotary(x, angles):
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


def frequencies(shape, dtype):
    """Returns the angles per position, as in _compute_llama3_parameters."""
    size = shape["width"] // shape["heads"]
    plain = 1.0 / shape["theta"] ** (torch.arange(0, size, 2, dtype=dtype) / size)
    wavelengths = 2 * math.pi / plain
    smooth = (shape["original"] / wavelengths - shape["low"]) / (shape["high"] - shape["low"])
    between = (1 - smooth) * plain / shape["factor"] + smooth * plain
    result = torch.where(wavelengths > shape["original"] / shape["low"], plain / shape["factor"], between)
    return torch.where(wavelengths < shape["original"] / shape["high"], plain, result)


# --- one step ---------------------------------------------------------------------------------------------------------


def family(keyword):
    return (gpt2_parameters, gpt2) if keyword.startswith("gpt2") else (llama_parameters, llama)


def rules(keyword):
    """Returns the name, shape, standard deviation and mean of each parameter."""
    for name, shape in family(keyword)[0](SHAPES[keyword]):
        if len(shape) == 1:
            is_scale = name.endswith("weight")
            yield name, shape, 0.1, 1.0 if is_scale else 0.0
        elif "wte" in name or "wpe" in name or "embed" in name:
            yield name, shape, 0.3, 0.0
        else:
            yield name, shape, 0.12, 0.0


def loss(keyword, weights, tokens):
    scores = family(keyword)[1](SHAPES[keyword], weights, tokens[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


def step(keyword, dtype):
    torch.manual_seed(8)
    weights = {name: torch.randn(shape) * deviation + mean for name, shape, deviation, mean in rules(keyword)}
    tokens = torch.randint(SHAPES[keyword]["vocabulary"], (2, TOKENS + 1))
    weights = {name: value.to(dtype).requires_grad_() for name, value in weights.items()}
    before = {name: value.detach().clone() for name, value in weights.items()}
    matrices = [value for value in weights.values() if value.dim() >= 2]
    vectors = [value for value in weights.values() if value.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **ADAMW)
    first = loss(keyword, weights, tokens)
    first.backward()
    gradients = [norm_and_projection(value.grad) for value in weights.values()]
    torch.nn.utils.clip_grad_norm_(weights.values(), CLIP_NORM)
    optimizer.step()
    return {
        "loss": first.item(),
        "gradients": gradients,
        "updates": [norm_and_projection(weights[name].detach() - before[name]) for name in weights],
        "next_loss": loss(keyword, weights, tokens).item(),
    }


def norm_and_projection(values):
    values = values.flatten().double()
    wave = torch.arange(len(values), dtype=torch.float64).cos()
    return [values.norm().item(), torch.dot(values, wave).item() / math.sqrt(len(values))]


def main():
    networks = {}
    for keyword in ("gpt2-tiny", "llama-tiny", "llama-tiny-tied"):
        networks[keyword] = {"parameters": list(map(list, rules(keyword))), **step(keyword, torch.float64)}
        single = step(keyword, torch.float32)
        pairs = zip(networks[keyword]["gradients"], single["gradients"])
        far = max(abs(one[0] - exact[0]) / exact[0] for exact, one in pairs)
        print(f"{keyword}: fp32 norms of gradients deviate by up to {far:.1e}", file=sys.stderr)
    made_by = f"decoders.py, torch {torch.__version__}"
    text = json.dumps({"made_by": made_by, "tokens": TOKENS, "adamw": ADAMW, "clip_norm": CLIP_NORM, "networks": networks})
    for start in ('["', '"gradients"', '"updates"'):
        text = text.replace(f" {start}", f"\n{start}")
    print(text)


if __name__ == "__main__":
    main()
