"""What a plan, an operator graph and a cluster are made of in JSON: keys, types and ranges (docs/plan-file.md, docs/op-graph.md).

A form is a function that says what is needed instead of a value (None: nothing), a list of one form for lists of any length, or an
Object.
"""
import sys


class BadInput(Exception):
    """Something that is no graph, cluster or plan; shown as one line."""


class Object:
    def __init__(self, needed, optional=None):
        self.needed, self.forms = needed, {**needed, **(optional or {})}


def check(value, form, where=""):
    """Raises BadInput with the place of the first thing that is wrong, such as launches[3].start_s; returns the value."""
    if isinstance(form, Object):
        check_object(value, form, where)
    elif isinstance(form, list):
        if not isinstance(value, list):
            refuse(where, f"{shown(value)}, where a list is needed")
        for i, each in enumerate(value):
            check(each, form[0], f"{where}[{i}]")
    elif needed := form(value):
        refuse(where, f"{shown(value)}, where {needed} is needed")
    return value


def check_object(value, form, where):
    if not isinstance(value, dict):
        refuse(where, f"{shown(value)}, where an object is needed")
    for key in form.needed:
        if key not in value:
            refuse(where, f"the key {key} is missing")
    for key, each in value.items():
        if key not in form.forms:
            refuse(where, f"unknown key {shown(key)}")
        check(each, form.forms[key], f"{where}.{key}" if where else key)


def refuse(where, why):
    raise BadInput(f"{where}: {why}" if where else why)


def shown(value, most=40):
    text = repr(value)
    return text if len(text) <= most else text[:most] + "..."


def text(value):
    return None if isinstance(value, str) else "a string"


def flag(value):
    return None if isinstance(value, bool) else "true or false"


def number(value):
    fits = type(value) in (int, float) and 0 <= value <= sys.float_info.max  # not NaN, not infinite
    return None if fits else "a finite number that is not negative"


def positive(value):
    return None if number(value) is None and value > 0 else "a finite number above 0"


def whole(value):
    return None if type(value) is int and 0 <= value < 2**63 else "a whole number that is not negative"


def at_least_one(value):
    return None if whole(value) is None and value > 0 else "a whole number above 0"


def one_of(*values):
    return lambda value: None if value in values and type(value) in (str, int) else f"one of {', '.join(map(str, values))}"


LINK = Object({"bytes_per_s": positive, "step_s": number})
CLUSTER = {"ranks_per_host": at_least_one, "flops_per_s": positive, "memory_bytes_per_s": positive, "within": LINK, "between": LINK}
# What a file may leave out; plans have the cluster in full.
CLUSTER_MORE = {"name": text, "memory_bytes": whole, "copy_bytes_per_s": number, "operator_s": number}

RESOURCES = ("compute", "between_hosts", "within_host", "copy")
PLAN = Object({
    "weft_plan": one_of(1),
    "graph": text,
    "cluster": Object({**CLUSTER, **CLUSTER_MORE}),
    "policy": text,
    "contention": number,
    "capacity": whole,
    "makespan_s": number,
    "peak_bytes": whole,
    "resident_bytes": whole,
    "lower_bound": Object({
        "best_s": number,
        "critical_path_s": number,
        "contention_s": number,
        "launches_s": number,
        "memory_s": number,
        "resource_s": Object({name: number for name in RESOURCES}),
    }),
    "launches": [Object({"ops": [text], "resource": one_of(*RESOURCES), "start_s": number, "end_s": number, "live_bytes": whole})],
}, {
    "memory": Object({"bytes": whole, "alignment": at_least_one,
                      "buffers": [Object({"tensor": text, "bytes": whole, "offset": whole})]}),
})

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "permute")
GRAPH = Object({"weft_graph": one_of(1)}, {
    "name": text,
    "groups": [Object({"name": text}, {
        "sets": [[whole]],
        "strided": Object({"ranks": at_least_one, "size": at_least_one}, {"stride": at_least_one}),
    })],
    "tensors": [Object({"name": text, "bytes": whole}, {"kept": flag, "alias_of": text, "in_place_of": text})],
    "ops": [Object({"name": text, "kind": one_of("compute", "collective", "copy", "update")}, {
        "flops": number,
        "memory_bytes": number,
        "seconds": number,
        "collective": Object({"kind": one_of(*COLLECTIVES), "bytes": whole, "group": text}),
        "reads": [text],
        "writes": [text],
        "after": [text],
        "layer": whole,
        "repeatable": flag,
    })],
})
