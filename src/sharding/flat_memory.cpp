#include "sharding/flat_memory.hpp"

#include <cstring>

namespace weft {

Buffer allocate_bytes(Communicator& communicator, std::size_t bytes, MemoryKind kind, Device device) {
  MemoryScope const scope(kind);
  if (bytes == 0) return {nullptr, 0, DataType::u8, device};
  return communicator.allocate(bytes, DataType::u8, device);
}

void overwrite(BufferView const& view) noexcept {
  if (view.count != 0) std::memset(view.data, kNanByte, view.bytes());
}

}  // namespace weft
