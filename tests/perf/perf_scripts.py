"""What tests of perf/'s scripts load them by, and made-up measurements for them."""
import importlib.util
import os
import sys

PERF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "perf")


sys.path.insert(0, PERF)  # compare.py's own imports
sys.dont_write_bytecode = True


def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(PERF, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def line(peer, size, ours, theirs):
    return {"label": peer, "bytes": size, "call_us": ours, "cost_us": ours, "peer_call_us": theirs, "peer_cost_us": theirs,
            **{f"{figure}_base_us": 2.0 for figure in ("call", "cost", "peer_call", "peer_cost")}, "limit_us": 0.1, "rounds_kept": 5}


def peer_line(library, size, call, canary=1.0, **changes):
    return {"library": library, "version": "1", "op": "all_reduce", "memory": "private", "ranks": 2, "bytes": size,
            "time_us": call, "call_us": call, "cost_us": call, "call_base_us": 0, "cost_base_us": 2.0,
            "canary_copy_us": 30 * canary, "canary_barrier_us": 0.1, "canary_barrier_least_us": 0.1, "canary_work_us": 20, "canary_work_least_us": 20, "wrong": 0, **changes}


def barriers(least, most):
    return {"canary_barrier_least_us": least, "canary_barrier_us": most}


def works(least, most):
    return {"canary_work_least_us": least, "canary_work_us": most}
