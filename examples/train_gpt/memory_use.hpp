#pragma once

#include <cstddef>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/communicator.hpp>
#include <weft/memory.hpp>

namespace train_gpt {

/// Bytes of this process: its own pages, and of those that several share an equal part each. 0 where the kernel does
/// not say.
[[nodiscard]] std::size_t proportional_set_size();

/// Bytes that this host could give to new processes. Unlimited where the kernel does not say.
[[nodiscard]] std::size_t available_memory();

/// Every rank's account and proportional set size, for the report. Collective.
[[nodiscard]] nlohmann::json memory_of_ranks(weft::Communicator& world, weft::MemoryAccount const& account);

}  // namespace train_gpt
