"""How many launches start behind a cut at the least, where memory keeps them small (docs/plan-file.md: memory_s)."""
from .closure import Closure

FREED_BY_COMPUTED, FREED_BY_OTHERS = (0.0, 0.3, 0.6, 0.7, 0.8, 0.9, 1.0), (0.0, 0.1, 0.2, 0.3, 0.5)
READY_BY_COMPUTED = (0.0, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5)
LEVELS, LEVEL_GROWTH, UNITS = 20, 1.15, 1e15
MOST_LAUNCHES, IDLE_GROWTH, MOST_STATES = 60, 1.1, 32
ROUNDING = 5e-10  # sums of the same seconds may differ in the last bits: half of what the planner allows for, to find no less than it does


class Released:
    """What computing behind a cut can free and make ready to be sent at the most: linear bounds, each a largest closure."""

    def __init__(self, bounds, link, made, done, to_do):
        self.bounds, self.link, self.done, self.to_do = bounds, link, done, to_do
        self.storages = bounds.graph.storages
        self.rate, self.gathers, self.others = float("inf"), set(), []
        kinds = (set(), set())
        self.gathers_s = self.others_s = self.others_early_s = 0.0
        for op in range(len(bounds.order)):
            if op in done or not link.sends[op]:
                continue
            body, is_early = link.bodies[op], op not in to_do
            size = sum(s.bytes for s in made[op] if len(s.users) > 1 and s.users - {op} <= to_do) if is_early and body > 0 else 0
            collective = bounds.graph.ops[op]["collective"]
            kinds[0 if size > 0 else 1].add((collective["kind"], collective["group"]))
            if size > 0:
                self.gathers.add(op)
                self.gathers_s += body
                self.rate = min(self.rate, size / body)
            else:
                self.others.append(op)
                self.others_s += body
                self.others_early_s += body if is_early else 0.0
        self.mixes = not kinds[0].isdisjoint(kinds[1])
        self.live, self.can_be_freed = 0, []
        for place, storage in enumerate(self.storages):
            from_before = storage.first is None or storage.first in done
            used_later = not storage.users <= done
            if from_before and (storage.kept or used_later):
                self.live += storage.bytes
            if not storage.kept and (not from_before or used_later):
                self.can_be_freed.append(place)

    def find(self):
        self._find_needs()
        self.levels = [(end, self._freed(end), self._ready(end)) for end in self._level_ends()]

    def freed(self, computed, others):
        return min(constant + a * computed + b * others for constant, a, b in self._level(computed)[1])

    def ready(self, computed):
        return min(constant + a * computed for constant, a in self._level(computed)[2])

    def steps(self):
        return [end for end, _, _ in self.levels[:-1]]

    def _level(self, computed):
        return next((level for level in self.levels if computed < level[0] * (1 - ROUNDING)), self.levels[-1])

    def _computes(self, op):
        return self.bounds.seconds[op] if op in self.to_do and self.bounds.resource[op] == "compute" else 0.0

    def _find_needs(self):
        """Seconds that are computed behind the cut before a storage is free, and before one of the others is ready."""
        masks = {}  # by operator: all that it needs behind the cut, as bits
        for op in self.bounds.order:
            if op not in self.done:
                masks[op] = 1 << op
                for earlier in self.bounds.before[op]:
                    masks[op] |= masks.get(earlier, 0)
        seconds = [self._computes(op) for op in range(len(self.bounds.order))]

        def computed(mask):
            total = 0.0
            while mask:
                lowest = mask & -mask
                total += seconds[lowest.bit_length() - 1]
                mask ^= lowest
            return total

        self.storage_needs = {}
        for place in self.can_be_freed:
            mask = 0
            for user in self.storages[place].users:
                mask |= masks.get(user, 0)
            self.storage_needs[place] = computed(mask)
        self.task_needs = {op: computed(masks[op]) for op in self.others}

    def _level_ends(self):
        ends = []
        for need in sorted([*self.storage_needs.values(), *self.task_needs.values()]):
            if len(ends) < LEVELS and need > (ends[-1] * LEVEL_GROWTH if ends else self.link.latency / 10):
                ends.append(need)
        return [*ends, float("inf")]

    def _behind(self, starts):
        """All that these need behind the cut."""
        found, waiting = set(starts), list(starts)
        while waiting:
            for earlier in self.bounds.before[waiting.pop()]:
                if earlier not in self.done and earlier not in found:
                    found.add(earlier)
                    waiting.append(earlier)
        return found

    def _closure(self, wanted):
        """Of operators that may be wanted: the network, and their nodes."""
        ops = sorted(self._behind([op for op in wanted if op not in self.done]))
        return ops, {op: node for node, op in enumerate(ops)}

    def _wants(self, closure, ops, node):
        for op in ops:
            for earlier in self.bounds.before[op]:
                if earlier in node:
                    closure.wants(node[op], node[earlier])

    def _freed(self, end):
        places = [place for place in self.can_be_freed if self.storage_needs[place] < end]
        ops, node = self._closure({user for place in places for user in self.storages[place].users})
        closure, makes = Closure(len(ops) + len(places)), dict.fromkeys(ops, 0)
        self._wants(closure, ops, node)
        for i, place in enumerate(places):
            closure.add_gain(len(ops) + i, self.storages[place].bytes)
            for user in self.storages[place].users:
                if user in node:
                    closure.wants(len(ops) + i, node[user])
        for storage in self.storages:
            if storage.first in makes and storage.first not in self.gathers:
                makes[storage.first] += storage.bytes
        others, found = set(self.others), []
        for b in FREED_BY_OTHERS:
            for a in FREED_BY_COMPUTED:
                costs = {node[op]: makes[op] + int((a * self._computes(op) + (b * self.link.bodies[op] if op in others else 0.0)) * self.rate)
                         for op in ops}
                found.append((closure.heaviest(costs) / self.rate, a, b))
        return found

    def _ready(self, end):
        if self.others_s <= 0:
            return [(0.0, a) for a in READY_BY_COMPUTED]
        units = UNITS / self.others_s
        others = [op for op in self.others if self.task_needs[op] < end]
        ops, node = self._closure(others)
        closure = Closure(len(ops))
        self._wants(closure, ops, node)
        for op in others:
            closure.add_gain(node[op], int(self.link.bodies[op] * units) + 1)
        return [(closure.heaviest({node[op]: int(a * self._computes(op) * units) for op in ops}) / units, a) for a in READY_BY_COMPUTED]


