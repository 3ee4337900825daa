#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/communicator_impl.hpp"
#include "collectives/device_access.hpp"

namespace weft {
namespace {

/// The completion of a group: that of the work which it enqueued.
class FollowedWork final : public DeviceCompletion {
 public:
  explicit FollowedWork(std::shared_ptr<Work::State> work) noexcept : work_(std::move(work)) {}

  [[nodiscard]] bool reached() const noexcept override { return work_->look(); }
  bool wait_on(Stream const& stream) const override { return work_->device()->wait_on(stream); }
  [[nodiscard]] bool is_captured() const noexcept override { return work_->device()->is_captured(); }
  [[nodiscard]] std::exception_ptr error() const noexcept override { return work_->error(); }

 private:
  std::shared_ptr<Work::State> work_;
};

Stream const* pointer_to(std::optional<Stream> const& stream) noexcept {
  return stream ? &*stream : nullptr;
}

}  // namespace

/// The communicator's ranks, over host memory.
class Communicator::Impl::HostBootstrap final : public Bootstrap {
 public:
  explicit HostBootstrap(Impl& impl) noexcept : impl_(impl) {}

  [[nodiscard]] int rank() const noexcept override { return impl_.validator.rank; }
  [[nodiscard]] int size() const noexcept override { return impl_.validator.size; }
  [[nodiscard]] std::string name() const override { return "communicator"; }
  [[nodiscard]] std::shared_ptr<MpiMembers const> mpi() const override { return impl_.mpi; }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size()));
    auto call =
        impl_.validator.all_gather({mine.data(), mine.size(), DataType::u8}, {all.data(), all.size(), DataType::u8});
    impl_.run(std::move(call), &Backend::all_gather, {.tag = kMakingCommunicator});
    return all;
  }

 private:
  Impl& impl_;
};

void Communicator::Impl::connect(DeviceFactory& factory) {
  check_no_group("connect");
  HostBootstrap bootstrap(*this);
  device_ = factory.create({bootstrap, options, [this](int rank) { return backend_->peer_state(rank); }});
}

void Communicator::Impl::connect(Device device) {
  with_name([&] { connect_now(device); });
}

void Communicator::Impl::connect_now(Device device) {
  if (device.type == DeviceType::cpu) validator.reject("connect", "host memory needs no connection; name a GPU");
  if (options.emulated_link) {
    validator.reject("connect", "an emulated link is for host memory; create a communicator without");
  }
  if (device_ && device_->device() != device) {
    validator.reject("connect", fmt::format("this rank is connected by {}; it cannot use {} too",
                                            to_string(device_->device()), to_string(device)));
  }
  if (device_ && !has_failed_anywhere(*device_)) return;
  connect(*(device_ ? device_->renew({}) : device_factory(device, *options.config)));
}

// Asks all ranks, since one may know of a failure that others have not heard of yet.
bool Communicator::Impl::has_failed_anywhere(DeviceBackend const& device) {
  check_no_group("connect");
  HostBootstrap bootstrap(*this);
  auto const mine = static_cast<std::byte>(device.failure() ? 1 : 0);
  auto const all = bootstrap.all_gather(std::span(&mine, 1));
  return std::find(all.begin(), all.end(), std::byte{1}) != all.end();
}

std::shared_ptr<void> Communicator::Impl::allocate_on_device(Call const& call) {
  HostBootstrap bootstrap(*this);
  return device_for(call).allocate(call, bootstrap);
}

DeviceBackend& Communicator::Impl::device_for(Call const& call) {
  auto const operation = call.contract.operation;
  if (!device_) {
    std::unique_ptr<DeviceFactory> factory;
    try {
      factory = device_factory(call.device, *options.config);
    } catch (Error const& error) {
      validator.fail(error.code(), operation, error.what());
    }
    if (is_point_to_point(operation)) {
      validator.reject(operation, fmt::format("messages from and to {} need the communicator connected; call connect() "
                                              "on every rank first, or any collective on such memory",
                                              to_string(call.device)));
    }
    connect_now(call.device);
  }
  if (device_->device() == call.device) return *device_;
  validator.reject(operation, fmt::format("its memory is on {}, but this rank is connected by {}",
                                          to_string(call.device), to_string(device_->device())));
}

Work Communicator::Impl::run_on_device(Call&& call, CollectiveOptions const& how) {
  if (options.name.empty()) return Work{device_for(call).run(call, pointer_to(how.stream))};
  Work work;
  with_name([&] { work = Work{device_for(call).run(call, pointer_to(how.stream))}; });
  return work;
}

Work Communicator::Impl::transfer_on_device(Call const& call, std::span<Message const> messages,
                                            CollectiveOptions const& how) {
  Work work;
  with_name([&] { work = Work{device_for(call).run({{}, messages, call}, pointer_to(how.stream))}; });
  return work;
}

Work Communicator::Impl::end_device_group(OpenGroup& group) {
  auto const& first = group.device_calls().empty() ? group.transfer() : group.device_calls().front();
  std::shared_ptr<Work::State> enqueued;
  group.state()->enqueue();
  try {
    with_name([&] {
      enqueued = device_for(first).run({group.device_calls(), group.messages(), group.transfer()},
                                       pointer_to(group.options().stream));
    });
  } catch (...) {
    group.state()->complete_once(std::current_exception());
    throw;
  }
  if (!enqueued) {
    group.state()->complete_once();
  } else {
    bool const is_captured = enqueued->device()->is_captured();
    group.state()->attach(std::make_shared<FollowedWork>(std::move(enqueued)));
    if (is_captured) group.state()->complete_once();  // nothing runs yet that the host could wait for
  }
  return Work{group.state()};
}

void DeviceAccess::connect(Communicator& communicator, DeviceFactory& factory) {
  communicator.live("connect").connect(factory);
}

void DeviceAccess::fail(Communicator& communicator, ErrorCode code, std::string const& reason) noexcept {
  if (communicator.impl_) communicator.impl_->fail(code, reason);
}

void DeviceAccess::throw_if_failed(Communicator& communicator) {
  communicator.live("connect").throw_if_failed();
}

DeviceBackend* DeviceAccess::backend(Communicator const& communicator) {
  return communicator.live("connect").device();
}

}  // namespace weft
