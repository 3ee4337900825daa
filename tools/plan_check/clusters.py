"""The clusters that have a name, by the figures of docs/scheduler.md#clusters."""


def _cluster(name, flops, memory, gigabytes, between):
    return {"name": name, "ranks_per_host": 8, "flops_per_s": flops, "memory_bytes_per_s": memory, "memory_bytes": gigabytes * 10**9,
            "within": {"bytes_per_s": 250e9, "step_s": 50e-6}, "between": {"bytes_per_s": between, "step_s": 50e-6},
            "copy_bytes_per_s": 20e9, "operator_s": 0}


NAMED = {each["name"]: each for each in (
    *(_cluster(f"a100-{gigabits}g", 187e12, 1.6e12, 80, between) for gigabits, between in ((100, 11e9), (200, 22e9), (400, 45e9), (800, 90e9))),
    _cluster("h100-400g", 593e12, 3.35e12, 80, 45e9),
    _cluster("h200-400g", 593e12, 4.8e12, 141, 45e9),
)}
