#!/usr/bin/env python3
"""The steps of cuda_kernels_perf as torch takes them: unscale, clip_grad_norm_ and fused AdamW; the fused update alone;
10,000 small tensors; and the layers, whose sizes are those of cuda_kernels_perf. One JSON line each, with how much faster Weft was where --weft names cuda_kernels_perf's JSON file."""
import argparse
import itertools
import json
import statistics
import sys
import time

FUSED_STEP = "unscale + clip + fused AdamW + zero"


def time_calls(torch, call, calls):
    """Device and host seconds of one call."""
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    host = (time.perf_counter() - start) / calls
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1e3 / calls, host


def measure(torch, name, elements, call, options, weft_name=None):
    time_calls(torch, call, 2)
    times = [time_calls(torch, call, options.calls) for _ in range(options.rounds)]
    return {"program": "compare_torch", "name": name, "elements": elements, "weft_name": weft_name,
            "ms": statistics.median(t[0] for t in times) * 1e3, "host_us": statistics.median(t[1] for t in times) * 1e6}


def parameters(torch, tensors, elements):
    made = [torch.nn.Parameter(torch.randn(elements, device="cuda") * 0.01) for _ in range(tensors)]
    for one in made:
        one.grad = torch.randn(elements, device="cuda") * 0.01
    return made


def amp_step(torch, made, optimizer):
    """What torch.amp.GradScaler does around a clipped step, without its read of found_inf on the host."""
    gradients = [one.grad for one in made]
    found_inf, inv_scale = torch.zeros((), device="cuda"), torch.ones((), device="cuda")

    def call():
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inv_scale)
        torch.nn.utils.clip_grad_norm_(made, 1.0)
        optimizer.step()
        torch._foreach_zero_(gradients)

    return call


def fused_adamw(torch, made):
    return torch.optim.AdamW(made, fused=True)


def cases(torch, options):
    elements = options.elements
    made = parameters(torch, 1, elements)
    optimizer = fused_adamw(torch, made)
    yield measure(torch, "fused AdamW f32", elements, optimizer.step, options, "AdamW f32")
    yield measure(torch, FUSED_STEP, elements, amp_step(torch, made, optimizer), options,
                  "AMP step f32: norm, clip, zero")
    made[0].grad = None
    del made, optimizer
    torch.cuda.empty_cache()
    made = parameters(torch, options.tensors, 1000)
    optimizer = fused_adamw(torch, made)
    optimizer.step()
    state = [optimizer.state[one] for one in made]
    lists = ([one.data for one in made], [one.grad for one in made], [s["exp_avg"] for s in state],
             [s["exp_avg_sq"] for s in state], [], [s["step"] for s in state])

    def bare():
        torch._fused_adamw_(*lists, lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=1e-2, eps=1e-8, amsgrad=False,
                            maximize=False)

    weft_name = f"AdamW f32, {options.tensors} tensors of 1000"
    yield measure(torch, f"_fused_adamw_, {options.tensors} tensors of 1000", options.tensors * 1000, bare, options,
                  weft_name)
    yield measure(torch, f"AdamW(fused).step, {options.tensors} tensors of 1000", options.tensors * 1000, optimizer.step,
                  options, weft_name)


def layer_cases(torch, options):
    """Forward alone, and backward alone by autograd; of bf16."""
    rows, width, vocabulary = options.rows, options.width, options.vocabulary
    functional = torch.nn.functional

    def made(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).requires_grad_()

    def both(name, elements, forward, inputs, weft_name):
        yield measure(torch, name, elements, forward, options, weft_name)
        result = forward()
        gradient = torch.randn_like(result)
        yield measure(torch, f"{name}, backward", elements,
                      lambda: torch.autograd.grad(result, inputs, gradient, retain_graph=True), options, f"{weft_name}, backward")

    x, residual, w, b = made(rows, width), made(rows, width), made(width), made(width)
    yield from both("layer_norm", x.numel(), lambda: functional.layer_norm(x, (width,), w, b), (x, w, b), "layer norm bf16")
    yield from both("gelu(x + b)", x.numel(), lambda: functional.gelu(x + b, approximate="tanh"), (x, b), "bias + GELU bf16")
    yield from both("residual + dropout(x + b)", x.numel(), lambda: residual + functional.dropout(x + b, 0.1), (x, b),
                    "bias + dropout + add bf16")
    del x, residual
    logits = made(rows // 4, vocabulary)
    targets = torch.randint(0, vocabulary, (rows // 4,), device="cuda")
    yield from both("cross_entropy", logits.numel(), lambda: functional.cross_entropy(logits, targets), (logits,),
                    "softmax cross-entropy bf16")


def add_weft(row, weft):
    """Times an element, so that the programs may have found room for different counts."""
    own = weft.get(row["weft_name"])
    if own is None:
        return
    row["weft_ms"] = own["ms"] * row["elements"] / own["elements"]
    row["speedup"] = row["ms"] / row["weft_ms"]
    row["weft_host_us"] = own["host_us"]
    if row["name"] == FUSED_STEP:
        row["bar"] = 1.3
        row["holds"] = row["speedup"] >= 1.3
    if row["name"].startswith("_fused_adamw_"):
        row["bar"] = 1.0
        row["holds"] = row["weft_ms"] <= row["ms"] and row["weft_host_us"] <= row["host_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=1_000_000_000, help="of the step; at most what fits (default: %(default)s)")
    parser.add_argument("--tensors", type=int, default=10_000, help="small ones (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=16384, help="of the layers")
    parser.add_argument("--width", type=int, default=4096, help="of the layers (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=50304, help="of the cross-entropy (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="the median counts (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=10, help="a round (default: %(default)s)")
    parser.add_argument("--weft", help="cuda_kernels_perf's JSON lines")
    parser.add_argument("--json", help="file to append one JSON line a case to")
    options = parser.parse_args()
    import torch
    if not torch.cuda.is_available():
        sys.exit("compare_torch: torch sees no GPU")
    free, _ = torch.cuda.mem_get_info()
    options.elements = min(options.elements, free // 24)
    weft = {}
    if options.weft:
        with open(options.weft, encoding="utf-8") as lines:
            weft = {row["name"]: row for row in map(json.loads, lines)}
    passed = True
    for row in itertools.chain(cases(torch, options), layer_cases(torch, options)):
        add_weft(row, weft)
        row["torch"] = torch.__version__
        passed = passed and row.get("holds", True)
        print(json.dumps(row), flush=True)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
