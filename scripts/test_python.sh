# Sourced by test.sh: PyTorch's part. Without torch it says so and counts nothing; the rest of `make test` goes on.
say "python/weft: environment and build"
python_status=0
make_python || python_status=$?
case $python_status in
0)
  passed=$((passed + 1))
  # What gloo makes of the same tests depends on torch alone, which is pinned: `make torch-compat` runs both.
  WEFT_TEST_BACKENDS=weft run_pytest "python" -m "not slow" python/weft/tests
  run_pytest "python examples" tests/examples
  run_distributed_test "torch's DistributedTest on weft" --backend weft --ranks 2 \
    --tests-from tools/torch_compat/quick.txt
  ;;
3) echo "python: SKIPPED (the line above says why): python/weft is neither built nor tested, nor are the PyTorch examples" ;;
*)
  failed=$((failed + 1))
  failures+=("build (python/weft)")
  ;;
esac
