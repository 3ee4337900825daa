#include "collectives/still_in_use.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft {

std::exception_ptr still_in_use(std::exception_ptr const& error, Call const& call) {
  try {
    std::rethrow_exception(error);
  } catch (Error const& why) {
    return std::make_exception_ptr(
        Error(why.code(), fmt::format("{} ({} did not stop: the buffers of {} are still in use; neither free nor use "
                                      "them until its stream is through)",
                                      why.what(), to_string(call.device), describe(call))));
  } catch (...) {
    return error;
  }
}

}  // namespace weft
