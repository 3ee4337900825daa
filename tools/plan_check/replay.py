"""Replays a plan against its graph, and finds what is wrong with it."""
from .bounds import LINKS, Bounds, topological_order
from .costs import Costs
from .offsets import Offsets

RELATIVE = 1e-9


class Replay:
    """`violations` are sentences, of one kind of check after the other."""

    def __init__(self, graph, cluster, plan):
        self.graph, self.plan, self.costs = graph, plan, Costs(cluster, graph.groups)
        self.launches = plan["launches"]
        self.slack = RELATIVE * max(plan["makespan_s"], 1e-9)
        self.violations = []

    def run(self):
        if self._each_op_once() and self._merged_alike() and self._merged_without_cycle():
            for check in (self._starts_rise, self._dependencies, self._one_at_a_time, self._lengths, self._memory, self._offsets,
                          self._makespan, self._bound):
                check()
        return self.violations

    def _say(self, text):
        self.violations.append(text)

    def _label(self, index):
        ops = self.launches[index]["ops"]
        return f"launch {index} ({ops[0]}{f' and {len(ops) - 1} more' if len(ops) > 1 else ''})"

    def _each_op_once(self):
        self.launch_of = [None] * len(self.graph.ops)
        for index, launch in enumerate(self.launches):
            if not launch["ops"]:
                self._say(f"launch {index} has no operators")
            for name in launch["ops"]:
                op = self.graph.op_id.get(name)
                if op is None:
                    self._say(f"launch {index}: the graph has no operator {name}")
                elif self.launch_of[op] is not None:
                    self._say(f"operator {name} runs twice, in launches {self.launch_of[op]} and {index}")
                else:
                    self.launch_of[op] = index
        for op, index in enumerate(self.launch_of):
            if index is None:
                self._say(f"operator {self.graph.ops[op]['name']} does not run")
        return not self.violations

    def _nodes(self, launch):
        return [self.graph.ops[self.graph.op_id[name]] for name in launch["ops"]]

    def _merged_alike(self):
        for index, launch in enumerate(self.launches):
            nodes = self._nodes(launch)
            if len(nodes) == 1:
                continue
            kinds = {(node["collective"]["kind"], node["collective"]["group"]) if node["kind"] == "collective" else node["kind"]
                     for node in nodes}
            if len(kinds) > 1 or nodes[0]["kind"] != "collective":
                self._say(f"{self._label(index)}: merged are not collectives of one kind and group, but {sorted(map(str, kinds))}")
        return not self.violations

    def _merged_without_cycle(self):
        self.before = [set() for _ in self.launches]
        for op, index in enumerate(self.launch_of):
            for earlier in self.graph.before[op]:
                self.before[index].add(self.launch_of[earlier])
        if topological_order(self.before) is None:
            self._say("launches wait for one another in a cycle: collectives were merged of which one needs another")
        return not self.violations

    def _starts_rise(self):
        for index, launch in enumerate(self.launches):
            if launch["start_s"] < 0 or launch["end_s"] < launch["start_s"]:
                self._say(f"{self._label(index)}: runs from {launch['start_s']} to {launch['end_s']}")
            if index > 0 and launch["start_s"] < self.launches[index - 1]["start_s"]:
                self._say(f"{self._label(index)}: starts before the launch above it")
            expected = self.costs.resource(self._nodes(launch)[0])
            if launch["resource"] != expected:
                self._say(f"{self._label(index)}: on {launch['resource']}, and runs on {expected}")

    def _dependencies(self):
        for index, launch in enumerate(self.launches):
            for earlier in sorted(self.before[index]):
                end = self.launches[earlier]["end_s"]
                if end > launch["start_s"] or earlier > index:
                    self._say(f"{self._label(index)}: starts at {launch['start_s']}, needs {self._label(earlier)}, which ends at {end}")

    def _one_at_a_time(self):
        last = {}
        for index, launch in enumerate(self.launches):
            other = last.get(launch["resource"])
            if other is not None and launch["start_s"] < self.launches[other]["end_s"]:
                self._say(f"{self._label(index)}: starts at {launch['start_s']}, while {self._label(other)} runs on {launch['resource']}")
            last[launch["resource"]] = index

    def _sending(self):
        """When something is sent: disjoint, rising."""
        merged = []
        for start, end in sorted((x["start_s"], x["end_s"]) for x in self.launches if x["resource"] in LINKS and x["end_s"] > x["start_s"]):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        return merged

    def _lengths(self):
        slow = self.plan["contention"] / (1 + self.plan["contention"])
        sending, first = self._sending(), 0
        for index, launch in enumerate(self.launches):
            start, end = launch["start_s"], launch["end_s"]
            done = end - start
            if launch["resource"] == "compute":
                while first < len(sending) and sending[first][1] <= start:
                    first += 1
                place = first
                while place < len(sending) and sending[place][0] < end:
                    done -= slow * (min(end, sending[place][1]) - max(start, sending[place][0]))
                    place += 1
            needed = self.costs.merged_seconds(self._nodes(launch))
            if abs(done - needed) > self.slack + RELATIVE * needed:
                self._say(f"{self._label(index)}: lasts for {done} s of work, and takes {needed}")

    def _memory(self):
        """Storages appear with the launch of what first writes them and go when the last user has ended."""
        appear = [0] * len(self.launches)
        gone = {}  # by the launch whose end is the last
        live = resident = 0
        for storage in self.graph.storages:
            if storage.first is not None:
                appear[self.launch_of[storage.first]] += storage.bytes
            elif storage.users or storage.kept:
                live += storage.bytes
                resident += storage.bytes if storage.kept else 0
            if not storage.kept and storage.users:
                last = max((self.launch_of[op] for op in storage.users), key=lambda i: (self.launches[i]["end_s"], i))
                gone.setdefault(last, []).append(storage.bytes)
        frees = sorted((self.launches[last]["end_s"], last, sum(sizes)) for last, sizes in gone.items())
        capacity, peak, place = self.plan["capacity"], live, 0
        for index, launch in enumerate(self.launches):
            # What ended by now: among those of no length at this moment, only those that stand above.
            while place < len(frees) and frees[place][0] <= launch["start_s"] and frees[place][1] < index:
                live -= frees[place][2]
                place += 1
            live += appear[index]
            peak = max(peak, live)
            if live != launch["live_bytes"]:
                self._say(f"{self._label(index)}: {launch['live_bytes']} bytes are said to be live, and {live} are")
            if live > capacity:
                self._say(f"{self._label(index)}: {live} bytes are live, {live - capacity} more than the capacity of {capacity}")
        for key, value in (("peak_bytes", peak), ("resident_bytes", resident)):
            if self.plan[key] != value:
                self._say(f"{key} is said to be {self.plan[key]}, and is {value}")

    def _offsets(self):
        if "memory" in self.plan:
            self.violations += Offsets(self.graph, self.plan, self.launch_of).violations()

    def _makespan(self):
        last = max((launch["end_s"] for launch in self.launches), default=0)
        if abs(last - self.plan["makespan_s"]) > self.slack:
            self._say(f"makespan_s is said to be {self.plan['makespan_s']}, and the last launch ends at {last}")

    def _bound(self):
        self.bound = Bounds(self.graph, self.costs, self.plan["contention"], self.plan["capacity"]).all()
        claimed = self.plan["lower_bound"]
        pairs = [(key, claimed[key], self.bound[key]) for key in ("critical_path_s", "contention_s", "launches_s", "best_s", "memory_s")]
        pairs += [(f"resource_s.{name}", value, self.bound["resource_s"].get(name, 0)) for name, value in claimed["resource_s"].items()]
        largest = max(claimed["critical_path_s"], claimed["contention_s"], claimed["launches_s"], *claimed["resource_s"].values())
        if claimed["best_s"] != largest:
            self._say(f"lower_bound.best_s is said to be {claimed['best_s']}, and the largest of what it is made of is {largest}")
        for key, said, found in pairs:
            if said > found * (1 + RELATIVE) + self.slack:
                self._say(f"lower_bound.{key} is said to be {said}, and no more than {found} can be shown")
        best = max(self.bound["best_s"], self.bound["memory_s"])
        if self.plan["makespan_s"] < best - self.slack:
            self._say(f"makespan_s of {self.plan['makespan_s']} is below the bound of {best}")
