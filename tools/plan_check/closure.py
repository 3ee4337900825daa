"""The most that a set of nodes can weigh that has all which its nodes want: a least cut of a network (Picard, 1976)."""


class Closure:
    """Nodes gain what add_gain() says, and cost what heaviest() is asked with."""

    def __init__(self, nodes):
        self.source, self.sink = nodes, nodes + 1
        self.edges_of = [[] for _ in range(nodes + 2)]
        self.to, self.full, self.left = [], [], []
        self.gains, self.paid = 0, {}

    def wants(self, node, other):
        self._edge(node, other, float("inf"))

    def add_gain(self, node, gain):
        self._edge(self.source, node, gain)
        self.gains += gain

    def heaviest(self, costs):
        """`costs` by node. What has flowed is kept where none costs less than it did in the call before."""
        for node, cost in costs.items():
            if node not in self.paid:
                self.paid[node] = len(self.to)
                self._edge(node, self.sink, 0)
        if any(self.full[edge] > costs.get(node, 0) for node, edge in self.paid.items()):
            self.left = list(self.full)
            for edge in self.paid.values():
                self.left[edge] = self.full[edge] = 0
        for node, edge in self.paid.items():
            more = costs.get(node, 0) - self.full[edge]
            self.full[edge] += more
            self.left[edge] += more
        while self._find_levels():
            self.next = [0] * len(self.edges_of)
            while self._push():
                pass
        return self.gains - sum(self.full[edge] - self.left[edge] for edge in self.paid.values())

    def _edge(self, start, end, capacity):
        self.edges_of[start].append(len(self.to))
        self.edges_of[end].append(len(self.to) + 1)
        self.to += [end, start]
        self.full += [capacity, 0]
        self.left += [capacity, 0]

    def _find_levels(self):
        self.level = [-1] * len(self.edges_of)
        self.level[self.source] = 0
        front = [self.source]
        while front and self.level[self.sink] < 0:
            following = []
            for node in front:
                for edge in self.edges_of[node]:
                    end = self.to[edge]
                    if self.left[edge] > 0 and self.level[end] < 0:
                        self.level[end] = self.level[node] + 1
                        following.append(end)
            front = following
        return self.level[self.sink] >= 0

    def _push(self):
        """Along one of the shortest ways; whether there was any."""
        way, node = [], self.source
        while node != self.sink:
            edges, place = self.edges_of[node], self.next[node]
            while place < len(edges) and not (self.left[edges[place]] > 0 and self.level[self.to[edges[place]]] == self.level[node] + 1):
                place += 1
            self.next[node] = place
            if place < len(edges):
                way.append(edges[place])
                node = self.to[edges[place]]
            elif not way:
                return False
            else:
                node = self.to[way.pop() ^ 1]
                self.next[node] += 1
        amount = min(self.left[edge] for edge in way)
        for edge in way:
            self.left[edge] -= amount
            self.left[edge ^ 1] += amount
        return True
