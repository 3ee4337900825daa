"""What operators take on a cluster: the formulas of docs/scheduler.md."""
import math


class Placement:
    """How a group's sets lie on hosts: the most of any set or host."""

    def __init__(self, sets, ranks_per_host):
        self.ranks = len(sets[0])
        self.hosts = self.per_host = self.sharing = 1
        leaving = {}
        for ranks in sets:
            count = {}
            for rank in ranks:
                count[rank // ranks_per_host] = count.get(rank // ranks_per_host, 0) + 1
            self.hosts = max(self.hosts, len(count))
            self.per_host = max(self.per_host, *count.values())
            if len(count) > 1:
                for host in count:
                    leaving[host] = leaving.get(host, 0) + 1
        if leaving:
            self.sharing = max(leaving.values())


class Costs:
    def __init__(self, cluster, groups):
        self.cluster = cluster
        self.placements = {name: Placement(sets, cluster["ranks_per_host"]) for name, sets in groups.items()}

    def resource(self, op):
        if op["kind"] == "collective":
            return "between_hosts" if self.placements[op["collective"]["group"]].hosts > 1 else "within_host"
        return "copy" if op["kind"] == "copy" else "compute"

    def seconds(self, op):
        """Of an operator by itself."""
        if op["kind"] == "collective":
            return self.measured_or_modelled(op)[0]
        if op.get("seconds") is not None:
            return op["seconds"]
        c = self.cluster
        if op["kind"] == "copy":
            return op.get("memory_bytes", 0) / (c["copy_bytes_per_s"] or c["memory_bytes_per_s"])
        return c["operator_s"] + max(op.get("flops", 0) / c["flops_per_s"], op.get("memory_bytes", 0) / c["memory_bytes_per_s"])

    def merged_seconds(self, ops):
        """Of collectives of one kind and group that are sent as one. Measured ones pay the longest of their latencies
        once."""
        if len(ops) == 1:
            return self.seconds(ops[0])
        if all(op.get("seconds") is None for op in ops):
            total = sum(op["collective"]["bytes"] for op in ops)
            return min(latency + transfer for latency, transfer in self.algorithms(ops[0]["collective"], total))
        parts = [self.measured_or_modelled(op) for op in ops]
        return sum(seconds - latency for seconds, latency in parts) + max(latency for _, latency in parts)

    def measured_or_modelled(self, op):
        """Seconds, and how many of them are latency."""
        latency, transfer = min(self.algorithms(op["collective"], op["collective"]["bytes"]), key=sum)
        if op.get("seconds") is None:
            return latency + transfer, latency
        return op["seconds"], min(latency, op["seconds"])

    def least_within_another(self, op):
        """What a collective adds, at the least, to one that it is merged into."""
        if op.get("seconds") is not None:
            seconds, latency = self.measured_or_modelled(op)
            return seconds - latency
        return min(transfer for _, transfer in self.algorithms(op["collective"], op["collective"]["bytes"]))

    def algorithms(self, collective, size):
        """(latency, transfer) of each algorithm: ring, two levels, trees."""
        group, kind = self.placements[collective["group"]], collective["kind"]
        n, hosts, local = group.ranks, group.hosts, group.per_host
        if n <= 1:
            return [(0, 0)]
        inside, outside = self.cluster["within"], self.cluster["between"]
        link = outside["bytes_per_s"] / group.sharing
        step = max(outside["step_s"], inside["step_s"]) if hosts > 1 else inside["step_s"]
        if hosts == 1:
            hop = inside["bytes_per_s"]
        else:
            hop = min(inside["bytes_per_s"], link) if local > 1 else link
        passes = 2 if kind == "all_reduce" else 1
        if kind == "all_to_all":
            within = size * (local - 1) / n / inside["bytes_per_s"]
            between = size * local * (n - local) / n / link if hosts > 1 else 0
            return [((n - 1) * step, max(within, between))]
        if kind == "permute":
            return [(step, size / hop)]
        if kind == "broadcast":
            found = [((n - 1) * step, size / hop)]
        else:
            found = [(passes * (n - 1) * step, passes * size * (n - 1) / n / hop)]
            if hosts > 1 and local > 1:
                steps = (hosts - 1) * step + (local - 1) * inside["step_s"]
                busiest = max(size * (local - 1) / local / inside["bytes_per_s"], size * (hosts - 1) / hosts / link)
                found.append((passes * steps, passes * busiest))
        if kind in ("all_reduce", "broadcast"):
            depth = math.ceil(math.log2(hosts)) if hosts > 1 else 0
            found.append((passes * (depth * step + (local - 1) * inside["step_s"]), passes * size / hop))
        return found
