#include "bucketing/host_stream.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"
#ifdef WEFT_WITH_CUDA
#include "weft/cuda_graph.hpp"
#endif

namespace weft {

Stream const& HostStream::beside(Stream const& stream, [[maybe_unused]] char const* what) {
  if (stream.device().type == DeviceType::cpu) return stream;
#ifdef WEFT_WITH_CUDA
  if (cuda::is_capturing(stream)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} cannot be found out within a CUDA graph, whose replays would not ask again; capture "
                            "steps without that",
                            what));
  }
#endif
  if (!own_) own_ = Stream::cpu({.name = "weft-facts", .cpu = {}});
  return *own_;
}

}  // namespace weft
