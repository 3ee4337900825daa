"""An operator graph in its JSON form (docs/op-graph.md), and the memory that its tensors share."""
import json


class BadInput(Exception):
    """Something that is no graph, cluster or plan; shown as one line."""


def load(path, version_key):
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict) or (version_key and document.get(version_key) != 1):
        raise BadInput(f'{path}: no "{version_key}": 1')
    return document


class Storage:
    """Memory that tensors share: there from the start of `first` (None: the beginning) to the end of its last user, or
    of the step where it is kept."""

    def __init__(self, first):
        self.bytes, self.first, self.kept, self.users = 0, first, False, set()


class Graph:
    """Operators and tensors by their place in the file."""

    def __init__(self, document):
        self.name = document.get("name", "")
        self.ops = document.get("ops", [])
        self.tensors = document.get("tensors", [])
        self.op_id = {op["name"]: i for i, op in enumerate(self.ops)}
        self.tensor_id = {tensor["name"]: i for i, tensor in enumerate(self.tensors)}
        self.groups = {group["name"]: sets_of(group) for group in document.get("groups", [])}
        self.reads = [[self.tensor_id[name] for name in op.get("reads", [])] for op in self.ops]
        self.writes = [[self.tensor_id[name] for name in op.get("writes", [])] for op in self.ops]
        self.writer = [None] * len(self.tensors)
        for op, written in enumerate(self.writes):
            for tensor in written:
                self.writer[tensor] = op
        self.before = [self._before(op) for op in range(len(self.ops))]
        self.storages = self._storages()

    def _before(self, op):
        named = {self.op_id[name] for name in self.ops[op].get("after", [])}
        return named | {self.writer[tensor] for tensor in self.reads[op] if self.writer[tensor] is not None}

    def _aliased(self):
        """The tensor in whose memory each one lies, by chains of alias_of."""
        root = []
        for tensor in range(len(self.tensors)):
            while self.tensors[tensor].get("alias_of") is not None:
                tensor = self.tensor_id[self.tensors[tensor]["alias_of"]]
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
            target = root[self.tensor_id[tensor["in_place_of"]]]
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
            while memory in over:
                memory = root[over[memory]]
            root[i] = memory
            storage = storages.setdefault(memory, Storage(self.writer[memory]))
            storage.bytes = max(storage.bytes, tensor["bytes"])
            storage.kept = storage.kept or tensor.get("kept", False)
        for op in range(len(self.ops)):
            for tensor in self.reads[op] + self.writes[op]:
                storages[root[tensor]].users.add(op)
        self.storage_of = [storages[memory] for memory in root]
        return list(storages.values())


def sets_of(group):
    """The sets of ranks of a group: "strided" ones stand for sets of `size` ranks that are `stride` apart."""
    if "sets" in group:
        return group["sets"]
    ranks, size, stride = (group["strided"][key] for key in ("ranks", "size", "stride"))
    block = size * stride
    return [[begin + offset + i * stride for i in range(size)] for begin in range(0, ranks, block) for offset in range(stride)]
