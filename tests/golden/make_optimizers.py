"""Makes optimizers.safetensors: ten updates of four parameters by each optimizer of PyTorch, and by Hugging Face's
Adafactor as its trainer runs it, with random gradients; and the losses of ten steps of gpt.safetensors' model with
each. Usage: python make_optimizers.py   (needs torch, transformers; the tests only need the file it writes)"""
import safetensors.torch
import torch
import transformers

from make_gpt import loss_of, write_safetensors

torch.manual_seed(6)
torch.set_num_threads(1)

SHAPES = {"h.0.wide": (6, 11), "h.0.tall": (13, 5), "h.0.bias": (7,), "wte": (9, 4)}
RATES = {"sgd": 0.03, "momentum": 0.02, "nesterov": 0.02, "adamw": 1e-3, "adafactor": 1e-2, "adafactor_given": 1e-3,
         "muon": 1e-3}
DECAY = 0.1


def optimizers_of(name, params):
    """As in gradus: no weight decay for vectors; Muon updates the matrices of blocks, AdamW the others."""
    lr = RATES[name]
    groups = [{"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": DECAY},
              {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0}]
    if name == "sgd":
        return [torch.optim.SGD(groups, lr=lr)]
    if name in ("momentum", "nesterov"):
        return [torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=name == "nesterov")]
    if name == "adamw":
        return [torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))]
    if name == "adafactor":  # its default eps would bound the second moment from below by 1e-7: not the paper's
        return [torch.optim.Adafactor(groups, lr=lr, eps=(1e-15, 1e-3))]
    if name == "adafactor_given":
        return [transformers.Adafactor(groups, lr=lr, scale_parameter=False, relative_step=False)]
    muon = [n for n, p in params.items() if n.startswith("h.") and p.dim() == 2]
    rest = {n: p for n, p in params.items() if n not in muon}
    return [torch.optim.Muon([params[n] for n in muon], lr=lr, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([{"params": [p for p in rest.values() if p.dim() >= 2], "weight_decay": DECAY},
                               {"params": [p for p in rest.values() if p.dim() < 2], "weight_decay": 0.0}], lr=lr)]


out = {}
first = {n: torch.randn(s) * 0.5 for n, s in SHAPES.items()}
gradients = [{n: torch.randn(s) * 0.1 * (1 + step % 3) for n, s in SHAPES.items()} for step in range(10)]
out |= {f"first.{n}": p for n, p in first.items()}
out |= {f"grad.{step}.{n}": g for step, of_step in enumerate(gradients) for n, g in of_step.items()}
for name in RATES:
    params = {n: p.clone().requires_grad_() for n, p in first.items()}
    optimizers = optimizers_of(name, params)
    for of_step in gradients:
        for n, p in params.items():
            p.grad = of_step[n].clone()
        for o in optimizers:
            o.step()
    out |= {f"{name}.{n}": p.detach() for n, p in params.items()}

gpt = safetensors.torch.load_file("gpt.safetensors")
for name in RATES:
    params = {n.removeprefix("weight."): p.clone().requires_grad_() for n, p in gpt.items() if n.startswith("weight.")}
    optimizers = optimizers_of(name, params)
    losses = []
    for _ in range(10):
        loss = loss_of(params, gpt["ids"].long(), gpt["targets"].long())
        losses.append(loss.item())
        for p in params.values():
            p.grad = None
        loss.backward()
        for o in optimizers:
            o.step()
    out[f"losses.{name}"] = torch.tensor(losses)
    print(name, losses)
write_safetensors("optimizers.safetensors", out,
                  {"made_by": f"make_optimizers.py, torch {torch.__version__}, transformers {transformers.__version__}"})
