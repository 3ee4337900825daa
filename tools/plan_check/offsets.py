"""Where a plan says that tensors lie: every memory has its place, and no two that are live together share a byte."""
import bisect


class Offsets:
    def __init__(self, graph, plan, launch_of):
        self.graph, self.launches, self.launch_of = graph, plan["launches"], launch_of
        self.memory = plan["memory"]
        self.found = []

    def violations(self):
        placed = self._placed()
        if not self.found:
            self._overlaps(placed)
        return self.found

    def _say(self, text):
        self.found.append(text)

    def _placed(self):
        """[(first launch, launch at whose start it is gone, offset, end, name)] of what holds memory."""
        place, highest = {}, 0
        for buffer in self.memory["buffers"]:
            name, offset = buffer["tensor"], buffer["offset"]
            tensor = self.graph.tensor_id.get(name)
            if tensor is None:
                self._say(f"memory: the graph has no tensor {name}")
                continue
            storage = self.graph.storage_of[tensor]
            if id(storage) in place:
                self._say(f"memory: {name} lies in {place[id(storage)][1]}'s memory, and has an offset of its own")
            if buffer["bytes"] != storage.bytes:
                self._say(f"memory: {name} is said to have {buffer['bytes']} bytes, and has {storage.bytes}")
            if offset < 0 or offset % self.memory["alignment"] != 0:
                self._say(f"memory: {name} lies at {offset}, no multiple of {self.memory['alignment']}")
            place[id(storage)] = (offset, name)
            highest = max(highest, offset + storage.bytes)
        if highest != self.memory["bytes"]:
            self._say(f"memory.bytes is said to be {self.memory['bytes']}, and the highest buffer ends at {highest}")
        return [life for life in map(lambda storage: self._life(storage, place), self.graph.storages) if life]

    def _life(self, storage, place):
        if not storage.users and not storage.kept:
            return None
        if id(storage) not in place:
            origin = "are there from the beginning" if storage.first is None else f"launch {self.launch_of[storage.first]} makes"
            self._say(f"memory: {storage.bytes} bytes that {origin} have no offset")
            return None
        offset, name = place[id(storage)]
        begin = -1 if storage.first is None else self.launch_of[storage.first]
        return begin, self._gone(storage), offset, offset + storage.bytes, name

    def _gone(self, storage):
        """The first launch that starts when all users have ended, and stands behind them."""
        if storage.kept:
            return len(self.launches)
        gone = max(self.launch_of[op] for op in storage.users) + 1
        end = max(self.launches[self.launch_of[op]]["end_s"] for op in storage.users)
        while gone < len(self.launches) and self.launches[gone]["start_s"] < end:
            gone += 1
        return gone

    def _overlaps(self, placed):
        """Those that are live, by offset: who joins has to fit between its neighbours."""
        events = []
        for begin, gone, offset, end, name in placed:
            if end > offset:
                events += [(begin, 1, offset, end, name), (gone, 0, offset, end, name)]
        live = []
        for moment, joins, offset, end, name in sorted(events):
            where = bisect.bisect_left(live, (offset, end, name))
            if not joins:
                if where < len(live) and live[where] == (offset, end, name):
                    live.pop(where)
                continue
            for other in live[max(0, where - 1):where + 1]:
                if other[0] < end and offset < other[1]:
                    self._say(f"memory: {name} at [{offset}, {end}) and {other[2]} at [{other[0]}, {other[1]}) are both live at launch {moment}")
            live.insert(where, (offset, end, name))
