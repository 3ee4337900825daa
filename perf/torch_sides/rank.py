"""One rank of torch_perf.py: measures what its options (JSON, the only argument) ask for; rank 0 prints JSON lines."""
import faulthandler
import json
import os
import sys

import torch
import torch.distributed as dist

import weft
from torch_sides.collectives import OPERATIONS, Collectives, run_program
from torch_sides.ranks import Core, Meeting
from torch_sides.steps import Small, Steps


class Rank:
    def __init__(self, options):
        self.options = options
        self.rank, self.ranks = options["rank"], 2
        self.core = Core(self.rank)
        self.meet = Meeting(options["meeting"], self.rank)
        dist.init_process_group("gloo", init_method=f"file://{options['store']}", rank=self.rank, world_size=self.ranks)
        from torch.testing._internal.distributed import fake_pg  # noqa: F401  registers "fake"
        self.groups = {side: dist.new_group(backend=side) for side in ("weft", "gloo", "fake")}
        single = [dist.new_group([rank], backend="weft") for rank in range(self.ranks)]
        self.groups["single"] = single[self.rank]

    def say(self, **line):
        if self.rank == 0:
            print(json.dumps(line), flush=True)

    def alone(self, body):
        """On rank 0, while the other sleeps."""
        failed = [None]
        if self.rank == 0:
            self.core.free()
            try:
                body()
            except Exception as error:
                failed = [repr(error)]
        dist.broadcast_object_list(failed, 0)  # gloo: waits asleep
        if failed[0]:
            raise RuntimeError(failed[0])

    def collectives(self):
        measuring = Collectives(self.rank, self.ranks, self.groups, self.meet, self.core, self.options["iterations"])
        for turn in range(self.options["rounds"]):
            for op in OPERATIONS:
                for size in self.options["sizes"]:
                    for side, time_us in measuring.measure(op, size).items():
                        self.say(part="collectives", op=op, bytes=size, side=side, round=turn, time_us=time_us)
                self.alone(lambda op=op: self._programs(op, turn))

    def _programs(self, op, turn):
        for first, last, memory in self.options["programs"]:
            for size, time_us in run_program(self.options["bin"], op, first, last, memory).items():
                self.say(part="collectives", op=op, bytes=size, side=f"c++ {memory}", round=turn, time_us=time_us)

    def ddp(self):
        self.core.free()
        steps = Steps(self.groups, self.meet)
        for turn in range(self.options["rounds"]):
            for side, time_us in steps.measure(self.options["steps"]).items():
                self.say(part="ddp", side=side, round=turn, time_us=time_us)

    def small(self):
        small = Small(self.groups, self.meet, self.core)
        for turn in range(self.options["rounds"]):
            for side, time_us in small.measure(self.options["steps"]).items():
                self.say(part="small", side=side, round=turn, time_us=time_us)


def main():
    options = json.loads(sys.argv[1])
    faulthandler.dump_traceback_later(options["timeout"], exit=True)
    torch.set_num_threads(1)
    weft.shared_heap(options["heap"])
    rank = Rank(options)
    for part in options["parts"]:
        getattr(rank, part)()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
