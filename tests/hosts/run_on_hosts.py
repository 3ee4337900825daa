#!/usr/bin/env python3
"""Runs a program on several "hosts" of this one machine, joined by links of a given rate (hosts.py says what they are):

    tests/hosts/run_on_hosts.py --hosts 2 --ranks-per-host 2 --rate 1gbit -- PROGRAM ARGUMENT…

Everything that it makes ends with it. Exits as the program does, with 77 where test hosts are not permitted."""

import argparse
import sys

import hosts as test_hosts
import starts


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="how many (default: 2)")
    parser.add_argument("--ranks-per-host", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument("--rails", type=int, default=1, metavar="N", help="links of each host, eth0, eth1, … (default: 1)")
    parser.add_argument("--rate", default="1gbit", help="of each host's link, each way, as tc writes it (default: 1gbit)")
    parser.add_argument("--burst", type=int, default=32 * 1024, metavar="BYTES", help="may leave at once (default: 32768)")
    parser.add_argument("--start", choices=["mpirun", "torchrun"], default="mpirun",
                        help="mpirun (default), or RANK, WORLD_SIZE, MASTER_ADDR and so on as torchrun sets them")
    parser.add_argument("--mca", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="for Open MPI")
    parser.add_argument("--bytes", action="store_true", help="say on stderr what each host has sent through its link")
    parser.add_argument("program", nargs="+", help="and its arguments, after --")
    options = parser.parse_args()
    if not 1 <= options.hosts <= 200 or not 1 <= options.ranks_per_host <= 256:
        parser.error("expected 1 to 200 hosts and 1 to 256 ranks on each")
    if not 1 <= options.rails <= 8:
        parser.error("--rails: expected 1 to 8")
    if not 1600 <= options.burst <= 1 << 30:
        parser.error("--burst: expected 1600 bytes, a packet, to 1 GiB")
    return options


def main():
    options = parse()
    test_hosts.enter_world()
    try:
        hosts = test_hosts.Hosts(options.hosts, test_hosts.Link(options.rate, options.burst), options.rails)
    except OSError as refused:
        sys.exit(f"run_on_hosts.py: the hosts cannot be made, with links of --rate {options.rate}: {str(refused).splitlines()[0]}")
    before = [host.bytes_sent() for host in hosts]
    mca = [word for setting in options.mca for word in ("--mca", *setting)]
    code = starts.run(hosts, options.ranks_per_host, options.program, options.start, mca)
    if options.bytes:
        for host, sent in zip(hosts, before):
            rails = ", ".join(f"eth{rail} {host.bytes_sent(rail)}" for rail in range(options.rails))
            print(f"{host.name} sent {host.bytes_sent() - sent} bytes" + (f" ({rails} in all)" if options.rails > 1 else ""), file=sys.stderr)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
