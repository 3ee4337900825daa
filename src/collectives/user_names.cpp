#include "collectives/user_names.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>

namespace weft {
namespace {

/// A reduction's name, in a list per fingerprint. Never freed: errors may need it until the process ends, and a program
/// has few reductions of its own.
struct Known {
  std::string name;
  std::size_t element_bytes;
  Known const* next;
};

std::array<std::atomic<Known const*>, 256> all_known{};

bool is_in(Known const* known, std::string_view name, std::size_t element_bytes) {
  for (; known != nullptr; known = known->next) {
    if (known->element_bytes == element_bytes && known->name == name) return true;
  }
  return false;
}

std::string describe(Known const& known) {
  return known.element_bytes == 0 ? known.name : fmt::format("{} of {}-byte elements", known.name, known.element_bytes);
}

}  // namespace

void remember_user_name(std::uint8_t fingerprint, std::string_view name, std::size_t element_bytes) {
  auto& slot = all_known[fingerprint];
  auto const* first = slot.load(std::memory_order_acquire);
  if (is_in(first, name, element_bytes)) [[likely]]
    return;
  auto* const known = new Known{std::string(name), element_bytes, first};
  while (!slot.compare_exchange_weak(known->next, known, std::memory_order_acq_rel)) {
    if (!is_in(known->next, name, element_bytes)) continue;
    delete known;
    return;
  }
}

std::string describe_user(std::uint8_t fingerprint) {
  std::string names;
  for (auto const* known = all_known[fingerprint].load(std::memory_order_acquire); known != nullptr;
       known = known->next) {
    if (!names.empty()) names += " or ";
    names += describe(*known);
  }
  return names.empty() ? fmt::format("user {:02x}", fingerprint) : fmt::format("user {:02x}: {}", fingerprint, names);
}

}  // namespace weft
