#include "sharding/flat_memory.hpp"

#include <cstring>

namespace weft {

Buffer allocate_bytes(Communicator& communicator, std::size_t bytes, MemoryKind kind) {
  MemoryScope const scope(kind);
  return bytes == 0 ? Buffer() : communicator.allocate(bytes, DataType::u8);
}

void overwrite(BufferView const& view) noexcept {
  if (view.count != 0) std::memset(view.data, 0xff, view.bytes());
}

}  // namespace weft
