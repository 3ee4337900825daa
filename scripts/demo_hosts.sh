#!/usr/bin/env bash
# The demo between hosts: the GPT of `make demo` on two hosts of one rank each, joined by a link of 1 Gb/s. The hosts are
# namespaces of this machine (tests/hosts), the link and TCP are real. mpirun starts the ranks, UCX moves their data (unless MPI is measured to be faster).
# WEFT_DEMO_SHORT=1 takes few steps.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

steps=${WEFT_DEMO_STEPS:-24}
if [[ -n ${WEFT_DEMO_SHORT:-} ]]; then steps=6; fi
rate=${WEFT_DEMO_RATE:-1gbit}
out=build/demo

bash scripts/setup.sh
mkdir -p "$out"
say "build (release, train_gpt)"
configure_and_build release train_gpt

command=(tests/hosts/run_on_hosts.py --hosts 2 --rate "$rate" -- build/release/bin/train_gpt --steps "$steps" --compare --sample 0
  --trace "$out/hosts.trace.json" --report-json "$out/hosts.report.json")
say "${command[*]}"
timeout -k 10 900 "${command[@]}"
/usr/bin/python3 tools/plot_overlap.py --title "Two hosts at $rate: communication under computation" \
  "$out/hosts.trace.json" "$out/hosts.overlap.png"

cat <<END

== done. Open:
  $PWD/$out/hosts.overlap.png    one step: computation, hidden and exposed communication
  $PWD/$out/hosts.trace.json     the same at any zoom: https://ui.perfetto.dev or chrome://tracing
  $PWD/$out/hosts.report.json    every figure printed above
END
