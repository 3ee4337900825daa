#pragma once

#include <string>
#include <unordered_map>

namespace weft {

/// Tells calls of one name apart: "aten::mm", "aten::mm#2", "aten::mm#3".
class UniqueNames {
 public:
  [[nodiscard]] std::string next(std::string const& name) {
    int const count = ++counts_[name];
    return count == 1 ? name : name + "#" + std::to_string(count);
  }

 private:
  std::unordered_map<std::string, int> counts_;
};

}  // namespace weft
