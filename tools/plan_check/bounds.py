"""What no schedule can beat, however collectives are merged (the formulas are those of docs/plan-file.md)."""
import heapq

LINKS = ("between_hosts", "within_host")


def topological_order(before):
    """Lowest id first of those that can be next; None where there is a cycle."""
    after = [[] for _ in before]
    waits = [len(each) for each in before]
    for task, earlier in enumerate(before):
        for other in earlier:
            after[other].append(task)
    ready = [task for task, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        task = heapq.heappop(ready)
        order.append(task)
        for later in after[task]:
            waits[later] -= 1
            if waits[later] == 0:
                heapq.heappush(ready, later)
    return order if len(order) == len(before) else None


def longest_before(order, before, length):
    longest = [0.0] * len(before)
    for task in order:
        for earlier in before[task]:
            longest[task] = max(longest[task], longest[earlier] + length[earlier])
    return longest


def preemptive_bound(jobs):
    """Jackson's: of (head, body, tail), always the one of longest tail among those that can run."""
    jobs = sorted(jobs)
    waiting, now, bound, place = [], 0.0, 0.0, 0
    while place < len(jobs) or waiting:
        if not waiting:
            now = max(now, jobs[place][0])
        while place < len(jobs) and jobs[place][0] <= now:
            heapq.heappush(waiting, (-jobs[place][2], jobs[place][1]))
            place += 1
        tail, left = heapq.heappop(waiting)
        until = now + left
        if place < len(jobs) and jobs[place][0] < until:
            until = jobs[place][0]
            heapq.heappush(waiting, (tail, left - (until - now)))
        else:
            bound = max(bound, until - tail)
        now = until
    return bound


class Bounds:
    def __init__(self, graph, costs, contention):
        self.graph, self.costs, self.contention = graph, costs, contention
        self.resource = [costs.resource(op) for op in graph.ops]
        self.seconds = [costs.seconds(op) for op in graph.ops]
        self.before = graph.before
        self.after = [[] for _ in graph.ops]
        for op, earlier in enumerate(graph.before):
            for other in earlier:
                self.after[other].append(op)
        self.order = topological_order(graph.before)
        self.bodies = self._bodies()

    def _bodies(self):
        """Each collective counts what it adds to another, but for those of one longest path through each kind and group:
        no two of them can be merged."""
        bodies = list(self.seconds)
        classes = {}
        for op in self.order:
            if self.resource[op] in LINKS:
                collective = self.graph.ops[op]["collective"]
                classes.setdefault((collective["kind"], collective["group"]), []).append(op)
                bodies[op] = self.costs.least_within_another(self.graph.ops[op])
        for members in classes.values():
            for op in self._chain(set(members)):
                bodies[op] = self.seconds[op]
        return bodies

    def _chain(self, members):
        count, previous, last = [0] * len(self.seconds), [None] * len(self.seconds), None
        for op in self.order:
            through = op if op in members else previous[op]
            if op in members:
                count[op] += 1
                if last is None or count[op] > count[last]:
                    last = op
            for later in self.after[op]:
                if count[op] > count[later]:
                    count[later], previous[later] = count[op], through
        chain = []
        while last is not None:
            chain.append(last)
            last = previous[last]
        return chain

    def all(self):
        heads = longest_before(self.order, self.before, self.seconds)
        tails = longest_before(self.order[::-1], self.after, self.seconds)
        path = max((heads[op] + self.seconds[op] + tails[op] for op in self.order), default=0)
        jobs = {name: [] for name in ("compute", *LINKS, "copy")}
        for op in self.order:
            jobs[self.resource[op]].append((heads[op], self.bodies[op], tails[op]))
        found = {"critical_path_s": path, "contention_s": self._contention() if self.contention > 0 else 0}
        found["resource_s"] = {name: preemptive_bound(each) for name, each in jobs.items()}
        found["best_s"] = max(path, found["contention_s"], *found["resource_s"].values())
        return found

    def _contention(self):
        """M seconds are sent, h of them before and t after all that they can be hidden behind; C are computed."""
        busy = {name: 0.0 for name in ("compute", *LINKS, "copy")}
        for op in self.order:
            busy[self.resource[op]] += self.bodies[op]
        sends = max(busy[name] for name in LINKS)
        head = tail = 0
        if min(busy[name] for name in LINKS) <= 0:
            head = self._exposed(self.order, self.before)
            tail = self._exposed(self.order[::-1], self.after)
        overlap = max(0.0, sends - head - tail)
        slow = 1 + self.contention
        if busy["compute"] * slow < overlap:
            return sends
        return head + tail + busy["compute"] + self.contention / slow * overlap

    def _exposed(self, order, before):
        """The least that is sent before anything that needs it can be computed, less what needs nothing sent."""
        sent = longest_before(order, before, [b if r in LINKS else 0 for b, r in zip(self.bodies, self.resource)])
        free, least = 0.0, None
        for op in order:
            if self.resource[op] != "compute" or self.bodies[op] <= 0:
                continue
            if sent[op] <= 0:
                free += self.bodies[op]
            else:
                least = sent[op] if least is None else min(least, sent[op])
        return 0 if least is None else max(0.0, least - (1 + self.contention) * free)
