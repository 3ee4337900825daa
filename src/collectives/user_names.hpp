// Names of user reductions, for messages: ranks tell each other a byte of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

/// That `fingerprint` stands for the reduction `name` of elements of so many bytes (0: as the data type's), in this
/// process. Reads alone where that is known; thread-safe.
void remember_user_name(std::uint8_t fingerprint, std::string_view name, std::size_t element_bytes);

/// "user 7f: absmax of 8-byte elements"; "user 7f" of what only other processes have used; "user 7f: absmax or first"
/// where two have one fingerprint. Thread-safe.
std::string describe_user(std::uint8_t fingerprint);

}  // namespace weft
