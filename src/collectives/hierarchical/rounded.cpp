#include "collectives/hierarchical/rounded.hpp"

#include <algorithm>

namespace weft::hierarchical {
namespace {

float* floats(Buffer const& buffer) noexcept {
  return static_cast<float*>(buffer.data());
}
std::byte* bytes(Buffer const& buffer) noexcept {
  return static_cast<std::byte*>(buffer.data());
}

}  // namespace

bool HierarchicalBackend::is_rounded(Call const& call) const noexcept {
  auto const op = call.contract.reduce;
  auto const crosses = layout_.hosts().size() > 1;
  return wire_ != WireFormat::f32 && crosses && call.contract.dtype == DataType::f32 && call.grain() == sizeof(float) &&
         (op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum);
}

HierarchicalBackend::Rounded::Rounded(HierarchicalBackend& backend, Call const& call, Ranges const& parts)
    : backend_(backend), call_(call), as_bytes_(call), parts_(parts), order_(backend.layout_.hosts()) {
  as_bytes_.contract.dtype = DataType::u8;
  for (auto const& part : parts) longest_ = std::max(longest_, part.count);
  // All ranks must cut equal blocks, so they use the most rounds that a host needs.
  auto const hosts = layout().hosts().size();
  auto const rounds = layout().most_rounds();
  auto const room = block_bytes(2 * (rounds + hosts)) / sizeof(float);
  block_ = std::min(longest_, room / kernels::kWireBlock * kernels::kWireBlock);
  wire_block_ = wire_bytes(block_);
  partials_ = backend.workspace(block_ * rounds, DataType::f32);
  outgoing_ = backend.workspace(wire_block_ * rounds, DataType::u8);
  arrived_ = backend.workspace(wire_block_ * std::max(hosts, rounds), DataType::u8);
  contributions_ = backend.workspace(block_ * hosts, DataType::f32);
  if (call.feedback == nullptr) return;
  feedback_ = &call.feedback->state();
  feedback_->fit(longest_ * layout().rounds().size(), mine().count);
}

std::size_t HierarchicalBackend::Rounded::left(int owner, std::size_t first) const noexcept {
  auto const& part = parts_[static_cast<std::size_t>(owner)];
  return part.count > first ? std::min(block_, part.count - first) : 0;
}

int HierarchicalBackend::Rounded::owner_in(std::span<int const> round) const noexcept {
  auto const own = static_cast<std::size_t>(layout().local_index(backend_.rank()));
  return own < round.size() ? round[own] : -1;
}

void HierarchicalBackend::Rounded::all_reduce(void const* send, float* recv) {
  run(send, recv + mine().first, recv);
  backend_.share_inside(call_, recv, parts_);
}

void HierarchicalBackend::Rounded::run(void const* send, float* result, float* all) {
  for (std::size_t first = 0; first < longest_; first += block_) {
    backend_.combine_inside(call_, send, block_of(parts_, first / block_, block_), block_, partials_.data());
    pack_contributions(first);
    exchange_contributions(first);
    combine(first, result);
    if (all != nullptr) share(first, result, all);
  }
}

void HierarchicalBackend::Rounded::pack(float const* values, float* residual, std::byte* wire, std::size_t count) {
  if (backend_.work_.carries_data()) kernels::pack(backend_.wire_, values, residual, wire, count);
}

void HierarchicalBackend::Rounded::unpack(std::byte const* wire, float* values, std::size_t count) {
  if (backend_.work_.carries_data()) kernels::unpack(backend_.wire_, wire, values, count);
}

void HierarchicalBackend::Rounded::pack_contributions(std::size_t first) {
  auto const rounds = layout().rounds();
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    auto const owner = owner_in(rounds[r]);
    if (owner < 0) continue;
    auto* const residual = feedback_ == nullptr ? nullptr : feedback_->contributions.data() + r * longest_ + first;
    pack(floats(partials_) + r * block_, residual, bytes(outgoing_) + r * wire_block_, left(owner, first));
  }
}

void HierarchicalBackend::Rounded::exchange_contributions(std::size_t first) {
  auto const rank = backend_.rank();
  PartArrays given;
  PartArrays got;
  for (int peer = 0; peer < layout().size(); ++peer) {
    auto const host = static_cast<std::size_t>(layout().host_of(peer));
    auto const gives = !layout().is_local(peer) && layout().courier(peer, layout().locals()) == rank;
    auto const gets = !layout().is_local(peer) && layout().courier(rank, layout().hosts()[host]) == peer;
    given.add(layout().round_of(peer) * wire_block_, gives ? wire_bytes(left(peer, first)) : 0);
    got.add(host * wire_block_, gets ? wire_bytes(left(rank, first)) : 0);
  }
  backend_.exchange(as_bytes_, outgoing_.data(), given, arrived_.data(), got, &HierarchicalBackend::run_inter);
}

void HierarchicalBackend::Rounded::combine(std::size_t first, float* result) {
  auto const rank = backend_.rank();
  auto const count = left(rank, first);
  if (count == 0) return;
  auto const hosts = layout().hosts().size();
  std::vector<void const*> sources;
  for (std::size_t host = 0; host < hosts; ++host) {
    auto const own = host == static_cast<std::size_t>(layout().host_of(rank));
    auto const* const wire =
        own ? bytes(outgoing_) + layout().round_of(rank) * wire_block_ : bytes(arrived_) + host * wire_block_;
    auto* const values = floats(contributions_) + host * block_;
    unpack(wire, values, count);
    sources.push_back(values);
  }
  backend_.work_.reduce(result + first, sources, count, DataType::f32,
                        {HostOrder::levels(call_.contract.reduce).between, order_.weights().data(), {}});
}

void HierarchicalBackend::Rounded::share(std::size_t first, float* result, float* all) {
  auto const rank = backend_.rank();
  auto const count = left(rank, first);
  if (count > 0) {
    auto* const residual = feedback_ == nullptr ? nullptr : feedback_->results.data() + first;
    pack(result + first, residual, bytes(outgoing_), count);
    unpack(bytes(outgoing_), result + first, count);
  }
  PartArrays given;
  PartArrays got;
  std::vector<int> owners;
  for (int peer = 0; peer < layout().size(); ++peer) {
    auto const& theirs = layout().hosts()[static_cast<std::size_t>(layout().host_of(peer))];
    auto const sends = !layout().is_local(peer) && layout().courier(rank, theirs) == peer;
    auto const gets = !layout().is_local(peer) && layout().courier(peer, layout().locals()) == rank;
    given.add(0, sends ? wire_bytes(count) : 0);
    got.add(owners.size() * wire_block_, gets ? wire_bytes(left(peer, first)) : 0);
    if (gets) owners.push_back(peer);
  }
  backend_.exchange(as_bytes_, outgoing_.data(), given, arrived_.data(), got, &HierarchicalBackend::run_inter);
  for (std::size_t i = 0; i < owners.size(); ++i) {
    auto* const values = all + parts_[static_cast<std::size_t>(owners[i])].first + first;
    unpack(bytes(arrived_) + i * wire_block_, values, left(owners[i], first));
  }
}

}  // namespace weft::hierarchical
