"""An operator graph in its JSON form (docs/op-graph.md), and the memory that its tensors share."""
from .bounds import topological_order
from .forms import BadInput


class Storage:
    """Memory that tensors share: there from the start of `first` (None: the beginning) to the end of its last user, or
    of the step where it is kept."""

    def __init__(self, first):
        self.bytes, self.first, self.kept, self.users = 0, first, False, set()


class Graph:
    """Operators and tensors by their place in the file."""

    def __init__(self, document):
        self.name = document.get("name")  # None: it goes by the name of its file
        self.ops = document.get("ops", [])
        self.tensors = document.get("tensors", [])
        self.op_id = ids(self.ops, "operator")
        self.tensor_id = ids(self.tensors, "tensor")
        self.groups = {group["name"]: sets_of(group) for group in document.get("groups", [])}
        self._check_collectives()
        self.reads = [self._tensors(op, "reads") for op in self.ops]
        self.writes = [self._tensors(op, "writes") for op in self.ops]
        self.writer = [None] * len(self.tensors)
        for op, written in enumerate(self.writes):
            for tensor in written:
                if self.writer[tensor] is not None:
                    raise BadInput(f"tensor {self.tensors[tensor]['name']} is written by {self._both(self.writer[tensor], op)}")
                self.writer[tensor] = op
        self.before = [self._before(op) for op in range(len(self.ops))]
        order = topological_order(self.before)
        if order is None:
            raise BadInput("operators wait for one another in a cycle")
        self.storages = self._storages()
        self._check_users(order)

    def _both(self, one, other):
        return f"operators {self.ops[one]['name']} and {self.ops[other]['name']}"

    def _check_users(self, order):
        """Memory is there from the start of its first writer."""
        place = {op: position for position, op in enumerate(order)}
        for storage in self.storages:
            for op in storage.users:
                if storage.first is not None and place[op] < place[storage.first]:
                    raise BadInput(f"{self._both(op, storage.first)}: the first uses memory before the second has written it")

    def _check_collectives(self):
        for op in self.ops:
            if (op["kind"] == "collective") != ("collective" in op):
                raise BadInput(f"operator {op['name']}: \"collective\" belongs to operators of that kind, and to all of them")
            if "collective" in op and op["collective"]["group"] not in self.groups:
                raise BadInput(f"operator {op['name']}: there is no group {op['collective']['group']}")

    def _tensors(self, op, key):
        return [find(self.tensor_id, name, f"operator {op['name']}", "tensor") for name in op.get(key, [])]

    def _before(self, op):
        named = {find(self.op_id, name, f"operator {self.ops[op]['name']}", "operator") for name in self.ops[op].get("after", [])}
        return named | {self.writer[tensor] for tensor in self.reads[op] if self.writer[tensor] is not None}

    def _aliased(self):
        """The tensor in whose memory each one lies, by chains of alias_of."""
        over = [None if name is None else find(self.tensor_id, name, f"tensor {tensor['name']}", "tensor")
                for tensor in self.tensors for name in [tensor.get("alias_of")]]
        root = []
        for tensor in range(len(self.tensors)):
            links = 0
            while over[tensor] is not None:
                tensor, links = over[tensor], links + 1
                if links > len(self.tensors):
                    raise BadInput(f"tensor {self.tensors[tensor]['name']}: its chain of alias_of is a circle")
            root.append(tensor)
        return root

    def _written_over(self, root):
        """{memory: the one that it is written over}: one that an operator writes, that is not kept and that one operator
        alone reads. The first of that operator's tensors which asks for it gets it."""
        readers = [set() for _ in self.tensors]
        for op, read in enumerate(self.reads):
            for tensor in read:
                readers[root[tensor]].add(op)
        kept = {root[i] for i, tensor in enumerate(self.tensors) if tensor.get("kept")}
        over, taken = {}, set()
        for i, tensor in enumerate(self.tensors):
            if tensor.get("in_place_of") is None:
                continue
            target = root[find(self.tensor_id, tensor["in_place_of"], f"tensor {tensor['name']}", "tensor")]
            if len(readers[target]) == 1 and target not in kept and target not in taken and self.writer[target] is not None:
                over[i] = target
                taken.add(target)
        return over

    def _storages(self):
        root = self._aliased()
        over = self._written_over(root)
        storages = {}
        for i, tensor in enumerate(self.tensors):
            memory = root[i]
            links = 0
            while memory in over:
                memory, links = root[over[memory]], links + 1
                if links > len(self.tensors):
                    raise BadInput(f"tensor {tensor['name']} is written over itself, by a circle of in_place_of and alias_of")
            root[i] = memory
            storage = storages.setdefault(memory, Storage(self.writer[memory]))
            storage.bytes = max(storage.bytes, tensor["bytes"])
            storage.kept = storage.kept or tensor.get("kept", False)
        for op in range(len(self.ops)):
            for tensor in self.reads[op] + self.writes[op]:
                storages[root[tensor]].users.add(op)
        self.storage_of = [storages[memory] for memory in root]
        return list(storages.values())


def ids(items, what):
    found = {}
    for i, item in enumerate(items):
        if found.setdefault(item["name"], i) != i:
            raise BadInput(f"{what}s {found[item['name']]} and {i} are both named {item['name']}")
    return found


def find(of, name, who, what):
    if name not in of:
        raise BadInput(f"{who}: there is no {what} {name}")
    return of[name]


def sets_of(group):
    """The sets of ranks of a group: "strided" ones stand for sets of `size` ranks that are `stride` apart."""
    if ("sets" in group) == ("strided" in group):
        raise BadInput(f"group {group['name']}: it has either \"sets\" or \"strided\"")
    if "sets" in group:
        if not group["sets"] or not all(group["sets"]):
            raise BadInput(f"group {group['name']}: without ranks")
        return group["sets"]
    ranks, size, stride = (group["strided"].get(key, 1) for key in ("ranks", "size", "stride"))
    block = size * stride
    if ranks % block != 0:
        raise BadInput(f"group {group['name']}: {ranks} ranks are no sets of {size} that are {stride} apart")
    return [[begin + offset + i * stride for i in range(size)] for begin in range(0, ranks, block) for offset in range(stride)]
