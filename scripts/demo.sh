#!/usr/bin/env bash
# The demo: a GPT of about 10 M parameters learns the licence texts of this machine on 2 ranks, first over plain shared
# memory, then over an emulated link whose communication takes about half as long as the computation; each against the
# same steps without overlap, without buckets and with blocking MPI calls. WEFT_DEMO_SHORT=1 takes few steps (CI).
set -euo pipefail
source "$(dirname "$0")/lib.sh"

steps=${WEFT_DEMO_STEPS:-24}
if [[ -n ${WEFT_DEMO_SHORT:-} ]]; then steps=6; fi
ranks=2
out=build/demo

bash scripts/setup.sh
mkdir -p "$out"
say "build (release, train_gpt)"
configure_and_build release train_gpt

trainer=(build/release/bin/train_gpt --ranks "$ranks")
# The comparison with MPI needs ranks that mpirun started.
if command -v mpirun >/dev/null && grep -q '^WEFT_BUILT_WITH_MPI:INTERNAL=ON' build/release/CMakeCache.txt; then
  trainer=(mpirun -np "$ranks" build/release/bin/train_gpt)
fi

train() { # NAME ARGUMENT…
  local name=$1
  shift
  local command=("${trainer[@]}" --steps "$steps" --compare --trace "$out/$name.trace.json"
    --report-json "$out/$name.report.json" "$@")
  say "${command[*]}"
  local status=0
  timeout -k 10 900 "${command[@]}" || status=$?
  if [[ $status -eq 124 ]]; then
    echo "stopped after 900 s; this machine is busy (load $(cut -d' ' -f1-3 /proc/loadavg)): try WEFT_DEMO_STEPS=8 make demo" >&2
  fi
  [[ $status -eq 0 ]] || exit "$status"
  /usr/bin/python3 tools/plot_overlap.py "$out/$name.trace.json" "$out/$name.overlap.png"
}

train shared_memory --sample 0
train emulated_link --link auto

cat <<END

== done. Open:
  $PWD/$out/emulated_link.overlap.png    one step: computation, hidden and exposed communication
  $PWD/$out/emulated_link.trace.json     the same at any zoom: https://ui.perfetto.dev or chrome://tracing
  $PWD/$out/emulated_link.report.json    every figure printed above
  $PWD/$out/shared_memory.*              the same three for plain shared memory
END
