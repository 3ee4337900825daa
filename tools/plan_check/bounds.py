"""What no schedule can beat, however collectives are merged (the formulas are those of docs/plan-file.md)."""
import heapq

from .launches import Link, computing_of, growth_from_both_ends, launch_bound
from .launches_behind import LaunchesBehind, Released

LINKS = ("between_hosts", "within_host")
RELATIVE = 1e-9  # sums of the same seconds may differ in the last bits


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
        self.in_full = {op for members in classes.values() for op in self._chain(set(members))}
        for op in self.in_full:
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
        path = self._longest_path()
        heads = self._paths(self.order, self.before, self.seconds, self._sent_along(path, self.before))
        tails = self._paths(self.order[::-1], self.after, self.seconds, self._sent_along(path[::-1], self.after))
        jobs = {name: [] for name in ("compute", *LINKS, "copy")}
        for op in self.order:
            jobs[self.resource[op]].append((heads[op], self.bodies[op], tails[op]))
        exposed = Exposed(self, path)
        found = {"critical_path_s": sum(self.seconds[op] for op in path),
                 "contention_s": self._contention(exposed) if self.contention > 0 else 0}
        found["resource_s"] = {name: preemptive_bound(each) for name, each in jobs.items()}
        found["launches_s"] = launch_bound(self, path, LINKS)
        found["best_s"] = max(found["critical_path_s"], found["contention_s"], found["launches_s"], *found["resource_s"].values())
        found["memory_s"] = MemoryBound(self, exposed, path).run()
        return found

    def _longest_path(self):
        """In its order."""
        heads = longest_before(self.order, self.before, self.seconds)

        def length(op):
            return heads[op] + self.seconds[op]

        op, path = max((op for op in self.order if not self.after[op]), key=length, default=None), []
        while op is not None:
            path.append(op)
            op = max(sorted(self.before[op]), key=length, default=None)
        return path[::-1]

    @staticmethod
    def _paths(order, before, length, least):
        """The longest path to each operator, none shorter than `least` (by operator)."""
        longest = list(least)
        for op in order:
            for earlier in before[op]:
                longest[op] = max(longest[op], longest[earlier] + length[earlier])
        return longest

    def _sent_along(self, path, before):
        """What the busier link sends before each operator of the path: all that it needs, and a latency for each kind
        and group of which nothing counts in full. 0 for all others."""
        least, seen = [0.0] * len(self.seconds), set()
        sent = {name: 0.0 for name in LINKS}
        latencies = {name: {} for name in LINKS}
        for op in path:
            waiting = [op]
            while waiting:
                for other in before[waiting.pop()]:
                    if other in seen:
                        continue
                    seen.add(other)
                    waiting.append(other)
                    if self.resource[other] not in LINKS:
                        continue
                    sent[self.resource[other]] += self.bodies[other]
                    collective = self.graph.ops[other]["collective"]
                    latency = 0 if other in self.in_full else self.seconds[other] - self.bodies[other]
                    kinds, kind = latencies[self.resource[other]], (collective["kind"], collective["group"])
                    kinds[kind] = min(latency, kinds.get(kind, latency))
            least[op] = max(sent[name] + sum(latencies[name].values()) for name in LINKS)
        return least

    def _contention(self, exposed):
        """M seconds are sent, e of them before or after all that they can be hidden behind; C are computed."""
        busy = {name: 0.0 for name in ("compute", *LINKS, "copy")}
        for op in self.order:
            busy[self.resource[op]] += self.bodies[op]
        sends = max(busy[name] for name in LINKS)
        alone = exposed.in_all()
        overlap = max(0.0, sends - alone)
        slow = 1 + self.contention
        if busy["compute"] * slow < overlap:
            return sends
        return alone + busy["compute"] + self.contention / slow * overlap


