"""Makes llama.safetensors, llama3.safetensors and mixtral.safetensors: a small Llama; a smaller one whose query heads
share one key-value head, with the rotary base of Llama 3; and a small Mixtral, as Hugging Face's transformers has them,
fp32, on the CPU. Each file has the weights under this repository's names, one batch, the logits, the loss and every
gradient. Usage: python make_llama.py   (needs torch and transformers; the tests only need the files)"""
import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

B, T, D, L = 2, 13, 8, 2
torch.set_num_threads(1)

WHOLE_MODEL = {"model.embed_tokens": "wte", "model.norm": "ln_f", "lm_head": "lm_head"}
OF_A_LAYER = {"input_layernorm": "ln_1", "self_attn.o_proj": "attn.c_proj", "post_attention_layernorm": "ln_2",
              "mlp.down_proj": "mlp.c_proj", "mlp.gate": "mlp.router", "mlp.experts.gate_up_proj": "mlp.experts.c_fc",
              "mlp.experts.down_proj": "mlp.experts.c_proj"}
JOINED = {"attn.c_attn": [f"self_attn.{x}_proj" for x in "qkv"], "mlp.c_fc": ["mlp.gate_proj", "mlp.up_proj"]}


def our_tensors(model, tensor_of):
    """Joins the matrices of query, key and value, and those of gate and up in an MLP without experts."""
    theirs = {name.removesuffix(".weight"): tensor_of(p) for name, p in model.named_parameters()}
    out = {f"{ours}.weight": theirs.pop(name) for name, ours in WHOLE_MODEL.items()}
    for l in range(L):
        layer = f"model.layers.{l}."
        for ours, parts in JOINED.items():
            if layer + parts[0] in theirs:
                out[f"h.{l}.{ours}.weight"] = torch.cat([theirs.pop(layer + part) for part in parts])
        for name, ours in OF_A_LAYER.items():
            if layer + name in theirs:
                out[f"h.{l}.{ours}.weight"] = theirs.pop(layer + name)
    assert not theirs, f"forgotten: {list(theirs)}"
    return out


