#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/weft.hpp"

namespace weft::test {

inline constexpr std::size_t kBadCallCount = 6;  ///< elements of a part

/// What may be passed to any of Communicator's functions; each uses what it takes.
struct Arguments {
  ConstBufferView send{};
  BufferView recv{};
  std::vector<std::size_t> counts{};  ///< of the parts, where they are unequal
  std::vector<std::size_t> offsets{};
  Reduction how = ReduceOp::sum;
  int root = 0;  ///< or the rank to send to
  int from = 0;
  CollectiveOptions options{};

  [[nodiscard]] Parts parts() const { return {counts, offsets}; }
};

/// One of Communicator's functions, and which arguments it takes.
struct Function {
  char const* name;   ///< as errors call it
  std::size_t sends;  ///< parts in send; 0: it takes none
  std::size_t recvs;  ///< parts in recv
  bool reduces = false;
  bool rooted = false;
  bool sends_parts = false;  ///< `parts` divide send
  bool recvs_parts = false;
  bool is_message = false;
  Work (*call)(Communicator&, Arguments const&) = nullptr;

  [[nodiscard]] bool has_parts() const noexcept { return sends_parts || recvs_parts; }
};

inline constexpr int kBadCallRanks = 3;

inline std::vector<Function> const& all_functions() {
  using C = Communicator;
  using A = Arguments;
  constexpr std::size_t n = kBadCallRanks;
  static std::vector<Function> const functions{
      {.name = "all_reduce",
       .sends = 1,
       .recvs = 1,
       .reduces = true,
       .call = [](C& c, A const& a) { return c.all_reduce(a.send, a.recv, a.how, a.options); }},
      {.name = "reduce",
       .sends = 1,
       .recvs = 1,
       .reduces = true,
       .rooted = true,
       .call = [](C& c, A const& a) { return c.reduce(a.send, a.recv, a.how, a.root, a.options); }},
      {.name = "reduce_scatter",
       .sends = n,
       .recvs = 1,
       .reduces = true,
       .call = [](C& c, A const& a) { return c.reduce_scatter(a.send, a.recv, a.how, a.options); }},
      {.name = "reduce_scatter_v",
       .sends = n,
       .recvs = 1,
       .reduces = true,
       .sends_parts = true,
       .call = [](C& c, A const& a) { return c.reduce_scatter(a.send, a.recv, a.parts(), a.how, a.options); }},
      {.name = "scan",
       .sends = 1,
       .recvs = 1,
       .reduces = true,
       .call = [](C& c, A const& a) { return c.scan(a.send, a.recv, a.how, a.options); }},
      {.name = "exscan",
       .sends = 1,
       .recvs = 1,
       .reduces = true,
       .call = [](C& c, A const& a) { return c.exscan(a.send, a.recv, a.how, a.options); }},
      {.name = "all_gather",
       .sends = 1,
       .recvs = n,
       .call = [](C& c, A const& a) { return c.all_gather(a.send, a.recv, a.options); }},
      {.name = "all_gather_v",
       .sends = 1,
       .recvs = n,
       .recvs_parts = true,
       .call = [](C& c, A const& a) { return c.all_gather(a.send, a.recv, a.parts(), a.options); }},
      {.name = "gather",
       .sends = 1,
       .recvs = n,
       .rooted = true,
       .call = [](C& c, A const& a) { return c.gather(a.send, a.recv, a.root, a.options); }},
      {.name = "gather_v",
       .sends = 1,
       .recvs = n,
       .rooted = true,
       .recvs_parts = true,
       .call = [](C& c, A const& a) { return c.gather(a.send, a.recv, a.parts(), a.root, a.options); }},
      {.name = "scatter",
       .sends = n,
       .recvs = 1,
       .rooted = true,
       .call = [](C& c, A const& a) { return c.scatter(a.send, a.recv, a.root, a.options); }},
      {.name = "scatter_v",
       .sends = n,
       .recvs = 1,
       .rooted = true,
       .sends_parts = true,
       .call = [](C& c, A const& a) { return c.scatter(a.send, a.parts(), a.recv, a.root, a.options); }},
      {.name = "all_to_all",
       .sends = n,
       .recvs = n,
       .call = [](C& c, A const& a) { return c.all_to_all(a.send, a.recv, a.options); }},
      {.name = "all_to_all_v",
       .sends = n,
       .recvs = n,
       .sends_parts = true,
       .recvs_parts = true,
       .call = [](C& c, A const& a) { return c.all_to_all(a.send, a.parts(), a.recv, a.parts(), a.options); }},
      {.name = "broadcast",
       .sends = 0,
       .recvs = 1,
       .rooted = true,
       .call = [](C& c, A const& a) { return c.broadcast(a.recv, a.root, a.options); }},
      {.name = "barrier", .sends = 0, .recvs = 0, .call = [](C& c, A const& a) { return c.barrier(a.options); }},
      {.name = "send",
       .sends = 1,
       .recvs = 0,
       .is_message = true,
       .call = [](C& c, A const& a) { return c.send(a.send, a.root, a.options); }},
      {.name = "recv",
       .sends = 0,
       .recvs = 1,
       .is_message = true,
       .call = [](C& c, A const& a) { return c.recv(a.recv, a.from, a.options); }},
      {.name = "send_recv", .sends = 1, .recvs = 1, .is_message = true, .call = [](C& c, A const& a) {
         return c.send_recv(a.send, a.root, a.recv, a.from, a.options);
       }}};
  return functions;
}

/// Memory of one rank, and good arguments in it for every function.
class GoodArguments {
 public:
  explicit GoodArguments(int rank) : rank_(rank), send_(100, 1.0F), recv_(100, 2.0F) {}

  [[nodiscard]] Arguments of(Function const& function) {
    Arguments good;
    good.send = std::span<float const>(send_).first(function.sends * kBadCallCount);
    good.recv = std::span(recv_).first(function.recvs * kBadCallCount);
    if (function.has_parts()) good.counts.assign(kBadCallRanks, kBadCallCount);
    good.root = function.is_message ? (rank_ + 1) % kBadCallRanks : 0;
    good.from = (rank_ + kBadCallRanks - 1) % kBadCallRanks;
    return good;
  }

  [[nodiscard]] std::vector<float> const& recv() const noexcept { return recv_; }

 private:
  int rank_;
  std::vector<float> send_;
  std::vector<float> recv_;
};

}  // namespace weft::test