class Exposed:
    """Of the first `head[1]` seconds of sending head[0] are beside no computing, as what does not need them computes too
    little; likewise of the last. Nothing where both links send."""

    def __init__(self, bounds, path):
        self.bounds = bounds
        sends = [body if on in LINKS else 0 for body, on in zip(bounds.bodies, bounds.resource)]
        self.before = bounds._paths(bounds.order, bounds.before, sends, bounds._sent_along(path, bounds.before))
        self.after = bounds._paths(bounds.order[::-1], bounds.after, sends, bounds._sent_along(path[::-1], bounds.after))
        used = {on for body, on in zip(bounds.bodies, bounds.resource) if on in LINKS and body > 0}
        self.head, self.tail = ((0.0, 0.0), (0.0, 0.0)) if len(used) > 1 else (self._most(self.before), self._most(self.after))

    def _computing(self):
        return (op for op in self.bounds.order if self.bounds.resource[op] == "compute" and self.bounds.bodies[op] > 0)

    def _most(self, sent):
        free, most = 0.0, (0.0, 0.0)
        for needed, seconds in sorted((sent[op], self.bounds.bodies[op]) for op in self._computing()):
            most = max(most, (needed - (1 + self.bounds.contention) * free, needed), key=lambda each: each[0])
            free += seconds
        return most

    def behind_head(self, op):
        return self.before[op] >= self.head[1] * (1 - RELATIVE)

    def before_tail(self, op):
        return self.after[op] >= self.tail[1] * (1 - RELATIVE)

    def in_all(self):
        """Head and tail are different times only where something is computed between them."""
        between = any(self.behind_head(op) and self.before_tail(op) for op in self._computing())
        return self.head[0] + self.tail[0] if between else max(self.head[0], self.tail[0])


FEW_CUTS, OPERATORS_CUT, LAUNCH_CUTS = 48, 1_000_000, 2
MOST_OPERATORS = 3_000  # of graphs of no more it is counted how memory keeps launches small


def steps_of(latency):
    """What is held and how long the link is idle are told apart by such parts of a latency."""
    steps, step = [0.0, 0.0625, 0.125, 0.25], 0.5
    while step < 100:
        steps.append(step)
        step = step + 0.5 if step < 8 else step * 1.15
    return [step * latency for step in steps]


