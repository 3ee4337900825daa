#!/usr/bin/env bash
# torch_compat.sh: torch's DistributedTest and python/weft/tests, all of both on gloo and on weft, into
# docs/torch-compatibility.md (15 minutes on 2 cores). Fails where a test passes on gloo and not on weft.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

bash scripts/setup.sh
say "python/weft: environment and build"
make_python
SECONDS=0
results=build/torch-compat
mkdir -p "$results"

for ranks in 2 4; do
  for backend in gloo weft; do
    say "torch's DistributedTest, $backend, $ranks ranks"
    build/python/bin/python tools/torch_compat/run_distributed_test.py --backend "$backend" --ranks "$ranks" \
      --json "$results/$backend-$ranks.json" >"$results/$backend-$ranks.log" 2>&1 || true  # the report tells
    tail -n 1 "$results/$backend-$ranks.log"
  done
done

say "python/weft/tests"
build/python/bin/python -m pytest -q --disable-warnings -p no:cacheprovider --junitxml "$results/pytest.junit" \
  python/weft/tests || true
build/python/bin/python tools/torch_compat/write_report.py "$results" docs/torch-compatibility.md "$SECONDS"
