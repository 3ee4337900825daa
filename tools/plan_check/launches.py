"""What a step takes as its launches are many, or large ones are waited for (docs/plan-file.md: launches_s)."""
from bisect import bisect_right

PLACES, EACH_LAUNCH, HALVINGS = 7, 32, 50
ROUNDING = 1e-12  # sums of the same seconds may differ in the last bits
SEVERAL = -1


def only_collective(order, before, sends):
    """The one collective that each operator needs: None where there is none, SEVERAL where there are more."""
    only = [None] * len(order)
    for op in order:
        found = {op_or_only for other in before[op] for op_or_only in ((other if sends[other] else None), only[other])} - {None}
        if found:
            only[op] = found.pop() if len(found) == 1 else SEVERAL
    return only


class Growth:
    """Launches from the beginning of a step, or from its end, each no larger than what is computed beside them allows."""

    def __init__(self, link, needed, only, computing):
        self.link, self.needed = link, needed
        self.free = sum(seconds for op, seconds in computing if only[op] is None)
        shared = sorted((needed[op], seconds) for op, seconds in computing if only[op] == SEVERAL)
        self.shared_sent, self.shared_computed = [sent for sent, _ in shared], [0.0]
        for _, seconds in shared:
            self.shared_computed.append(self.shared_computed[-1] + seconds)
        beside = {}
        for op, seconds in computing:
            if only[op] not in (None, SEVERAL):
                beside[only[op]] = beside.get(only[op], 0.0) + seconds
        self.single_sent, self.single_computed = [0.0], [0.0]
        bodies = link.bodies
        for other in sorted(beside, key=lambda other: -beside[other] / bodies[other] if bodies[other] > 0 else float("-inf")):
            self.single_sent.append(self.single_sent[-1] + bodies[other])
            self.single_computed.append(self.single_computed[-1] + beside[other])

    def computed_with(self, sent):
        """The most that can be computed of what needs no more sending than that."""
        most = sent * (1 + ROUNDING)
        computed = self.free + self.shared_computed[bisect_right(self.shared_sent, most)]
        after = bisect_right(self.single_sent, most)
        computed += self.single_computed[after - 1]
        if after < len(self.single_sent):
            part = (sent - self.single_sent[after - 1]) / (self.single_sent[after] - self.single_sent[after - 1])
            computed += max(0.0, part) * (self.single_computed[after] - self.single_computed[after - 1])
        return computed

    def _can_send(self, seconds, most_launches, idle):
        sent, launch = 0.0, 0
        while sent < seconds * (1 - ROUNDING):
            launch += 1
            then = (1 + self.link.contention) * (idle + self.computed_with(sent)) - launch * self.link.latency
            if launch > most_launches or then <= sent:
                return False
            sent = then
        return True

    def _least_idle(self, seconds, most_launches):
        if self._can_send(seconds, most_launches, 0.0):
            return 0.0
        little, enough = 0.0, seconds + self.link.latency
        for _ in range(HALVINGS):
            middle = (little + enough) / 2
            if self._can_send(seconds, most_launches, middle):
                enough = middle
            else:
                little = middle
        return little

    def choices(self, seconds):
        """(launches, seconds for which nothing is computed then), by rising launches."""
        if seconds <= 0:
            return [(0, 0.0)]
        found, least = [], 1
        while least <= self.link.tasks and not (found and found[-1][1] <= 0):
            most = least if least <= EACH_LAUNCH else 2 * (least - 1)
            found.append((least, self._least_idle(seconds, most)))
            least = most + 1
        return found


class Link:
    """What one of them sends, without latencies, and the least latency of any launch."""

    def __init__(self, bounds, name):
        costs, graph = bounds.costs, bounds.graph
        self.contention = bounds.contention
        self.sends = [on == name and seconds > 0 for on, seconds in zip(bounds.resource, bounds.seconds)]
        self.bodies = [costs.least_within_another(op) if sends else 0.0 for op, sends in zip(graph.ops, self.sends)]
        self.tasks = sum(self.sends)
        self.latency = min((seconds - body for seconds, body, sends in zip(bounds.seconds, self.bodies, self.sends) if sends), default=0.0)

    def has_launches(self):
        return self.tasks > 0 and self.latency > 0


def needed(order, path, before, bodies):
    """Seconds that are sent before each operator at the least: before those of the path all that they need, before others the most on
    any way to them."""
    least, seen, sent = [0.0] * len(order), set(), 0.0
    for op in path:
        waiting = [op]
        while waiting:
            for other in before[waiting.pop()]:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
                    sent += bodies[other]
        least[op] = sent
    for op in order:
        for earlier in before[op]:
            least[op] = max(least[op], least[earlier] + bodies[earlier])
    return least


def computing_of(bounds):
    return [(op, bounds.seconds[op]) for op in bounds.order if bounds.resource[op] == "compute"]


def growth_from_both_ends(bounds, path, link, computing):
    ways = ((bounds.order, bounds.before, path), (bounds.order[::-1], bounds.after, path[::-1]))
    return [Growth(link, needed(order, way, before, link.bodies), only_collective(order, before, link.sends), computing)
            for order, before, way in ways]


def launch_bound(bounds, path, links):
    computing = computing_of(bounds)
    on_path = [op for op in path if bounds.resource[op] == "compute"]
    places = {on_path[i * len(on_path) // (PLACES + 1)] for i in range(1, PLACES + 1)} if on_path else set()
    return max((_on_link(bounds, path, Link(bounds, name), computing, places) for name in links), default=0.0)


def _on_link(bounds, path, link, computing, places):
    if not link.has_launches():
        return 0.0
    ends = growth_from_both_ends(bounds, path, link, computing)
    computed, bytes_sent, slow = sum(seconds for _, seconds in computing), sum(link.bodies), link.contention / (1 + link.contention)
    best = 0.0
    for place in places:
        first, last = (end.choices(end.needed[place]) for end in ends)
        least = float("inf")
        for launches, idle in first:
            for more, waits in last:
                sent = bytes_sent + link.latency * (launches + more)
                least = min(least, max(sent, computed + idle + waits + slow * sent))
        best = max(best, least)
    return best
