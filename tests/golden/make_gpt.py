"""Makes gpt.safetensors: a 2-layer GPT in PyTorch, fp32, on the CPU; its weights, one batch, the loss and every
gradient of the first step, and the losses of ten AdamW steps (gradients clipped to norm 1, decay on matrices only).
Usage: python make_gpt.py   (needs torch; the tests only need the file it writes)"""
import json
import struct

import torch
import torch.nn.functional as F

B, T, C, H, L, V = 4, 16, 32, 4, 2, 65
torch.manual_seed(0)
torch.set_num_threads(1)


def parameters():
    p = {"wte.weight": torch.randn(V, C) * 0.1, "wpe.weight": torch.randn(T, C) * 0.1}
    for l in range(L):
        for name, shape in {"ln_1.weight": (C,), "ln_1.bias": (C,), "attn.c_attn.weight": (3 * C, C),
                            "attn.c_attn.bias": (3 * C,), "attn.c_proj.weight": (C, C), "attn.c_proj.bias": (C,),
                            "ln_2.weight": (C,), "ln_2.bias": (C,), "mlp.c_fc.weight": (4 * C, C),
                            "mlp.c_fc.bias": (4 * C,), "mlp.c_proj.weight": (C, 4 * C), "mlp.c_proj.bias": (C,)}.items():
            p[f"h.{l}.{name}"] = torch.randn(shape) * 0.1 + (1.0 if name in ("ln_1.weight", "ln_2.weight") else 0.0)
    p["ln_f.weight"] = torch.randn(C) * 0.1 + 1
    p["ln_f.bias"] = torch.randn(C) * 0.1
    return {name: t.requires_grad_() for name, t in p.items()}


def loss_of(p, ids, targets):
    x = p["wte.weight"][ids] + p["wpe.weight"]
    for l in range(L):
        w = lambda name: p[f"h.{l}.{name}"]
        n = F.layer_norm(x, (C,), w("ln_1.weight"), w("ln_1.bias"))
        q, k, v = (t.view(B, T, H, C // H).transpose(1, 2)
                   for t in F.linear(n, w("attn.c_attn.weight"), w("attn.c_attn.bias")).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + F.linear(y, w("attn.c_proj.weight"), w("attn.c_proj.bias"))
        n = F.layer_norm(x, (C,), w("ln_2.weight"), w("ln_2.bias"))
        m = F.gelu(F.linear(n, w("mlp.c_fc.weight"), w("mlp.c_fc.bias")), approximate="tanh")
        x = x + F.linear(m, w("mlp.c_proj.weight"), w("mlp.c_proj.bias"))
    x = F.layer_norm(x, (C,), p["ln_f.weight"], p["ln_f.bias"])
    return F.cross_entropy((x @ p["wte.weight"].T).flatten(0, 1), targets.flatten())


def write_safetensors(path, tensors, metadata):
    header, offset = {"__metadata__": metadata}, 0
    for name, t in tensors.items():
        size = t.numel() * t.element_size()
        header[name] = {"dtype": {torch.float32: "F32", torch.int32: "I32"}[t.dtype], "shape": list(t.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(t.detach().contiguous().numpy().tobytes())


if __name__ == "__main__":
    p = parameters()
    ids, targets = torch.randint(0, V, (B, T)), torch.randint(0, V, (B, T))
    out = {f"weight.{name}": t.detach().clone() for name, t in p.items()}
    out |= {"ids": ids.int(), "targets": targets.int()}
    optimizer = torch.optim.AdamW([{"params": [t for t in p.values() if t.dim() >= 2], "weight_decay": 0.1},
                                   {"params": [t for t in p.values() if t.dim() < 2], "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    losses, norms = [], []
    for step in range(10):
        optimizer.zero_grad()
        loss = loss_of(p, ids, targets)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out |= {f"grad.{name}": t.grad.clone() for name, t in p.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(p.values(), 1.0).item())
        optimizer.step()
    out |= {"losses": torch.tensor(losses), "grad_norms": torch.tensor(norms)}
    out |= {f"final.{name}": t.detach().clone() for name, t in p.items() if name in ("wte.weight", "h.1.mlp.c_fc.weight")}
    write_safetensors("gpt.safetensors", out, {"made_by": f"make_gpt.py, torch {torch.__version__}"})
    print("losses", losses, "norms", norms)
