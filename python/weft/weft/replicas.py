"""What weft's wrappers of replicated models have in common: the group, checks, and hooks on parameters."""

from __future__ import annotations

import weakref

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from weft import backend, bare, local


def group_of(process_group, device: torch.device = torch.device("cpu")):
    """The weft back end of a process group for tensors on `device`, None: the default one's."""
    group = process_group if process_group is not None else dist.group.WORLD
    if group is None:
        raise RuntimeError('weft: no process group; call torch.distributed.init_process_group("weft") first')
    found = backend.weft_of(group, device)
    if found is None:
        try:
            name = group._get_backend(device).name()
        except RuntimeError:
            name = "missing"
        raise RuntimeError(
            f"weft: the process group's back end for {'the CPU' if device.type == 'cpu' else 'GPUs'} is {name}; weft's "
            'wrappers need one of weft\'s: init_process_group("weft"), or new_group(backend="weft")'
        )
    return group, found


def device_of(module: torch.nn.Module) -> torch.device:
    """Of its trained parameters."""
    return next((p.device for p in module.parameters() if p.requires_grad), torch.device("cpu"))


def trained_parameters(module: torch.nn.Module, wrapper: str, optimizes: bool = False) -> list:
    """(name, parameter) of those that have gradients, in the module's order. Refuses what buckets do not take, and where
    the wrapper `optimizes` what the library's optimizers do not."""
    bare.check(module, wrapper)
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not named:
        raise ValueError(f"weft.{wrapper}: {type(module).__name__} has no parameter that requires a gradient")
    first, device = named[0][0], named[0][1].device
    for name, parameter in named:
        reason = _unfit(parameter, optimizes)
        if reason is not None:
            raise ValueError(
                f"weft.{wrapper}: {type(module).__name__}'s parameter {name} is {parameter.dtype} on {parameter.device} with "
                f"strides {parameter.stride()}; {reason}"
            )
        if parameter.device != device:
            raise ValueError(
                f"weft.{wrapper}: {type(module).__name__}'s parameter {first} is on {device}, {name} on {parameter.device}; move "
                "the model to one device"
            )
    return named


def _unfit(parameter: torch.Tensor, optimizes: bool) -> str | None:
    device = parameter.device
    if device.type == "cuda" and not backend.extension().moves_gpu_tensors():
        return "this weft was built without CUDA, or without NCCL, so it must be on the CPU: install it where nvcc and nccl.h are"
    if device.type == "cuda" and optimizes and not local.computes_on(device):
        return (
            "this weft was built without nvcc, so it must be on the CPU; weft.DistributedDataParallel, with one of torch.optim's, "
            "takes it where it is"
        )
    dense = parameter.layout == torch.strided and local.is_dense(parameter)
    if device.type in ("cpu", "cuda") and dense and (parameter.dtype == local.WIDE or parameter.dtype in local.NARROW):
        return None
    return "it must be dense, float32, bfloat16 or float16, and on the CPU or a GPU"


def check_alike(named: list, process_group, wrapper: str) -> None:
    """Collective: every rank raises the same error, naming the first rank and parameter that differ from rank 0's."""
    mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in named]
    everybodys = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(everybodys, mine, group=process_group)
    for rank, theirs in enumerate(everybodys):
        if theirs == everybodys[0]:
            continue
        for index in range(max(len(theirs), len(everybodys[0]))):
            one, other = (each[index] if index < len(each) else None for each in (everybodys[0], theirs))
            if one != other:
                shown = ["nothing" if each is None else "{} of shape {} and type {}".format(*each) for each in (one, other)]
                raise ValueError(
                    f"weft.{wrapper}: models differ: parameter {index} is {shown[0]} on rank 0, {shown[1]} on rank {rank}; "
                    "build the same model on every rank"
                )


@torch.no_grad()
def broadcast(tensors, process_group) -> None:
    """Collective: rank 0's values go to all."""
    root = dist.get_global_rank(process_group, 0)
    for tensor in tensors:
        dist.broadcast(tensor.detach(), root, group=process_group)


