#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "weft/data_type.hpp"
#include "weft/device.hpp"

namespace weft {

/// Non-owning view of `count` elements that are only read. Never dereferenced by construction or copying.
struct ConstBufferView {
  void const* data = nullptr;
  std::size_t count = 0;  ///< elements
  DataType dtype = DataType::f32;
  Device device{};

  ConstBufferView() = default;
  ConstBufferView(void const* pointer, std::size_t elements, DataType type, Device where = {})
      : data(pointer), count(elements), dtype(type), device(where) {}
  template <typename T, std::size_t Extent>
  ConstBufferView(std::span<T, Extent> elements)  // NOLINT(google-explicit-constructor): a span is a view
      : ConstBufferView(elements.data(), elements.size(), data_type_of<std::remove_const_t<T>>) {}

  [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(dtype); }
};

/// Non-owning view of `count` elements that may be written. The memory must outlive every Work that uses the view.
struct BufferView {
  void* data = nullptr;
  std::size_t count = 0;  ///< elements
  DataType dtype = DataType::f32;
  Device device{};

  BufferView() = default;
  BufferView(void* pointer, std::size_t elements, DataType type, Device where = {})
      : data(pointer), count(elements), dtype(type), device(where) {}
  template <typename T, std::size_t Extent>
  BufferView(std::span<T, Extent> elements)  // NOLINT(google-explicit-constructor): a span is a view
      : BufferView(elements.data(), elements.size(), data_type_of<T>) {}

  [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(dtype); }

  /// Elements [offset, offset + elements); the caller keeps the range inside the view.
  [[nodiscard]] BufferView slice(std::size_t offset, std::size_t elements) const noexcept {
    return {static_cast<std::byte*>(data) + offset * size_of(dtype), elements, dtype, device};
  }

  operator ConstBufferView() const noexcept {  // NOLINT(google-explicit-constructor): adding const
    return {data, count, dtype, device};
  }
};

/// Move-only owner of memory; 64-byte aligned at least. Destruction releases this rank's hold on the memory and never
/// throws.
class Buffer {
 public:
  Buffer() = default;
  /// Adopts `owner`, whose deleter releases the memory. Used by allocators.
  Buffer(std::shared_ptr<void> owner, std::size_t count, DataType dtype, Device device)
      : owner_(std::move(owner)), view_(owner_.get(), count, dtype, device) {}
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&&) noexcept = default;
  Buffer(Buffer const&) = delete;
  Buffer& operator=(Buffer const&) = delete;
  ~Buffer() = default;

  /// Zero-filled private host memory of `count` elements. @throws Error{out_of_memory}
  [[nodiscard]] static Buffer host(std::size_t count, DataType dtype);

  [[nodiscard]] BufferView view() const noexcept { return view_; }
  [[nodiscard]] std::size_t count() const noexcept { return view_.count; }
  [[nodiscard]] DataType dtype() const noexcept { return view_.dtype; }
  [[nodiscard]] void* data() const noexcept { return view_.data; }
  /// The memory stays for as long as somebody holds this.
  [[nodiscard]] std::shared_ptr<void> const& owner() const noexcept { return owner_; }

  /// The elements as T; T must be the buffer's type. @throws Error{invalid_argument} when it is not.
  template <typename T>
  [[nodiscard]] std::span<T> as() const {
    check_type(data_type_of<T>);
    return {static_cast<T*>(view_.data), view_.count};
  }

 private:
  void check_type(DataType wanted) const;

  std::shared_ptr<void> owner_;
  BufferView view_;
};

}  // namespace weft
