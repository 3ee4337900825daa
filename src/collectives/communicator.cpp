#include "weft/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "collectives/communicator_bootstrap.hpp"
#include "collectives/communicator_impl.hpp"
#include "collectives/create_backend.hpp"
#include "collectives/emulated_link.hpp"
#include "collectives/flight/communicators_begun.hpp"
#include "collectives/flight/flight_recorder.hpp"
#include "collectives/subset_bootstrap.hpp"
#include "collectives/validation.hpp"
#include "core/mpi_members.hpp"
#include "weft/error.hpp"

namespace weft {

CollectiveOptions const kNoOptions{};

namespace {

[[noreturn]] void refuse_moved_from(char const* function) {
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: this Communicator was moved from: it has no rank and makes no calls; use the one that it "
                  "was moved to",
                  function));
}

}  // namespace

Communicator Communicator::create(std::shared_ptr<Bootstrap> bootstrap, CommunicatorOptions const& options) {
  if (!bootstrap) throw Error(ErrorCode::invalid_argument, "Communicator::create: bootstrap is null");
  auto resolved = options;
  if (!resolved.config) resolved.config = Config::from_environment();
  resolved.config->check();
  if (resolved.emulated_link) check(*resolved.emulated_link);
  BeginningOfCommunicator const beginning(resolved.name, bootstrap->rank(), bootstrap->size());
  auto backend = create_backend(*bootstrap, resolved);
  auto recorder = FlightRecorder::create(*bootstrap, *resolved.config, resolved.name);
  auto impl =
      std::make_shared<Impl>(std::move(backend), std::move(recorder), bootstrap->rank(), bootstrap->size(), resolved);
  impl->mpi = bootstrap->mpi();
  return Communicator(std::move(impl));
}

Communicator Communicator::duplicate(CommunicatorOptions const& options) {
  live("duplicate").check_no_group("duplicate");
  return create(std::make_shared<CommunicatorBootstrap>(*this, impl_->mpi), options);
}

std::optional<Communicator> Communicator::split(int color, int key) {
  auto with = live("split").options;
  if (!with.name.empty()) with.name += fmt::format("/{}", color);
  return split(color, key, with);
}

std::optional<Communicator> Communicator::split(int color, int key, CommunicatorOptions const& options) {
  live("split").validator.check_color(color, kNoColor);
  impl_->check_no_group("split");
  struct Wish {
    std::int32_t color;
    std::int32_t key;
    std::int32_t has_device;
  };
  // Ranks tell one another, since one may know of a failure that others have not heard of yet.
  auto* const whole = impl_->device();
  Wish const mine{color, key, whole != nullptr && !whole->failure() ? 1 : 0};
  std::vector<Wish> all(static_cast<std::size_t>(size()));
  all_gather({&mine, sizeof mine, DataType::u8}, {all.data(), all.size() * sizeof mine, DataType::u8},
             {.tag = kMakingCommunicator});
  bool const splits_device = std::all_of(all.begin(), all.end(), [](Wish const& one) { return one.has_device == 1; });
  auto const device = splits_device ? whole->split(color, key) : nullptr;
  if (color == kNoColor) return std::nullopt;
  std::vector<int> members;
  auto const key_of = [&](int member) { return all[static_cast<std::size_t>(member)].key; };
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<std::size_t>(r)].color == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return key_of(a) < key_of(b); });
  auto const me = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  auto mpi = impl_->mpi ? impl_->mpi->subset(members) : nullptr;
  auto child = create(std::make_shared<SubsetBootstrap>(*this, members, me, std::move(mpi)), options);
  if (device) child.impl_->connect(*device);
  return child;
}

Communicator::Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator::Impl& Communicator::live(char const* function) const {
  if (!impl_) [[unlikely]]
    refuse_moved_from(function);
  impl_->check_process(function);
  return *impl_;
}

int Communicator::rank() const noexcept {
  return impl_ ? impl_->validator.rank : -1;
}
int Communicator::size() const noexcept {
  return impl_ ? impl_->validator.size : 0;
}
CommunicatorOptions const& Communicator::options() const {
  return impl_ ? impl_->options : live("options").options;
}

void Communicator::connect(Device device) {
  live("connect").connect(device);
}

Buffer Communicator::allocate(std::size_t count, DataType dtype, Device device) {
  return live("allocate").allocate(impl_->validator.allocate(count, dtype, device));
}

[[gnu::hot]] Work Communicator::all_reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                                           CollectiveOptions const& options) {
  auto& impl = live("all_reduce");
  if (impl.extends_group(Operation::all_reduce, send, recv, how.op(), options)) return impl.group_work();
  return impl.run(impl.validator.all_reduce(send, recv, how), &Backend::all_reduce, options);
}

[[gnu::hot]] Work Communicator::reduce_scatter(ConstBufferView const& send, BufferView const& recv,
                                               Reduction const& how, CollectiveOptions const& options) {
  auto& impl = live("reduce_scatter");
  if (impl.extends_group(Operation::reduce_scatter, send, recv, how.op(), options)) return impl.group_work();
  return impl.run(impl.validator.reduce_scatter(send, recv, how), &Backend::reduce_scatter, options);
}