def at_end_of_backward(then) -> None:
    """Calls `then` at the end of the backward that is under way; where that is within another, as a reentrant checkpoint's
    is, of the outermost."""

    def ended():
        around = torch._C._current_autograd_node()  # what the backward around this one computes
        if around is None:
            then()
            return
        # That one can be asked for its end only from within: in what it computes next.
        handles = []

        def outside(_):
            for handle in handles:
                handle.remove()
            if handles:
                handles.clear()
                at_end_of_backward(then)

        handles += [node.register_prehook(outside) for node, _ in around.next_functions if node is not None]

    torch.autograd.Variable._execution_engine.queue_callback(ended)


class GradientViews:
    """Keeps parameters' gradients in views of buckets, and tells its owner when they are ready.

    `owner.gradient_ready(index)` is called as soon as parameter `index` has this pass's gradient, in its view;
    `owner.backward_ended()` once at the end of each backward that gave any; those within others end with them. When the
    owner goes, so do the hooks.
    """

    def __init__(self, named: list, views: list, owner):
        self.named = named
        self.parameters = [parameter for _, parameter in named]
        self.names = [name for name, _ in named]
        self.views = views
        self._handed = {}  # versions of views as they were handed over, by index
        # Weak both ways: Python does not find cycles through parameters' hooks, and an owner in a cycle would go, and stop
        # sending, at a different time on every rank.
        self._owner = weakref.ref(owner)
        self._in_backward = False
        self._seen = set()  # by this backward
        views = weakref.ref(self)
        hooks = [
            parameter.register_post_accumulate_grad_hook(lambda _, index=index: views()._has_gradient(index))
            for index, parameter in enumerate(self.parameters)
        ]
        weakref.finalize(self, _remove, hooks).atexit = False

    def take(self, index: int) -> None:
        """The parameter's .grad is its view from now on."""
        parameter, view = self.parameters[index], self.views[index]
        gradient = parameter.grad
        # Another tensor may lie in the view's memory; what has no elements lies nowhere.
        if gradient is view or gradient is not None and view.numel() != 0 and gradient.data_ptr() == view.data_ptr():
            return
        if gradient is not None:
            with torch.no_grad():
                view.copy_(gradient)
        parameter.grad = view

    def _has_gradient(self, index: int) -> None:
        gradient = self.parameters[index].grad
        if gradient.layout != torch.strided:
            raise RuntimeError(
                f"weft: the gradient of parameter {self.names[index]} is sparse; make its module with sparse=False"
            )
        if index in self._seen:
            raise RuntimeError(
                f"weft: parameter {self.names[index]} has a second gradient in one backward, as one that several reentrant "
                "checkpoints use; the first may have been sent, so give them use_reentrant=False"
            )
        if not self._in_backward:
            self._in_backward = True
            at_end_of_backward(self._end)
        self._seen.add(index)
        self.take(index)
        self._owner().gradient_ready(index)

    def _end(self) -> None:
        self._in_backward = False
        self._owner().backward_ended()
        self._seen.clear()

    def take_rest(self) -> list[int]:
        """At the end of a backward: those that it gave none but that have one of before, in their views now too."""
        rest = () if len(self._seen) == len(self.parameters) else range(len(self.parameters))
        rest = [index for index in rest if index not in self._seen and self.parameters[index].grad is not None]
        for index in rest:
            self.take(index)
        return rest

    def check_ended(self, wrapper: str) -> None:
        """Before a forward: raises where the backward before did not come to its end."""
        if self._in_backward and torch._C._current_graph_task_id() == -1:
            raise RuntimeError(
                f"weft.{wrapper}: backward was left by an exception; ranks may have sent different gradients, so begin again from "
                "a checkpoint"
            )

    def hand_over(self, index: int) -> None:
        """From now on until forget() the gradient is not the program's."""
        self._handed[index] = self.views[index]._version

    def hand_over_rest(self) -> None:
        """Those too that this backward gave none."""
        for index, (parameter, view) in enumerate(zip(self.parameters, self.views)):
            if parameter.grad is view:
                self._handed.setdefault(index, view._version)

    def take_back(self, index: int) -> None:
        self._handed.pop(index, None)

    def check(self) -> None:
        """Raises GradientsChanged of the first that was handed over and is another now."""
        for index, version in sorted(self._handed.items()):
            view = self.views[index]
            if self.parameters[index].grad is not view or view._version != version:
                raise GradientsChanged(self.names[index])

    def forget(self) -> None:
        """A step has used them up: .grads are the views, whatever is in them."""
        self._handed.clear()
        for parameter, view in zip(self.parameters, self.views):
            parameter.grad = view
        torch.autograd.graph.increment_version(self.views)


