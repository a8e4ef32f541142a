"""Makes bert.safetensors and neox.safetensors: a small BERT with two labels and a small GPT-NeoX as Hugging Face's
transformers has them, fp32, on the CPU; their weights under this repository's names, one batch, the logits, the loss
and every gradient. Usage: python make_models.py   (needs torch and transformers; the tests only need the files)"""
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

B, T, C, H, L, V = 3, 12, 16, 2, 2, 37
torch.manual_seed(0)
torch.set_num_threads(1)

BERT = {"bert.embeddings.word_embeddings": "wte", "bert.embeddings.position_embeddings": "wpe",
        "bert.embeddings.token_type_embeddings": "wtt", "bert.embeddings.LayerNorm": "ln_e",
        "bert.pooler.dense": "pooler", "classifier": "classifier"}
NEOX = {"gpt_neox.embed_in": "wte", "gpt_neox.final_layer_norm": "ln_f", "embed_out": "lm_head"}
for l in range(L):
    b, n = f"bert.encoder.layer.{l}.", f"gpt_neox.layers.{l}."
    BERT |= {b + "attention.output.dense": f"h.{l}.attn.c_proj", b + "attention.output.LayerNorm": f"h.{l}.ln_1",
             b + "intermediate.dense": f"h.{l}.mlp.c_fc", b + "output.dense": f"h.{l}.mlp.c_proj",
             b + "output.LayerNorm": f"h.{l}.ln_2"}
    NEOX |= {n + "input_layernorm": f"h.{l}.ln_1", n + "attention.dense": f"h.{l}.attn.c_proj",
             n + "post_attention_layernorm": f"h.{l}.ln_2", n + "mlp.dense_h_to_4h": f"h.{l}.mlp.c_fc",
             n + "mlp.dense_4h_to_h": f"h.{l}.mlp.c_proj"}


def bert_tensors(t):
    """transformers has three matrices for query, key and value; gradus has one."""
    out = {f"{BERT[name]}.{kind}": x for name, kind, x in t if name in BERT}
    by_name = {f"{name}.{kind}": x for name, kind, x in t}
    for l in range(L):
        for kind in ("weight", "bias"):
            out[f"h.{l}.attn.c_attn.{kind}"] = torch.cat(
                [by_name.pop(f"bert.encoder.layer.{l}.attention.self.{part}.{kind}")
                 for part in ("query", "key", "value")])
    assert len(by_name) - len(BERT) == sum(f"{n}.bias" in by_name for n in BERT), "a tensor was forgotten"
    return out


def neox_tensors(t):
    """The rows of query_key_value are q, k, v of the first head, then those of the second, ...; gradus has q of all
    heads, then k, then v."""
    out = {}
    for name, kind, x in t:
        if name in NEOX:
            out[f"{NEOX[name]}.{kind}"] = x
        else:
            l = name.split(".")[2]
            assert name == f"gpt_neox.layers.{l}.attention.query_key_value", name
            out[f"h.{l}.attn.c_attn.{kind}"] = x.unflatten(0, (H, 3, C // H)).transpose(0, 1).flatten(0, 2)
    return out


def make(path, model, rename, targets, **batch):
    for name, p in model.named_parameters():  # far from the initialization, so that no term is lost
        p.data += 0.1 * torch.randn_like(p)
        if "_embeddings" in name:
            p.data *= 0.1  # so small that the epsilon of the next norm matters
    logits = model(**batch).logits
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
    loss.backward()
    split = lambda tensor_of: [(*name.rsplit(".", 1), tensor_of(p)) for name, p in model.named_parameters()]
    out = {f"weight.{name}": x for name, x in rename(split(lambda p: p.detach())).items()}
    out |= {f"grad.{name}": x for name, x in rename(split(lambda p: p.grad)).items()}
    out |= {"logits": logits.detach(), "loss": loss.detach().reshape(1), "targets": targets.int()}
    out |= {name: x.int() for name, x in batch.items()}
    made_by = f"make_models.py, torch {torch.__version__}, transformers {transformers.__version__}"
    save_file({name: x.contiguous() for name, x in out.items()}, path, {"made_by": made_by})
    print(path, "loss", loss.item())


ids = torch.randint(1, V, (B, T))  # not 0, which is BERT's padding: PyTorch skips its gradient
make("bert.safetensors",
     transformers.BertForSequenceClassification(transformers.BertConfig(
         vocab_size=V, hidden_size=C, num_hidden_layers=L, num_attention_heads=H, intermediate_size=4 * C,
         max_position_embeddings=T, num_labels=2)).eval(),
     bert_tensors, torch.randint(0, 2, (B,)), input_ids=ids, token_type_ids=torch.randint(0, 2, (B, T)))
make("neox.safetensors",
     transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
         vocab_size=V, hidden_size=C, num_hidden_layers=L, num_attention_heads=H, intermediate_size=4 * C,
         max_position_embeddings=T, rotary_pct=0.5, tie_word_embeddings=False)).eval(),
     neox_tensors, torch.randint(0, V, (B, T)), input_ids=ids)