class LaunchesBehind:
    """Gathers held at the cut's end are the first; a launch that lasts then is not counted."""

    def __init__(self, released, link, last, room):
        self.released, self.link, self.room = released, link, room
        everything = released.gathers_s + released.others_s
        self.idles, idle = [0.0], link.latency / 2
        while idle < everything:
            self.idles.append(idle)
            idle *= IDLE_GROWTH
        self.idles.append(everything + MOST_LAUNCHES * link.latency)
        self.last_sent = []
        for idle in self.idles:
            sent = [0.0]
            for launch in range(1, MOST_LAUNCHES + 1):
                sent.append(max(sent[-1], (1 + link.contention) * (idle + last.computed_with(sent[-1])) - launch * link.latency))
            self.last_sent.append(sent)

    def choices(self, held, sent, idle):
        """(launches, seconds for which computing waits near the end then), by falling launches."""
        first = self._most_sent(held, idle)
        left = (self.released.gathers_s + self.released.others_s - sent) * (1 - ROUNDING)
        found, launches = [], MOST_LAUNCHES
        for place, waits in enumerate(self.idles[:-1]):
            last, least = self.last_sent[place + 1], 0
            while least < launches and any(first[least - end] + last[end] < left for end in range(least + 1)):
                least += 1
            if place == 0 or least < launches:
                found.append((least, waits))
            launches = least
        return found

    def _most_sent(self, held, idle):
        states, most = [(held, self.released.others_early_s)], []
        everything = self.released.gathers_s + self.released.others_s - held
        for launch in range(MOST_LAUNCHES + 1):
            if not most or most[-1] < everything:
                states = self._after_one(states, launch, held, idle)
            most.append(max(gathers + others - held for gathers, others in states))
        return most

    def _after_one(self, states, launch, held, idle):
        released, following = self.released, []
        for gathers, others in states:
            passed = (launch - 1) * self.link.latency + gathers + others - held
            computed = 0.0 if launch == 0 else idle + passed / (1 + self.link.contention)
            more = max(gathers, min(released.gathers_s, self.room + released.freed(computed, others)))
            further = max(others, min(released.others_s, released.ready(computed)))
            following += [(more, further)] if released.mixes else [(more, others), (gathers, further)]
        best = []
        for state in sorted(following, reverse=True):
            if not best or state[1] > best[-1][1]:
                best.append(state)
        return [(best[0][0], best[-1][1])] if len(best) > MOST_STATES else best
