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
    def __init__(self, graph, costs, contention, capacity):
        self.graph, self.costs, self.contention, self.capacity = graph, costs, contention, capacity
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
        found["memory_s"] = MemoryBound(self, heads).run()
        return found

    def _contention(self):
        """M seconds are sent, e of them before or after all that they can be hidden behind; C are computed."""
        busy = {name: 0.0 for name in ("compute", *LINKS, "copy")}
        for op in self.order:
            busy[self.resource[op]] += self.bodies[op]
        sends = max(busy[name] for name in LINKS)
        alone = self._sent_alone() if min(busy[name] for name in LINKS) <= 0 else 0
        overlap = max(0.0, sends - alone)
        slow = 1 + self.contention
        if busy["compute"] * slow < overlap:
            return sends
        return alone + busy["compute"] + self.contention / slow * overlap

    def _sent_alone(self):
        """Head and tail are different times only where something is computed behind some sending and before some."""
        sends = [b if r in LINKS else 0 for b, r in zip(self.bodies, self.resource)]
        before = longest_before(self.order, self.before, sends)
        after = longest_before(self.order[::-1], self.after, sends)
        head, tail = self._exposed(before), self._exposed(after)
        between = any(
            self.resource[op] == "compute" and self.bodies[op] > 0 and before[op] > 0 and after[op] > 0
            for op in self.order
        )
        return head + tail if between else max(head, tail)

    def _exposed(self, sent):
        """The least that is sent before anything that needs it can be computed, less what needs nothing sent."""
        free, least = 0.0, None
        for op in self.order:
            if self.resource[op] != "compute" or self.bodies[op] <= 0:
                continue
            if sent[op] <= 0:
                free += self.bodies[op]
            else:
                least = sent[op] if least is None else min(least, sent[op])
        return 0 if least is None else max(0.0, least - (1 + self.contention) * free)


FEW_CUTS, OPERATORS_CUT = 48, 1_000_000


class MemoryBound:
    """By the end of an operator x all that it needs has been sent and computed; what else has been sent by then, and is needed by
    nothing but what needs x, is held beside what is live for certain."""

    def __init__(self, bounds, heads):
        self.bounds, self.heads, self.storages = bounds, heads, bounds.graph.storages
        self.made = [[] for _ in bounds.order]
        for storage in self.storages:
            if storage.first is not None:
                self.made[storage.first].append(storage)
        busy = {name: sum(body for body, on in zip(bounds.bodies, bounds.resource) if on == name) for name in LINKS}
        self.link = max(LINKS, key=lambda name: busy[name])
        self.sent = busy[self.link]

    def run(self):
        return max((self._at(cut) for cut in self._cuts()), default=0)

    def _cuts(self):
        """Computing on the longest path, back from its end, evenly chosen."""
        def length(op):
            return self.heads[op] + self.bounds.seconds[op]

        ends = [op for op in self.bounds.order if not self.bounds.after[op]]
        op, path = max(ends, key=length, default=None), []
        while op is not None:
            if self.bounds.resource[op] == "compute":
                path.append(op)
            op = max(sorted(self.bounds.before[op]), key=length, default=None)
        most = max(FEW_CUTS, OPERATORS_CUT // max(1, len(self.bounds.order)))
        return path[:: len(path) // most + 1]

    @staticmethod
    def _reached(op, neighbours):
        reached, waiting = set(), [op]
        while waiting:
            for other in neighbours[waiting.pop()]:
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
        return reached

    def _at(self, cut):
        done = self._reached(cut, self.bounds.before) | {cut}
        to_do = self._reached(cut, self.bounds.after)
        sent = computed = left = free = held = 0.0
        least_rate = float("inf")  # bytes held for each second of sending
        for op, (body, on) in enumerate(zip(self.bounds.bodies, self.bounds.resource)):
            if on == "compute":
                computed += body if op in done else 0
                left += body if op in to_do else 0
            if on != self.link:
                continue
            if op in done:
                sent += body
            elif op not in to_do and body > 0:
                size = sum(s.bytes for s in self.made[op] if len(s.users) > 1 and s.users - {op} <= to_do)
                if size > 0:
                    held, least_rate = held + body, min(least_rate, size / body)
                else:
                    free += body
        room = max(0, self.bounds.capacity - self._live(done, to_do))
        early = free + (min(held, room / least_rate) if held > 0 else 0)
        slow = 1 + self.bounds.contention
        splits = (0.0, early, computed * slow - sent, self.sent - sent - left * slow)
        return min(self._takes(sent + split, computed) + self._takes(self.sent - sent - split, left)
                   for split in (min(max(each, 0.0), early) for each in splits))

    def _live(self, done, to_do):
        return sum(s.bytes for s in self.storages
                   if (s.first is None or s.first in done) and (s.kept or not s.users.isdisjoint(to_do)))

    def _takes(self, sent, computed):
        slow = 1 + self.bounds.contention
        return sent if computed * slow < sent else computed + self.bounds.contention / slow * sent