class GradientCopies(GradientViews):
    """The same where gradients have no place to be viewed at: the owner's `take_gradient(index, gradient)` copies them to
    where they are reduced. Then .grad is None, and once it is handed over a TakenGradient."""

    def __init__(self, named: list, owner):
        super().__init__(named, [], owner)
        self._taken = [TakenGradient(name, parameter) for name, parameter in named]

    def take(self, index: int) -> None:
        parameter = self.parameters[index]
        self._owner().take_gradient(index, parameter.grad)
        parameter.grad = None

    def hand_over(self, index: int) -> None:
        self._handed[index] = None
        self.parameters[index].grad = self._taken[index]

    def hand_over_rest(self) -> None:
        pass  # they have none

    def check(self) -> None:
        for index, parameter in enumerate(self.parameters):
            if parameter.grad is not (self._taken[index] if index in self._handed else None):
                raise GradientsChanged(self.names[index])

    def forget(self) -> None:
        for index in self._handed:
            self.parameters[index].grad = None
        self._handed.clear()


class TakenGradient(torch.Tensor):
    """What a parameter's .grad is while the gradient is being reduced and shared out: who uses it gets GradientsChanged."""

    @staticmethod
    def __new__(cls, name, like):
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, strides=like.stride(), dtype=like.dtype, device=like.device)

    def __init__(self, name, like):
        self.parameter_name = name

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise GradientsChanged(next(one for one in tree_leaves((args, kwargs)) if isinstance(one, cls)).parameter_name, "used")

    def __repr__(self):
        return f"TakenGradient(of {self.parameter_name}, {tuple(self.shape)})"


class GradientsChanged(RuntimeError):
    """A program has used or changed gradients that are reduced and shared out already."""

    def __init__(self, name, what="changed or replaced"):
        super().__init__(
            f"weft.ZeroOptimizer: the gradient of parameter {name} was {what} after backward, when it is "
            "reduced and shared out already, so a change would be lost; to clip by norm, give ZeroOptimizer max_norm= or "
            "compose() clip_grad=; make other changes in a hook (Tensor.register_hook), which sees this rank's gradient before "
            "it is averaged, or take weft.DistributedDataParallel"
        )
        self.name = name


def _remove(hooks) -> None:
    for hook in hooks:
        hook.remove()


def check_unchanged(module: torch.nn.Module, named: list, kept: list, wrapper: str, in_place: bool = True) -> None:
    """Raises where a parameter was added, replaced, moved or converted since the module was wrapped; `kept` are what the
    (name, parameter) of `named` are to be laid out as, and where `in_place` their memory too. So does a second wrapper."""
    bare.check_forward([parameter for _, parameter in named], wrapper)
    now = {name: p for name, p in module.named_parameters() if p.requires_grad}
    for (name, parameter), view in zip(named, kept):
        same = now.pop(name, None) is parameter and parameter.shape == view.shape and parameter.dtype == view.dtype
        if not same or in_place and parameter.untyped_storage()._cdata != view.untyped_storage()._cdata:
            raise RuntimeError(
                f"weft.{wrapper}: parameter {name} was replaced, frozen or converted after the model was wrapped; change the "
                "model first, then wrap it"
            )
    if now:
        raise RuntimeError(
            f"weft.{wrapper}: parameter {next(iter(now))} came after the model was wrapped; add it first, then wrap the model"
        )
