#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <vector>

namespace weft::test {

/// While it lives, kernels run the code compiled for one SIMD target, as they would on a machine that has nothing
/// better.
class UseTarget {
 public:
  explicit UseTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
  ~UseTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  UseTarget(UseTarget const&) = delete;
  UseTarget& operator=(UseTarget const&) = delete;
};

/// The targets that this machine can run; kernels compiled for fewer fall back to their baseline.
inline std::vector<std::int64_t> runnable_targets() {
  return hwy::SupportedAndGeneratedTargets();
}

}  // namespace weft::test
