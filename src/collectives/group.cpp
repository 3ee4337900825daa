#include "weft/group.hpp"

#include "collectives/communicator_impl.hpp"

namespace weft {

Group::Group(Communicator& communicator, CollectiveOptions const& options) : communicator_(communicator.impl_) {
  communicator.live("Group").open_group(options);
}

Group::~Group() {
  if (!open_) return;
  if (auto const communicator = communicator_.lock()) communicator->drop_group();
}

Work Group::end() {
  auto const communicator = communicator_.lock();
  if (!open_ || !communicator) {
    throw Error(ErrorCode::invalid_argument,
                open_ ? "Group::end: its communicator is gone" : "Group::end: this group has ended before");
  }
  open_ = false;
  return communicator->end_group();
}

}  // namespace weft
