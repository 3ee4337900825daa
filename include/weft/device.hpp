#pragma once

#include <string>

namespace weft {

enum class DeviceType { cpu, cuda };

/// Where memory lives and work runs. `index` is the CUDA ordinal, 0 for the CPU.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend bool operator==(Device const&, Device const&) = default;
};

/// "cpu" or "cuda:1".
[[nodiscard]] std::string to_string(Device device);

}  // namespace weft
