#include "mpi_lifetime.hpp"

#include <algorithm>
#include <utility>

namespace weft::torch_backend {

MpiLifetime& mpi_lifetime() {
  static auto* const lifetime = new MpiLifetime;
  return *lifetime;
}

void MpiLifetime::keep(std::shared_ptr<MpiMembers const> members) {
  std::lock_guard const lock(mutex_);
  if (!members_) members_ = std::move(members);
}

void MpiLifetime::add(c10::intrusive_ptr<c10d::Backend> const& group) {
  std::lock_guard const lock(mutex_);
  groups_.erase(std::remove_if(groups_.begin(), groups_.end(), [](auto const& one) { return one.expired(); }),
                groups_.end());
  groups_.emplace_back(group);
}

void MpiLifetime::finish() {
  std::shared_ptr<MpiMembers const> members;
  std::vector<c10::weak_intrusive_ptr<c10d::Backend>> groups;
  {
    std::lock_guard const lock(mutex_);
    members = std::move(members_);
    groups.swap(groups_);
  }
  if (!members) return;
  for (auto const& one : groups) {
    if (auto const group = one.lock()) group->shutdown();
  }
}

}  // namespace weft::torch_backend
