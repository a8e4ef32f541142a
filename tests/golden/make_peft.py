"""Makes peft_gpt2/ and peft_neox/: a small GPT-2 and a small GPT-NeoX of Hugging Face's transformers with adapters of
PEFT, fp32, on the CPU. adapter_model.safetensors and adapter_config.json are PEFT's own; golden.safetensors has the
weights of the model under this repository's names, one batch, logits, loss and the gradients of the adapters.
Usage: python make_peft.py            (needs torch, transformers and peft; the tests only need the files)
       python make_peft.py FOLDER NAME  loads adapters that gradus wrote for the model NAME (gpt2 or neox), by
                                      PeftModel.from_pretrained, and compares the logits"""
import os
import sys

import peft
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

B, T, C, H, L, V = 2, 10, 16, 2, 2, 37
torch.set_num_threads(1)
here = os.path.dirname(os.path.abspath(__file__))
NEOX = {"embed_in": "wte", "final_layer_norm": "ln_f", "embed_out": "lm_head", "lm_head": "lm_head", "input_layernorm": "ln_1",
        "attention.query_key_value": "attn.c_attn", "attention.dense": "attn.c_proj", "post_attention_layernorm": "ln_2",
        "mlp.dense_h_to_4h": "mlp.c_fc", "mlp.dense_4h_to_h": "mlp.c_proj"}


def model_of(name):
    torch.manual_seed(0)
    if name == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=V, n_embd=C, n_layer=L, n_head=H, n_positions=T, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    else:
        model = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
            vocab_size=V, hidden_size=C, num_hidden_layers=L, num_attention_heads=H, intermediate_size=4 * C,
            max_position_embeddings=T, rotary_pct=0.5, tie_word_embeddings=False))
    for p in model.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return model.eval()


def by_part(x):  # rows q, k, v of one head after the other -> all q, all k, all v
    return x.unflatten(0, (H, 3, C // H)).transpose(0, 1).flatten(0, 2)


def ours(family, name, x):
    """The name and the value of a weight in gradus."""
    stem, kind = name.rsplit(".", 1)
    if family == "gpt2":
        stem = stem.removeprefix("transformer.")
        linear = stem.endswith(("c_attn", "c_proj", "c_fc"))
        return f"{stem}.{kind}", x.T if linear and kind == "weight" else x  # Conv1D is (in, out)
    parts = stem.removeprefix("gpt_neox.").split(".")
    stem = f"h.{parts[1]}." + NEOX[".".join(parts[2:])] if parts[0] == "layers" else NEOX[parts[0]]
    return f"{stem}.{kind}", by_part(x) if stem.endswith("c_attn") else x


def make(name, targets):
    folder = os.path.join(here, "peft_" + name)
    base = model_of(name)
    out = dict(ours(name, n, p.detach().clone()) for n, p in base.named_parameters())
    out = {"weight." + n: x for n, x in out.items()}
    model = peft.get_peft_model(base, peft.LoraConfig(
        r=3, lora_alpha=5, lora_dropout=0.1, target_modules=targets, task_type="CAUSAL_LM",
        fan_in_fan_out=name == "gpt2")).eval()
    for n, p in model.named_parameters():
        if p.requires_grad:
            p.data += 0.2 * torch.randn_like(p)  # B, too, is no longer 0
    ids, targets = torch.randint(0, V, (B, T)), torch.randint(0, V, (B, T))
    logits = model(input_ids=ids).logits
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    for n, p in model.named_parameters():
        if p.requires_grad:
            out["grad." + n.replace(".default", "")] = p.grad
    out |= {"ids": ids.int(), "targets": targets.int(), "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    model.save_pretrained(folder)
    for left in ("README.md",):
        if os.path.exists(os.path.join(folder, left)):
            os.remove(os.path.join(folder, left))
    made_by = f"make_peft.py, torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"
    save_file({n: x.contiguous() for n, x in out.items()}, os.path.join(folder, "golden.safetensors"), {"made_by": made_by})
    print(folder, "loss", loss.item())


def compare(folder, name):
    model = peft.PeftModel.from_pretrained(model_of(name), folder).eval()
    golden = load_file(os.path.join(here, "peft_" + name, "golden.safetensors"))
    logits = model(input_ids=golden["ids"].long()).logits
    print(name, "largest difference of a logit:", (logits - golden["logits"]).abs().max().item())


if len(sys.argv) == 3:
    compare(*sys.argv[1:])
else:
    make("gpt2", ["c_attn", "mlp.c_proj"])
    make("neox", ["query_key_value", "dense_4h_to_h"])