[[gnu::hot]] Work Communicator::all_gather(ConstBufferView const& send, BufferView const& recv,
                                           CollectiveOptions const& options) {
  auto& impl = live("all_gather");
  if (impl.extends_group(Operation::all_gather, send, recv, ReduceOp::sum, options)) return impl.group_work();
  return impl.run(impl.validator.all_gather(send, recv), &Backend::all_gather, options);
}

Work Communicator::reduce_scatter(ConstBufferView const& send, BufferView const& recv, Parts const& parts,
                                  Reduction const& how, CollectiveOptions const& options) {
  return live("reduce_scatter")
      .run(impl_->validator.reduce_scatter(send, recv, parts, how), &Backend::reduce_scatter, options);
}

Work Communicator::all_gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts,
                              CollectiveOptions const& options) {
  return live("all_gather").run(impl_->validator.all_gather(send, recv, parts), &Backend::all_gather, options);
}

[[gnu::hot]] Work Communicator::reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                                       int root, CollectiveOptions const& options) {
  return live("reduce").run(impl_->validator.reduce(send, recv, how, root), &Backend::reduce, options);
}

[[gnu::hot]] Work Communicator::gather(ConstBufferView const& send, BufferView const& recv, int root,
                                       CollectiveOptions const& options) {
  return live("gather").run(impl_->validator.gather(send, recv, root), &Backend::gather, options);
}

Work Communicator::gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts, int root,
                          CollectiveOptions const& options) {
  return live("gather").run(impl_->validator.gather(send, recv, parts, root), &Backend::gather, options);
}

[[gnu::hot]] Work Communicator::scatter(ConstBufferView const& send, BufferView const& recv, int root,
                                        CollectiveOptions const& options) {
  return live("scatter").run(impl_->validator.scatter(send, recv, root), &Backend::scatter, options);
}

Work Communicator::scatter(ConstBufferView const& send, Parts const& parts, BufferView const& recv, int root,
                           CollectiveOptions const& options) {
  return live("scatter").run(impl_->validator.scatter(send, parts, recv, root), &Backend::scatter, options);
}

[[gnu::hot]] Work Communicator::all_to_all(ConstBufferView const& send, BufferView const& recv,
                                           CollectiveOptions const& options) {
  return live("all_to_all").run(impl_->validator.all_to_all(send, recv), &Backend::all_to_all, options);
}

Work Communicator::all_to_all(ConstBufferView const& send, Parts const& send_parts, BufferView const& recv,
                              Parts const& recv_parts, CollectiveOptions const& options) {
  return live("all_to_all")
      .run(impl_->validator.all_to_all(send, send_parts, recv, recv_parts), &Backend::all_to_all, options);
}

Work Communicator::scan(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                        CollectiveOptions const& options) {
  return live("scan").run(impl_->validator.scan(send, recv, how, true), &Backend::scan, options);
}

Work Communicator::exscan(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                          CollectiveOptions const& options) {
  return live("exscan").run(impl_->validator.scan(send, recv, how, false), &Backend::scan, options);
}

[[gnu::hot]] Work Communicator::broadcast(BufferView const& buffer, int root, CollectiveOptions const& options) {
  return live("broadcast").run(impl_->validator.broadcast(buffer, root), &Backend::broadcast, options);
}

namespace {

Message outgoing(ConstBufferView const& buffer, int to) {
  return {.direction = Message::Direction::send,
          .dtype = buffer.dtype,
          .peer = to,
          .data = const_cast<void*>(buffer.data),  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
          .bytes = buffer.bytes()};
}

Message incoming(BufferView const& buffer, int from) {
  return {.direction = Message::Direction::receive,
          .dtype = buffer.dtype,
          .peer = from,
          .data = buffer.data,
          .bytes = buffer.bytes()};
}

}  // namespace

Work Communicator::send(ConstBufferView const& buffer, int to, CollectiveOptions const& options) {
  return live("send").transfer(impl_->validator.send(buffer, to), outgoing(buffer, to), std::nullopt, options);
}

Work Communicator::recv(BufferView const& buffer, int from, CollectiveOptions const& options) {
  return live("recv").transfer(impl_->validator.recv(buffer, from), std::nullopt, incoming(buffer, from), options);
}

Work Communicator::send_recv(ConstBufferView const& send, int to, BufferView const& recv, int from,
                             CollectiveOptions const& options) {
  return live("send_recv")
      .transfer(impl_->validator.send_recv(send, to, recv, from), outgoing(send, to), incoming(recv, from), options);
}

[[gnu::hot]] Work Communicator::barrier(CollectiveOptions const& options) {
  return live("barrier").run(Call{}, &Backend::barrier, options);
}

void Communicator::fuse(Stream const& stream, std::size_t bytes) {
  live("fuse").fuse(stream, bytes);
}

void Communicator::abort(std::string const& reason) noexcept {
  if (impl_) impl_->abort(reason);
}

}  // namespace weft
