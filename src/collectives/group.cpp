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
  if (!communicator) {
    throw Error(ErrorCode::invalid_argument, "Group::end: the communicator is gone, and with it the group's calls");
  }
  communicator->check_process("Group::end");
  if (!open_) communicator->validator.reject("Group::end", "this group has ended before");
  open_ = false;
  return communicator->end_group();
}

}  // namespace weft