def rms_norm(x, gain, eps=1e-5):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def rotated(x, base):
    """x (B,T,heads,D): rotates the pairs of elements i and i + D/2."""
    angle = np.arange(T)[:, None, None] * base ** (-np.arange(D // 2) / (D // 2))
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(qkv, KV, base):
    H = qkv.shape[-1] // D - 2 * KV
    q, k, v = np.split(qkv.reshape(B, T, -1, D), [H, H + KV], 2)
    q, k, v = rotated(q, base), rotated(k, base).repeat(H // KV, 2), v.repeat(H // KV, 2)
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(D)
    scores = np.where(np.tril(np.ones((T, T), bool)), scores, -np.inf)
    return np.einsum("bhij,bjhd->bihd", softmax(scores), v).reshape(B, T, H * D)


def gated_mlp(x, c_fc, c_proj):
    gate, up = np.split(x @ c_fc.T, 2, -1)
    return (gate / (1 + np.exp(-gate)) * up) @ c_proj.T


def mixture(x, w, chosen):
    logits = x @ w("mlp.router").T
    order = np.sort(logits, -1)
    assert (order[..., -chosen] - order[..., -chosen - 1]).min() > 1e-3, "rounding could choose another expert"
    weights = softmax(np.where(logits >= order[..., -chosen, None], logits, -np.inf))
    assert (weights > 0).any((0, 1)).all(), "an expert was never chosen"
    c_fc, c_proj = w("mlp.experts.c_fc"), w("mlp.experts.c_proj")
    return sum(weights[..., e, None] * gated_mlp(x, c_fc[e], c_proj[e]) for e in range(len(c_fc)))


def expected_logits(tensors, KV, base, chosen):
    """The model in gradus's layout, in fp64 and without torch: the check of the conversion."""
    weight = lambda name: tensors[f"weight.{name}.weight"].numpy().astype(np.float64)
    x = weight("wte")[tensors["ids"].numpy()]
    for l in range(L):
        w = lambda name: weight(f"h.{l}.{name}")
        x = x + attention(rms_norm(x, w("ln_1")) @ w("attn.c_attn").T, KV, base) @ w("attn.c_proj").T
        n = rms_norm(x, w("ln_2"))
        x = x + (mixture(n, w, chosen) if chosen else gated_mlp(n, w("mlp.c_fc"), w("mlp.c_proj")))
    return rms_norm(x, weight("ln_f")) @ weight("lm_head").T


def balance_tensors(model, router_logits):
    """The balance loss without its factor, averaged over the sequences of each layer and summed over layers; and its
    gradients for the routers and the embedding. In transformers the shares of choices sum to the number of experts
    per token, in gradus to 1."""
    c = model.config
    of_one = lambda logits: load_balancing_loss_func((logits,), c.num_local_experts, c.num_experts_per_tok)
    loss = sum(of_one(logits) for layer in router_logits for logits in layer.unflatten(0, (B, T)))
    loss = loss / (B * c.num_experts_per_tok)
    kept = {"wte.weight": model.model.embed_tokens.weight}
    kept |= {f"h.{l}.mlp.router.weight": model.model.layers[l].mlp.gate.weight for l in range(L)}
    gradients = torch.autograd.grad(loss, list(kept.values()), retain_graph=True)
    out = {f"balance_grad.{name}": g for name, g in zip(kept, gradients)}
    return out | {"balance_loss": loss.detach().reshape(1)}


def make(path, seed, model_type, config_type, base, **sizes):
    torch.manual_seed(seed)
    config = config_type(**sizes, num_hidden_layers=L, max_position_embeddings=24, rms_norm_eps=1e-5,
                         rope_parameters={"rope_type": "default", "rope_theta": base}, tie_word_embeddings=False)
    config._attn_implementation = config._experts_implementation = "eager"
    model = model_type(config).eval()
    for name, p in model.named_parameters():  # far from the initialization, so that no term is lost
        p.data = 1 + 0.3 * torch.randn_like(p) if "norm" in name else 0.2 * torch.randn_like(p)
    ids, targets = (torch.randint(0, config.vocab_size, (B, T)) for _ in range(2))
    output = model(ids)
    loss = F.cross_entropy(output.logits.flatten(0, 1), targets.flatten())  # targets[t] belongs to position t
    out = {"ids": ids.int(), "targets": targets.int()}
    mixtral = model_type == transformers.MixtralForCausalLM
    if mixtral:
        out |= balance_tensors(model, output.router_logits)
    loss.backward()
    out |= {"logits": output.logits.detach(), "loss": loss.detach().reshape(1)}
    out |= {f"weight.{name}": x for name, x in our_tensors(model, lambda p: p.detach()).items()}
    out |= {f"grad.{name}": x for name, x in our_tensors(model, lambda p: p.grad).items()}
    want = expected_logits(out, config.num_key_value_heads, base, config.num_experts_per_tok if mixtral else 0)
    error = np.abs(out["logits"].numpy() - want).max() / np.abs(want).max()
    assert error < 1e-5, error
    made_by = f"make_llama.py, torch {torch.__version__}, transformers {transformers.__version__}"
    save_file({name: x.contiguous() for name, x in out.items()}, path, {"made_by": made_by})
    print(path, "loss", loss.item(), "largest logit", np.abs(want).max(), "relative error of the logits", error)


make("llama.safetensors", 1, transformers.LlamaForCausalLM, transformers.LlamaConfig, 1e4, vocab_size=37,
     hidden_size=6 * D, num_attention_heads=6, num_key_value_heads=2, intermediate_size=60)
make("llama3.safetensors", 2, transformers.LlamaForCausalLM, transformers.LlamaConfig, 5e5, vocab_size=29,
     hidden_size=3 * D, num_attention_heads=3, num_key_value_heads=1, intermediate_size=40)
make("mixtral.safetensors", 5, transformers.MixtralForCausalLM, transformers.MixtralConfig, 1e6, vocab_size=37,
     hidden_size=4 * D, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24, num_local_experts=4,
     num_experts_per_tok=2, output_router_logits=True)
