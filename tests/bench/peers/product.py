"""How fast PyTorch multiplies two square matrices: a JSON line with the GFLOP/s of the best of ten
rounds, as tests/bench/bench.h measures the peak of ours."""
import argparse
import json
import time

import torch

parser = argparse.ArgumentParser(description=__doc__)
for flag in ("bf16", "cuda"):
    parser.add_argument(f"--{flag}", action="store_true")
args = parser.parse_args()
size = 1024
like = dict(dtype=torch.bfloat16 if args.bf16 else torch.float32, device="cuda" if args.cuda else "cpu")
a, b = (torch.randn(size, size, **like) for _ in range(2))
best = float("inf")
for _ in range(10):
    start = time.perf_counter()
    for _ in range(10):
        c = a @ b
    c[0, 0].item()  # waits for the GPU
    best = min(best, time.perf_counter() - start)
print(json.dumps(dict(bench="product", torch=torch.__version__, gemm_peak_gflops=10 * 2 * size**3 / best / 1e9)))
