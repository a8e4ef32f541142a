"""The peak rate of PyTorch's matrix products: a JSON line with the GFLOP/s of the best of three shapes, which are those
of measure_gemm_peak (src/train/machine.cpp)."""
import argparse
import json
import time

import torch

parser = argparse.ArgumentParser(description=__doc__)
for flag in ("bf16", "cuda"):
    parser.add_argument(f"--{flag}", action="store_true")
args = parser.parse_args()
like = dict(dtype=torch.bfloat16 if args.bf16 else torch.float32, device="cuda" if args.cuda else "cpu")
on_host = [(1024, 1024, 1024), (1024, 3072, 768), (512, 512, 512)]
on_gpu = [(4096, 4096, 4096), (4096, 4096, 1024), (2048, 2048, 2048)]
best = 0
for M, N, K in on_gpu if args.cuda else on_host:
    a, b = torch.randn(M, K, **like), torch.randn(N, K, **like)
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(10):
            c = a @ b.T
        c[0, 0].item()  # waits for the GPU
        best = max(best, 10 * 2 * M * N * K / (time.perf_counter() - start) / 1e9)
print(json.dumps(dict(bench="product", torch=torch.__version__, gemm_peak_gflops=best)))
