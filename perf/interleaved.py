"""Times ways of doing the same thing side by side in one run."""

import time


def interleaved(sides, rounds):
    """Milliseconds of each side's rounds but the first; the side that begins changes from round to round.

    A side is called once a round, after its prepare(), which is not timed.
    """
    times = {name: [] for name in sides}
    names = list(sides)
    for turn in range(rounds + 1):
        for i in range(len(names)):
            name = names[(i + turn) % len(names)]
            sides[name].prepare()
            start = time.perf_counter()
            sides[name]()
            if turn > 0:
                times[name].append((time.perf_counter() - start) * 1e3)
    return times
