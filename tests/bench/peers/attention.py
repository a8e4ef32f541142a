"""How fast PyTorch's scaled_dot_product_attention is: the same measurement and JSON lines as build/bench/attention."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser(description=__doc__)
for flag in ("bf16", "cuda"):
    parser.add_argument(f"--{flag}", action="store_true")
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--lengths", default="512,1024,8192")
args = parser.parse_args()
dtype = torch.bfloat16 if args.bf16 else torch.float32
like = dict(dtype=dtype, device="cuda" if args.cuda else "cpu")
D = 64


def now():
    if args.cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


for T in map(int, args.lengths.split(",")):
    q, k, v = (torch.randn(1, args.heads, T, D, **like).requires_grad_() for _ in range(3))
    dy = torch.randn(1, args.heads, T, D, **like)
    forward, backward = [], []
    for i in range((20 if T < 1000 else 9 if T < 3000 else 3) + 1):
        q.grad = k.grad = v.grad = None
        start = now()
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        between = now()
        y.backward(dy)
        end = now()
        if i > 0:
            forward.append(between - start)
            backward.append(end - between)
    flops = 1e-9 * args.heads * T * (T + 1) / 2 * D
    for name, gflops in ("forward", 4 * flops / statistics.median(forward)), ("backward", 10 * flops / statistics.median(backward)):
        print(json.dumps(dict(model=f"attention {'bf16' if args.bf16 else 'fp32'} T {T} {name}",
                              device=like["device"], program="pytorch-eager", gflops=gflops),
                         separators=(",", ":")), flush=True)
