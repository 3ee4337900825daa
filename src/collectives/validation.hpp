#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/call.hpp"
#include "weft/buffer.hpp"
#include "weft/communicator.hpp"
#include "weft/config.hpp"
#include "weft/error.hpp"
#include "weft/reduction.hpp"

namespace weft {

/// Checks this rank's arguments before anything is sent. The function of each operation returns the call ready to run,
/// but for its sequence and timeout.
/// @throws Error{invalid_argument} naming the rank, the operation, the number that the call would have had, the
/// argument and what is allowed; Error{unsupported} for host memory with a device's stream.
struct Validator {
  int rank = 0;
  int size = 1;
  std::string name{};                                       ///< the communicator's name, for messages
  std::atomic<std::uint64_t> const* collectives = nullptr;  ///< the number of collective calls so far
  std::uint64_t const* transfers = nullptr;                 ///< the number of point-to-point calls so far

  [[nodiscard, gnu::hot]] Call all_reduce(ConstBufferView const& send, BufferView const& recv,
                                          Reduction const& how) const;
  [[nodiscard, gnu::hot]] Call reduce_scatter(ConstBufferView const& send, BufferView const& recv,
                                              Reduction const& how) const;
  [[nodiscard, gnu::hot]] Call all_gather(ConstBufferView const& send, BufferView const& recv) const;
  [[nodiscard]] Call reduce_scatter(ConstBufferView const& send, BufferView const& recv, Parts const& parts,
                                    Reduction const& how) const;
  [[nodiscard]] Call all_gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts) const;
  [[nodiscard, gnu::hot]] Call reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                                      int root) const;
  [[nodiscard, gnu::hot]] Call gather(ConstBufferView const& send, BufferView const& recv, int root) const;
  [[nodiscard]] Call gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts, int root) const;
  [[nodiscard, gnu::hot]] Call scatter(ConstBufferView const& send, BufferView const& recv, int root) const;
  [[nodiscard]] Call scatter(ConstBufferView const& send, Parts const& parts, BufferView const& recv, int root) const;
  [[nodiscard, gnu::hot]] Call all_to_all(ConstBufferView const& send, BufferView const& recv) const;
  [[nodiscard]] Call all_to_all(ConstBufferView const& send, Parts const& send_parts, BufferView const& recv,
                                Parts const& recv_parts) const;
  [[nodiscard]] Call scan(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                          bool inclusive) const;
  [[nodiscard, gnu::hot]] Call broadcast(BufferView const& buffer, int root) const;
  [[nodiscard]] Call send(ConstBufferView const& buffer, int to) const;
  [[nodiscard]] Call recv(BufferView const& buffer, int from) const;
  [[nodiscard]] Call send_recv(ConstBufferView const& send, int to, BufferView const& recv, int from) const;
  [[nodiscard]] Call allocate(std::size_t count, DataType dtype, Device device) const;

  void check_options(Call const& call, CollectiveOptions const& how) const {
    if (!are_good(how, call.device)) [[unlikely]]
      reject_options(to_string(call.contract.operation), is_point_to_point(call.contract.operation), how, call.device);
  }
  /// The same for a function that is no operation; a stream must be of `device`.
  void check_options(std::string_view function, CollectiveOptions const& how, Device device = {}) const {
    if (!are_good(how, device)) reject_options(function, false, how, device);
  }
  /// Makes a tag other than 0 part of the call's contract.
  void set_tag(Call& call, std::uint32_t tag) const;
  /// For a message outside of a group: one to the rank itself would wait for itself.
  void check_peer_is_another(Call const& call) const;
  void check_color(int color, int none) const;

  /// "rank 1 of NAME: FUNCTION, call 8: why", as all errors of this communicator's calls begin.
  [[nodiscard]] std::string explain(std::string_view function, std::string const& why) const {
    return explain(function, false, why);
  }
  [[noreturn]] void reject(std::string_view function, std::string const& why) const;
  [[noreturn]] void reject(Operation operation, std::string const& why) const;
  [[noreturn]] void fail(ErrorCode code, Operation operation, std::string const& why) const;

 private:
  /// Begins all operations with two buffers: checks that each buffer is plausible and that both have one type.
  [[nodiscard]] Call open(Operation operation, ConstBufferView const& send, BufferView const& recv) const;
  [[nodiscard]] Call open(Operation operation, ConstBufferView const& send, BufferView const& recv, int root) const;
  /// The same for reductions; `part`: the part of a buffer that is reduced by itself.
  [[nodiscard]] Call open(Operation operation, ConstBufferView const& send, BufferView const& recv,
                          Reduction const& how, ConstBufferView const& part) const;
  void set_root(Call& call, int root) const;

  // A template for both views, so that neither is copied to become the other.
  template <typename View>
  void check_view(Operation operation, char const* what, View const& view) const {
    bool const plausible = is_valid(view.dtype) && (view.data != nullptr || view.count == 0) &&
                           view.count >> PackedContract::kCountBits == 0;
    if (!plausible) [[unlikely]]
      reject_view(operation, what, view);
  }
  /// The device that both views are on; an empty view may be anywhere.
  [[nodiscard]] Device device_of(Operation operation, ConstBufferView const& send, BufferView const& recv) const {
    return send.device == recv.device ? send.device : device_of_either(operation, send, recv);
  }
  [[nodiscard]] Device device_of_either(Operation operation, ConstBufferView send, ConstBufferView recv) const;
  [[noreturn]] void reject_view(Operation operation, char const* what, ConstBufferView view) const;
  void check_overlap(Operation operation, ConstBufferView const& send, BufferView const& recv,
                     void const* in_place_send, void const* in_place_recv) const;
  void examine_reduction(Operation operation, Reduction const& how, ConstBufferView const& part) const;
  void check_peer(Operation operation, int peer) const;
  /// There must be as many counts and offsets as ranks, and all parts must lie inside `view`; parts that are written
  /// must not overlap.
  void check_parts(Operation operation, char const* what, ConstBufferView const& view, Parts const& parts,
                   bool written) const;
  /// In place the result overwrites this rank's part, so no other part may share elements with it.
  void check_own_part_is_apart(Operation operation, Parts const& parts) const;
  void check_count(Operation operation, char const* what, std::size_t count, std::size_t wanted) const;
  [[nodiscard]] static bool are_good(CollectiveOptions const& how, Device device) {
    return !(how.timeout && !is_timeout(*how.timeout)) && !(how.stream && how.stream->device() != device);
  }
  [[noreturn]] void reject_options(std::string_view function, bool is_message, CollectiveOptions const& how,
                                   Device device) const;
  [[nodiscard]] std::string explain(std::string_view function, bool is_message, std::string const& why) const;
  [[noreturn]] void fail(ErrorCode code, std::string_view function, bool is_message, std::string const& why) const;
};

}  // namespace weft
