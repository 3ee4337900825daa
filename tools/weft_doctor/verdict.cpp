#include "weft_doctor/verdict.hpp"

namespace weft::doctor {

char const* to_string(Finding finding) noexcept {
  switch (finding) {
    case Finding::nothing: return "nothing";
    case Finding::missing_dump: return "missing_dump";
    case Finding::mismatch: return "mismatch";
    case Finding::unanswered: return "unanswered";
    case Finding::behind: return "behind";
    case Finding::late: return "late";
    case Finding::failed: return "failed";
    case Finding::unmade: return "unmade";
  }
  return "unknown";
}

}  // namespace weft::doctor