class MemoryBound:
    """By the end of an operator x all that it needs has been sent and computed; what else has been sent by then, and is needed by
    nothing but what needs x, is held beside what is live for certain."""

    def __init__(self, bounds, exposed, path):
        self.bounds, self.exposed, self.path, self.storages = bounds, exposed, path, bounds.graph.storages
        self.made = [[] for _ in bounds.order]
        for storage in self.storages:
            if storage.first is not None:
                self.made[storage.first].append(storage)
        busy = {name: sum(body for body, on in zip(bounds.bodies, bounds.resource) if on == name) for name in LINKS}
        self.link = max(LINKS, key=lambda name: busy[name])

    def run(self):
        cuts = sorted(((self._at(cut), cut) for cut in self._cuts()), key=lambda each: -each[0])
        best = cuts[0][0] if cuts else 0
        link = Link(self.bounds, self.link)
        if link.has_launches():
            ends = growth_from_both_ends(self.bounds, self.path, link, computing_of(self.bounds))
            best = max([best, *(self._with_launches(cut, link, *ends) for _, cut in cuts[:LAUNCH_CUTS])])
            if cuts and len(self.bounds.order) <= MOST_OPERATORS:
                best = max(best, self._in_memory(self._fullest(), link, *ends))
        return best

    def _cuts(self):
        """Computing on the longest path, back from its end, evenly chosen."""
        path = [op for op in reversed(self.path) if self.bounds.resource[op] == "compute"]
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
        head = self.exposed.head[0] if self.exposed.behind_head(cut) else 0.0
        tail = self.exposed.tail[0] if self.exposed.before_tail(cut) else 0.0
        sent, computed, rest, left, early = self._around(cut, self.bounds.bodies)
        return self._best_split((sent, computed, head), (rest, left, tail), early)

    def _with_launches(self, cut, link, first, last):
        """With so many launches as what is sent before the cut and after it takes at the least, and the waiting for them."""
        sent, computed, rest, left, early = self._around(cut, link.bodies)
        after = last.choices(last.needed[cut])
        return min(self._best_split((sent + launches * link.latency, computed + idle, 0.0),
                                    (rest + more * link.latency, left + waits, 0.0), early)
                   for launches, idle in first.choices(first.needed[cut]) for more, waits in after)

    def _fullest(self):
        """The first cut at which most is live for certain."""
        def live(cut):
            return self._live(self._reached(cut, self.bounds.before) | {cut}, self._reached(cut, self.bounds.after) | {cut})

        return max(self._cuts(), key=live)

    def _in_memory(self, cut, link, first, last):
        """The same, with what launches behind the cut memory allows: the least over what is held at its end, and for how long the link
        is idle behind it. 0 where memory is no limit."""
        done, to_do = self._reached(cut, self.bounds.before) | {cut}, self._reached(cut, self.bounds.after)
        released = Released(self.bounds, link, self.made, done, to_do)
        if released.gathers_s <= 0:
            return 0
        most_held = max(0, self.bounds.capacity - self._live(done, to_do | {cut})) / released.rate
        if most_held >= released.gathers_s:
            return 0
        released.find()
        behind = LaunchesBehind(released, link, last, (self.bounds.capacity - released.live) / released.rate)
        sent, computed, rest, left, _ = self._around(cut, link.bodies)
        befores = [(sent + launches * link.latency, computed + idle, 0.0) for launches, idle in first.choices(first.needed[cut])]

        def takes(early, link_idle, launches, waits):
            after = (rest + launches * link.latency, left + waits, 0.0)
            return min(self._best_split(before, after, early + released.others_early_s, link_idle) for before in befores)

        rooms, least = steps_of(link.latency), float("inf")
        steps = sorted([*released.steps(), *rooms])
        for room, further in zip(rooms, [*rooms[1:], float("inf")]):
            if room > most_held:
                break
            early = most_held - room
            for idle, until in zip(steps, [*steps[1:], steps[-1] + left]):
                if takes(early, idle, 0, 0.0) < least:
                    choices = behind.choices(max(0.0, most_held - further), early, until)
                    least = min(least, *(takes(early, idle, launches, waits) for launches, waits in choices))
        return least

    def _around(self, cut, bodies):
        """Seconds sent and computed of what the cut needs; all else that is sent, and what is computed of what needs the cut; what of
        that sending can be done before the cut."""
        done = self._reached(cut, self.bounds.before) | {cut}
        to_do = self._reached(cut, self.bounds.after)
        sent = computed = rest = left = early = held = 0.0
        least_rate = float("inf")  # bytes held for each second of sending
        for op, (body, seconds, on) in enumerate(zip(bodies, self.bounds.seconds, self.bounds.resource)):
            if on == "compute":
                computed += seconds if op in done else 0
                left += seconds if op in to_do else 0
            if on != self.link:
                continue
            if op in done:
                sent += body
                continue
            rest += body
            if op not in to_do and body > 0:
                size = sum(s.bytes for s in self.made[op] if len(s.users) > 1 and s.users - {op} <= to_do)
                if size > 0:
                    held, least_rate = held + body, min(least_rate, size / body)
                else:
                    early += body
        room = max(0, self.bounds.capacity - self._live(done, to_do | {cut}))
        early += min(held, room / least_rate) if held > 0 else 0
        return sent, computed, rest, left, early

    def _best_split(self, before, after, early, link_idle=0.0):
        (sent, computed, head), (rest, left, tail) = before, after
        slow = 1 + self.bounds.contention
        splits = (0.0, early, computed * slow - (sent - head), rest - tail - (left - link_idle) * slow)
        return min(self._takes(sent + split, computed, head) + self._takes(rest - split, left, tail, link_idle)
                   for split in (min(max(each, 0.0), early) for each in splits))

    def _live(self, done, users):
        return sum(s.bytes for s in self.storages
                   if (s.first is None or s.first in done) and (s.kept or not s.users.isdisjoint(users)))

    def _takes(self, sent, computed, exposed, link_idle=0.0):
        slow, beside = 1 + self.bounds.contention, sent - exposed
        return max(sent + link_idle, exposed + computed + self.bounds.contention / slow * beside)
