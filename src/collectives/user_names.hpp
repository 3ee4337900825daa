// The names of user reductions, for error messages: ranks exchange only one byte of each, its fingerprint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

/// Notes that in this process `fingerprint` stands for the reduction `name` of elements of so many bytes (0: those of
/// the data type). Only reads where that is known already. Thread-safe.
void remember_user_name(std::uint8_t fingerprint, std::string_view name, std::size_t element_bytes);

/// "user 7f: absmax of 8-byte elements"; "user 7f" where only other processes have used it; "user 7f: absmax or first"
/// where two reductions share the fingerprint. Thread-safe.
std::string describe_user(std::uint8_t fingerprint);

}  // namespace weft
