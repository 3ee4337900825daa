"""Models whose optimizer is sharded, and what else the stage says."""

from __future__ import annotations

import contextlib
import weakref

import torch
import torch.distributed as dist

from weft import amp, bare, optim, replicas, speeds, tuning
from weft.optim.cores import HostCore
from weft.sharding_buckets import BucketSharding
from weft.sharding_units import UnitSharding

_UNREAD = object()


class ZeroOptimizer(torch.optim.Optimizer):
    """Trains a module with a sharded optimizer (Rajbhandari et al.: ZeRO, 2020): each rank keeps states and float32
    originals of its part of the model, from stage 2 on the gradients of that part alone, and in stage 3 the parameters.
    Gradients are reduced while backward goes on. The same bits as weft.DistributedDataParallel with the same optimizer,
    where no norm is taken.

        optimizer = weft.ZeroOptimizer(model, weft.optim.AdamW, lr=1e-3)
        loss_of(model(data)).backward()
        optimizer.step()

    Collective; rank 0's parameters count. It takes the place of a DDP wrapper. In stages 1 and 2 the module's parameters
    and gradients become views into buckets, updated parameters travel until the next forward, and step() leaves zeros in
    the gradients. In stage 3 parameters have memory only while their unit (see ``weft.fully_shard``) is in use, and .grad
    is None; every rank uses the same units in the same order.

    On a GPU, for which weft has to be built with nvcc, no step waits for it, and gradients of stage 2 are given back as
    they are reduced: .grad is None.

    optimizer   one of weft.optim's classes but Lamb; its arguments follow. Of the module's ``param_groups()``, where it
                has them, else of all parameters
    stage       1: states are sharded; 2: gradients too; 3: parameters too
    broadcast_buffers  rank 0's buffers go to all ranks before each forward in training
    bucket_cap_mb, first_bucket_mb  of stages 1 and 2, as of weft.DistributedDataParallel
    wait_by_unit  of stages 1 and 2: updated parameters travel on while the forward runs, and are waited for unit by unit (see
                ``weft.fully_shard``); until then using one anywhere else raises an error. False: the module's forward begins
                with waiting for all
    max_norm    clips gradients to this 2-norm over all parameters and ranks; ``grad_norm`` is what it was, and waits for a GPU
    scaler      the weft.amp.GradScaler whose step() and update() this optimizer is used with
    autotune    as of weft.DistributedDataParallel; parameters move too. In stage 3 units gathered ahead are tried, and
                whether they stay from forward to backward, within twice the memory for gathered units

    Of stage 3:
    shard_size             hybrid: groups of so many consecutive ranks share a model out, groups are replicas; 0: all ranks
    sum_by_group           hybrid: sums within groups and then across; sends less between hosts, other bits
    prefetch               units that are gathered ahead of the one in use
    reshard_after_forward  False: units stay gathered from forward to backward, where there is room
    gather_cap_mb          most memory for gathered units; absent: what ``prefetch`` takes
    poison                 to find mistakes: NaN is written over what nobody may use any more
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: type = optim.AdamW,
        *,
        stage: int = 2,
        process_group=None,
        max_norm: float | None = None,
        scaler: amp.GradScaler | None = None,
        bucket_cap_mb: float | None = None,
        first_bucket_mb: float = 1,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = False,
        master_weights: bool = True,
        groups: list | None = None,
        wait_by_unit: bool = False,
        shard_size: int = 0,
        sum_by_group: bool = False,
        prefetch: int = 1,
        reshard_after_forward: bool = True,
        gather_cap_mb: float | None = None,
        poison: bool = False,
        autotune: int | bool | None = None,
        **options,
    ):
        self._check_arguments(optimizer, stage, shard_size, wait_by_unit, max_norm)
        self.module = module
        self.stage = stage
        device = replicas.device_of(module)
        self.process_group, group = replicas.group_of(process_group, device)
        named = replicas.trained_parameters(module, "ZeroOptimizer", optimizes=True)
        self._check_device(device, scaler, stage, find_unused_parameters)
        replicas.check_alike(named, self.process_group, "ZeroOptimizer")
        # What checks and completes the options, and says what the library calls them; it never steps.
        self._rules = optimizer(groups if groups is not None else [p for _, p in named], **options)
        super().__init__(self._rules.param_groups, self._rules.defaults)
        self._scaler = scaler
        self._named = self._in_order(named)
        cores = [(self._rules._kind(g), self._library_options(g), [p.detach() for p in g["params"]]) for g in self.param_groups]
        self._options = [options for _, options, _ in cores]
        self._rules.state.clear()  # Adagrad's begins with some
        asked = 0 if autotune is None and bucket_cap_mb is not None else autotune
        steps = tuning.steps_of(asked, self.process_group, device=device)
        settings = dict(
            find_unused=find_unused_parameters,
            master_weights=master_weights,
            max_norm=max_norm or 0.0,
            scaler=scaler._scale if scaler is not None and scaler.is_enabled() else None,
        )
        if stage == 3:
            self._sharding = UnitSharding(
                module,
                self._named,
                cores,
                group,
                settings,
                ranks=dist.get_world_size(self.process_group),
                prefetch=prefetch,
                reshard_after_forward=reshard_after_forward,
                gather_cap_mb=gather_cap_mb,
                shard_size=shard_size,
                by_group=sum_by_group,
                poison=poison,
            )
        else:
            self._sharding = BucketSharding(
                module,
                self._named,
                cores,
                group,
                settings,
                stage=stage,
                bucket_cap_mb=speeds.bucket_mb(self._named, self.process_group, bucket_cap_mb),
                first_bucket_mb=first_bucket_mb,
                wait_by_unit=wait_by_unit,
            )
        untrained = [p.data for p in module.parameters() if not p.requires_grad]
        replicas.broadcast(list(module.buffers()) + untrained, self.process_group)
        if broadcast_buffers and any(True for _ in module.buffers()):
            module.register_forward_pre_hook(lambda called, *_: self._before_forward() if called is module else None)  # copies have it too
        self._core = self._sharding.core
        bare.keep(self, self._named)
        self._sync = True
        self._norm = None
        self.tuning = tuning.begun(self._core, steps)
        self._sharding.follow()
        if self.tuning is not None:
            watched = weakref.ref(self.tuning)
            module.register_forward_pre_hook(lambda module, _: None if module.training or watched() is None else watched().skip())

    @staticmethod
    def _check_arguments(optimizer, stage, shard_size, wait_by_unit, max_norm):
        if stage not in (1, 2, 3):
            raise ValueError(f"weft.ZeroOptimizer: stage is {stage}; it must be 1, 2 or 3")
        if stage != 3 and shard_size != 0:
            raise ValueError(f"weft.ZeroOptimizer: shard_size is of stage 3, and this is stage {stage}")
        if stage == 3 and wait_by_unit:
            raise ValueError("weft.ZeroOptimizer: wait_by_unit is of stages 1 and 2; stage 3 does nothing else")
        if not isinstance(optimizer, type):
            raise ValueError(
                f"weft.ZeroOptimizer: optimizer is of type {type(optimizer).__name__}; give a class, such as weft.optim.AdamW, and its options as "
                "arguments: lr=1e-3"
            )
        if not issubclass(optimizer, optim.FusedOptimizer) or optimizer is optim.Lamb:
            raise ValueError(f"weft.ZeroOptimizer: {optimizer.__name__} cannot be sharded; take one of weft.optim's, but Lamb")
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"weft.ZeroOptimizer: max_norm is {max_norm}; it must be above 0")

    @staticmethod
    def _check_device(device, scaler, stage, find_unused):
        if scaler is not None and scaler.is_enabled() and scaler._device != device:
            raise ValueError(
                f"weft.ZeroOptimizer: the scaler is on {scaler._device}, the parameters are on {device}; make it with "
                f"GradScaler({str(device)!r})"
            )
        if device.type != "cpu" and stage == 3 and find_unused:
            raise ValueError(
                f"weft.ZeroOptimizer: find_unused_parameters in stage 3 is there on the CPU only, and the parameters are on {device}; "
                "take stage 2, or leave it out, and such gradients count as zero"
            )

    @property
    def grad_norm(self):
        """Of the last step's gradients, before they were clipped; None before the first. Waits for a GPU."""
        if self._norm is _UNREAD:
            self._norm = torch.tensor(self._core.norm(), dtype=torch.float32)
        return self._norm

    def add_param_group(self, param_group):
        if "_core" in self.__dict__:  # else it is torch's constructor
            raise RuntimeError(
                "weft.ZeroOptimizer: no parameters can be added once it is made; make it of the whole module, with groups="
            )
        super().add_param_group(param_group)

    def _in_order(self, named):
        """(name, parameter) as param_groups count them."""
        names = {parameter: name for name, parameter in named}
        mine = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(mine):
            if parameter not in names:
                raise ValueError(
                    f"weft.ZeroOptimizer: parameter {index} of its groups, of shape {tuple(parameter.shape)}, is none of the "
                    f"{type(self.module).__name__}'s that require a gradient"
                )
        for parameter, name in names.items():
            if not any(parameter is one for one in mine):
                raise ValueError(f"weft.ZeroOptimizer: parameter {name} is in none of its groups; freeze it first")
        return [(names[parameter], parameter) for parameter in mine]

    # --- passes ---

    def _before_forward(self):
        if self._sync and self.module.training and torch._C._current_graph_task_id() == -1:
            replicas.broadcast(list(self.module.buffers()), self.process_group)

    def wait(self) -> None:
        """Parameters are those of the last step from here on; the module's forward begins with it."""
        self._sharding.wait()

    @contextlib.contextmanager
    def no_sync(self):
        """Within it backward's gradients are added up and not sent; the next one outside sends the sums. Forward and
        backward are both within, or both outside."""
        before = self._sync
        self.set_sync(False)
        try:
            yield
        finally:
            self.set_sync(before)

    def set_sync(self, sync: bool) -> None:
        """no_sync() for passes that are no block of a program: False begins it, True ends it."""
        self._sharding.set_sync(sync)
        self._sync = sync

    def whole_parameters(self):
        """Collective, a context: every rank has all parameters whole, as after ``wait()`` in stages 1 and 2, where it costs
        nothing. In stage 3 they are copies: the module computes with them, without backward, and what every rank writes
        to them alike counts afterwards. state_dict() and load_state_dict() of the module need it not."""
        self.wait()
        return self._sharding.whole_parameters()

    def zero_grad(self, set_to_none=True):
        """Nothing: step() has."""

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._scaler is not None and self._scaler.is_enabled() and "_amp" not in self.__dict__:
            raise RuntimeError("weft.ZeroOptimizer: it was made with a scaler; call scaler.step(optimizer)")
        if not self._sharding.reduced:
            raise RuntimeError(
                f"weft.ZeroOptimizer.step(): no backward since the last step, of a loss that depends on the "
                f"{type(self.module).__name__}'s parameters, outside of no_sync(): none of them, such as {self._named[0][0]}, "
                "has a gradient"
            )
        self._sharding.check_gradients()
        self._follow_options()
        self._core.step()
        self._sharding.after_step()
        self._norm = _UNREAD
        if self.tuning is not None:
            self.tuning.end_step()
            self._sharding.follow()
        return loss

    def _library_options(self, group):
        """Numbers: a learning rate on a GPU is waited for."""
        return HostCore.options(self._rules._options(group))

    def _follow_options(self):
        """What schedulers, or the program, changed in param_groups since the last step."""
        now = [self._library_options(group) for group in self.param_groups]
        for number, index in enumerate(self._sharding.groups):
            if now[index] == self._options[index]:
                continue
            try:
                self._core.set_options(number, self._rules._kind(self.param_groups[index]), now[index])
            except (RuntimeError, ValueError) as error:
                raise RuntimeError(f"weft.ZeroOptimizer: group {index} of param_groups was changed: {error}") from error
        self._options = now

    def _scaled_step(self, found_inf, inv_scale):
        if self._scaler is None or inv_scale is None:
            raise RuntimeError(
                "weft.amp.GradScaler: give the scaler to ZeroOptimizer(scaler=), which unscales where gradients are sharded; "
                "unscale_() and a scaler that it does not know cannot"
            )
        self._amp = True
        try:
            return self.step()  # the library's scaler knows what it found
        finally:
            del self._amp

    # --- checkpoints ---

    def __getstate__(self):
        raise TypeError("weft.ZeroOptimizer: it cannot be copied or pickled; save its state_dict()")

    def _group_of(self, index):
        return next(g for g in self.param_groups if any(p is self._named[index][1] for p in g["params"]))

    def _first_values(self, index):
        """What a state of the parameter is before its first step."""
        return torch.full(self._named[index][1].shape, float(self._rules._initial(self._group_of(index))))

    def _state_names(self, index):
        names = self._rules._states(self._group_of(index))
        narrow = self._named[index][1].dtype != torch.float32 and self._rules._master_weights
        return names + (["master"] if narrow else [])

    def _each(self):
        """(name, the core's index, names of states) of every parameter."""
        return [(name, self._sharding.index(at), self._state_names(at)) for at, (name, _) in enumerate(self._named)]

    def _layout(self, index):
        return self._core.layout(index)

    def state_dict(self):
        """Collective: the whole optimizer's, on every rank, as one of torch's; loads into weft.optim's and torch's."""
        self.wait()
        steps = self._core.step_count()
        packed = self._rules.state_dict()
        packed["state"] = {}
        for index in range(len(self._named)) if steps else ():
            here = self._sharding.index(index)
            state = {name: self._core.state(here, name) for name in self._state_names(index)}
            if self._rules._shows_step:
                state["step"] = torch.tensor(float(steps))
            packed["state"][index] = state
        return packed

    def load_state_dict(self, state_dict):
        """Collective: one of this class's, of weft.optim's or of torch's, of any number of ranks, the same on all. The
        parameters themselves are the module's to load, before this."""
        self.wait()
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("weft.ZeroOptimizer: the state_dict's groups have other numbers of parameters")
        steps = {float(state["step"]) for state in state_dict["state"].values() if "step" in state}
        if len(steps) > 1:
            raise ValueError("weft.ZeroOptimizer: the state_dict's parameters have had different numbers of steps")
        names = [name for group in groups for name in group["params"]]
        for index, name in enumerate(names):
            saved, here = state_dict["state"].get(name, {}), self._sharding.index(index)
            original = saved.get("master", self._sharding.values(index))
            if original is not None:
                self._core.set_state(here, "master", original)
            for state in self._state_names(index):
                if state != "master":
                    values = saved.get(state)
                    self._core.set_state(here, state, self._first_values(index) if values is None else values)
        momenta = any(saved.get("momentum_buffer") is not None for saved in state_dict["state"].values())
        self._core.set_step_count(int(steps.pop()) if steps else int(momenta))
        for group, saved in zip(self.param_groups, groups):
            group.update({name: value for name, value in saved.items() if name in group and name != "params"})

    def owned_elements(self) -> int:
        """How many of the parameters' elements this rank updates; in stage 3 it keeps no others."""
        return sum(self._core.shard(index)[1] for _, index, _ in self._each())

    def bytes(self) -> dict:
        """What it keeps on this rank."""
        return {"optimizer": self._core.state_bytes()}
