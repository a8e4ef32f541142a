"""The training step of tests/bench/step.cpp in PyTorch: the same GPT-2-shaped model, AdamW, random tokens.
Prints a JSON line with the median of the steps' times. beside_pytorch.sh runs both, alternating."""
import argparse
import contextlib
import itertools
import json
import statistics
import tempfile
import time

import torch
from torch import distributed, multiprocessing, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.c_attn, self.attn_c_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.c_fc, self.mlp_c_proj = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_c_proj(heads.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp_c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocab, context, layers, heads, channels):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, channels), nn.Embedding(context, channels)
        self.h = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)
        self.checkpoints = False
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)  # the head is tied
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in dict(layers=12, heads=12, dim=768, vocab=50257, batch=4, seq=64, steps=6, ranks=1).items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    for flag in ("bf16", "cuda", "compile", "checkpoint", "peak", "update"):
        parser.add_argument(f"--{flag}", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.ranks > 1:
        with tempfile.NamedTemporaryFile() as meeting:
            multiprocessing.spawn(train_rank, (args, meeting.name), nprocs=args.ranks)
    elif args.peak:
        print(json.dumps(dict(bench="step", torch=torch.__version__, peak_bytes=peak_bytes(lambda: train(args)))))
    else:
        train(args)


def peak_bytes(run):
    """The peak of the bytes that PyTorch has allocated on the CPU, from PyTorch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    sizes, stack = [], list(profile.profiler.kineto_results.experimental_event_tree())
    while stack:
        event = stack.pop()
        stack += event.children
        if event.tag == torch._C._profiler._EventType.Allocation:
            sizes.append((event.start_time_ns, event.extra_fields.alloc_size))
    return max(itertools.accumulate(size for _, size in sorted(sizes, key=lambda s: s[0])))


def train_rank(rank, args, meeting):
    """Processes of one thread, gradients summed by DistributedDataParallel over gloo; every second step has no all-reduce."""
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=args.ranks)
    model = nn.parallel.DistributedDataParallel(Gpt(args.vocab, args.seq, args.layers, args.heads, args.dim),
                                                gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids = torch.randint(0, args.vocab, (args.batch, args.seq + 1))
    seconds = {True: [], False: []}
    for step in range(2 * args.steps + 2):
        sums = step % 2 == 0
        distributed.barrier()
        start = time.perf_counter()
        with contextlib.nullcontext() if sums else model.no_sync():
            loss = model(ids[:, :-1], ids[:, 1:])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        value = loss.item()
        if step >= 2:
            seconds[sums].append(time.perf_counter() - start)
    median = statistics.median(seconds[True])
    if rank == 0:
        print(json.dumps(dict(bench="parallel", torch=torch.__version__, ranks=args.ranks,
                              parameters=sum(p.numel() for p in model.parameters()), ms_per_step=1e3 * median,
                              communication=1 - statistics.median(seconds[False]) / median, loss=value)))
    distributed.destroy_process_group()


def now(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def train(args):
    device = "cuda" if args.cuda else "cpu"
    model = Gpt(args.vocab, args.seq, args.layers, args.heads, args.dim).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    model.checkpoints = args.checkpoint
    run = torch.compile(model) if args.compile else model
    ids = torch.randint(0, args.vocab, (args.batch, args.seq + 1), device=device)
    seconds, updates = [], []
    for step in range(args.steps + 2):  # the first two warm up
        start = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=args.bf16):
            loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        if args.update:
            start = now(device)
        optimizer.step()
        if args.update:
            updates.append(now(device) - start)
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()  # waits for the GPU
        if step >= 2:
            seconds.append(time.perf_counter() - start)
    if args.peak:
        return
    if args.update:
        print(json.dumps(dict(bench="step", torch=torch.__version__, ms_update=1e3 * statistics.median(updates[2:]))))
        return
    print(json.dumps(dict(bench="step", torch=torch.__version__, parameters=sum(p.numel() for p in model.parameters()),
                          ms_per_step=1e3 * statistics.median(seconds), loss=value)))


if __name__ == "__main__":
    main()
