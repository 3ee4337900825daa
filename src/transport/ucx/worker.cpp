#include "transport/ucx/worker.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "weft/error.hpp"

namespace weft::ucx {
namespace {

constexpr unsigned kNoticeId = 1;
/// How long sent data gets to leave before a worker is destroyed, and cancelled operations to end.
constexpr auto kLastWords = std::chrono::seconds(1);
/// How often UCX checks that peers are there. This finds the end of those that nothing else reports, such as peers over
/// shared memory.
constexpr char const* kKeepalive = "500ms";

/// Sets an option of UCX, unless the user has set it.
void configure(UcpLibrary const& ucp, ucp_config_t* config, std::string const& name, std::string const& value) {
  if (std::getenv(("UCX_" + name).c_str()) != nullptr) return;
  ucp.check(ucp.ucp_config_modify(config, name.c_str(), value.c_str()), ("ucp_config_modify " + name).c_str());
}

/// Whether only interfaces of the kernel's network are named: names of InfiniBand devices contain a port.
bool are_interfaces(std::string const& devices) noexcept {
  return !devices.empty() && devices.find(':') == std::string::npos;
}

bool are_rails(std::string const& devices) noexcept {
  return are_interfaces(devices) && devices.find(',') != std::string::npos;
}

bool has_newer_protocols() noexcept {
  auto const* const asked = std::getenv("UCX_PROTO_ENABLE");
  return asked != nullptr && (asked[0] == 'y' || asked[0] == 'Y' || asked[0] == '1');
}

/// Where several interfaces are named, divides each message between all of them. Only UCX's newer protocols, which are
/// the default of versions later than 1.13, divide messages that leave before the receiver has asked for them.
void use_rails(UcpLibrary const& ucp, ucp_config_t* config, std::string const& devices) {
  auto const rails = 1 + std::count(devices.begin(), devices.end(), ',');
  configure(ucp, config, "MAX_EAGER_RAILS", std::to_string(rails));
  configure(ucp, config, "MAX_RNDV_RAILS", std::to_string(rails));
  configure(ucp, config, "PROTO_ENABLE", "y");
}

ucp_context_h make_context(UcpLibrary const& ucp, std::string const& devices, bool rma, int ranks) {
  ucp_config_t* config = nullptr;
  ucp.check(ucp.ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  struct Released {
    UcpLibrary const& ucp;
    ucp_config_t* config;
    ~Released() { ucp.ucp_config_release(config); }
  } const released{ucp, config};
  if (!devices.empty()) {
    ucp.check(ucp.ucp_config_modify(config, "NET_DEVICES", devices.c_str()), "ucp_config_modify(NET_DEVICES)");
  }
  configure(ucp, config, "KEEPALIVE_INTERVAL", kKeepalive);
  if (are_interfaces(devices)) {
    configure(ucp, config, "RNDV_THRESH", std::to_string(Worker::kMostEager + 1));
    if (are_rails(devices)) use_rails(ucp, config, devices);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | (rma ? UCP_FEATURE_RMA : 0);
  params.estimated_num_eps = static_cast<std::size_t>(ranks);
  ucp_context_h context = nullptr;
  auto const status = ucp.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
  if (status == UCS_ERR_NO_DEVICE) {
    throw Error(ErrorCode::unsupported,
                fmt::format("UCX finds nothing that it may use{}: look at UCX_TLS, UCX_NET_DEVICES and "
                            "WEFT_NET_DEVICES; UCX_LOG_LEVEL=info says what there is",
                            devices.empty() ? "" : " on " + devices));
  }
  ucp.check(status, "ucp_init");
  return context;
}

}  // namespace

Worker::Worker(std::string const& devices, bool rma, int ranks, Hear hear)
    : ucp_(UcpLibrary::open()),
      hear_(std::move(hear)),
      aborts_on_unfinished_(are_rails(devices) || has_newer_protocols()),
      peers_(static_cast<std::size_t>(ranks)) {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    peers_[rank].worker = this;
    peers_[rank].rank = static_cast<int>(rank);
  }
  context_ = make_context(*ucp_, devices, rma, ranks);
  try {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucp_->check(ucp_->ucp_worker_create(context_, &params, &worker_), "ucp_worker_create");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kNoticeId;
    handler.cb = &Worker::on_notice;
    handler.arg = this;
    ucp_->check(ucp_->ucp_worker_set_am_recv_handler(worker_, &handler), "ucp_worker_set_am_recv_handler");
    ucp_->check(ucp_->ucp_worker_get_efd(worker_, &descriptor_), "ucp_worker_get_efd");
  } catch (...) {
    if (worker_ != nullptr) ucp_->ucp_worker_destroy(worker_);
    ucp_->ucp_cleanup(context_);
    throw;
  }
}

Worker::~Worker() {
  std::lock_guard const lock(mutex_);
  ucp_request_param_t const plain{};
  // What was sent must still leave; the limit is there for peers that are stopped.
  auto const end = Clock::now() + kLastWords;
  auto all_left = true;
  if (first_broken() < 0) {
    all_left = wait_for(ucp_->ucp_worker_flush_nbx(worker_, &plain), end);
  } else if (aborts_on_unfinished_) {
    all_left = advance_until(end, [&] { return all_noticed(); });
  }
  // A socket that is closed with unread bytes in it resets its connection, and the peer may lose what was sent last.
  while (advance() && Clock::now() < end) {
  }
  // UCX cannot be closed safely: its objects are left as they are until the process ends.
  if (stopped_ || (aborts_on_unfinished_ && !all_left)) return;
  drain();
  for (auto const& peer : peers_) close(peer.rank);
  ucp_->ucp_worker_destroy(worker_);
  ucp_->ucp_cleanup(context_);
}

std::vector<std::byte> Worker::address() const {
  std::lock_guard const lock(mutex_);
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  ucp_->check(ucp_->ucp_worker_get_address(worker_, &address, &length), "ucp_worker_get_address");
  auto const* const bytes = reinterpret_cast<std::byte const*>(address);
  std::vector<std::byte> copy(bytes, bytes + length);
  ucp_->ucp_worker_release_address(worker_, address);
  return copy;
}

void Worker::on_sent(void* request, ucs_status_t status, void* operation) {
  auto& done = *static_cast<Pending*>(operation);
  done.worker_->ucp_->ucp_request_free(request);
  finish(done, status, 0);
}

void Worker::on_received(void* request, ucs_status_t status, ucp_tag_recv_info_t const* info, void* operation) {
  auto& done = *static_cast<Pending*>(operation);
  auto const bytes = status == UCS_OK ? info->length : 0;
  done.worker_->ucp_->ucp_request_free(request);
  finish(done, status, bytes);
}

void Worker::on_noticed(void* request, ucs_status_t /*status*/, void* notice) {
  auto& sent = *static_cast<Notice*>(notice);
  sent.worker->ucp_->ucp_request_free(request);
  sent.done = true;
}

ucs_status_t Worker::on_notice(void* self, void const* /*header*/, std::size_t /*header_length*/, void* data,
                               std::size_t length, ucp_am_recv_param_t const* /*how*/) {
  static_cast<Worker*>(self)->hear_({static_cast<std::byte const*>(data), length});
  return UCS_OK;
}

void Worker::on_error(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t /*status*/) {
  auto const& broken = *static_cast<Peer*>(peer);
  broken.worker->break_off(broken.rank);
}

void Worker::break_off(int rank) noexcept {
  if (peers_[static_cast<std::size_t>(rank)].broken.exchange(true)) return;
  int none = -1;
  first_broken_.compare_exchange_strong(none, rank);
  events_.fetch_add(1);
}

ucp_ep_h Worker::endpoint(int rank) {
  auto& peer = peers_[static_cast<std::size_t>(rank)];
  if (stopped_ || peer.broken.load()) return nullptr;
  if (peer.endpoint != nullptr) return peer.endpoint;
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<ucp_address_t const*>(addresses_[static_cast<std::size_t>(rank)].data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &Worker::on_error;
  params.err_handler.arg = &peer;
  if (ucp_->ucp_ep_create(worker_, &params, &peer.endpoint) == UCS_OK) {
    peer.connected.store(true);
  } else {
    peer.endpoint = nullptr;
    break_off(rank);
  }
  return peer.endpoint;
}

void Worker::begin(Pending& operation, int peer, bool receives) noexcept {
  operation.worker_ = this;
  operation.peer_ = peer;
  operation.receives_ = receives;
  operation.done_.store(false, std::memory_order_relaxed);
}

void Worker::take(Pending& operation, ucs_status_ptr_t request) noexcept {
  if (operation.is_done()) return;  // UCX has called its callback already
  if (!UCS_PTR_IS_PTR(request)) return finish(operation, UCS_PTR_RAW_STATUS(request), 0);
  operation.request_ = request;
}

void Worker::finish(Pending& operation, ucs_status_t status, std::size_t bytes) noexcept {
  operation.request_ = nullptr;
  operation.status_ = status;
  operation.bytes_ = bytes;
  operation.done_.store(true, std::memory_order_release);
}

ucp_request_param_t Worker::calls_back(Pending& operation) noexcept {
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  how.cb.send = &Worker::on_sent;
  how.user_data = &operation;
  return how;
}

void Worker::start_send(Pending& operation, int to, Tag const& tag, std::span<std::byte const> bytes, Sent when) {
  std::lock_guard const lock(mutex_);
  begin(operation, to, false);
  auto* const endpoint = this->endpoint(to);
  if (endpoint == nullptr) return finish(operation, UCS_ERR_CONNECTION_RESET, 0);
  auto const how = calls_back(operation);
  auto const send = when == Sent::asked_for ? ucp_->ucp_tag_send_sync_nbx : ucp_->ucp_tag_send_nbx;
  take(operation, send(endpoint, bytes.data(), bytes.size(), tag.value(), &how));
}

void Worker::start_recv(Pending& operation, int from, Tag const& tag, std::span<std::byte> bytes) {
  std::lock_guard const lock(mutex_);
  begin(operation, from, true);
  if (stopped_) return finish(operation, UCS_ERR_CONNECTION_RESET, 0);
  constexpr auto kWholeTag = ~ucp_tag_t{0};
  ucp_request_param_t how{};
  // The callback is always called, even for messages that are there already: UCX 1.13 tells their length only there.
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  how.cb.recv = &Worker::on_received;
  how.user_data = &operation;
  auto* const request = ucp_->ucp_tag_recv_nbx(worker_, bytes.data(), bytes.size(), tag.value(), kWholeTag, &how);
  take(operation, request);
}

ucp_mem_h Worker::register_memory(void* memory, std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory;
  params.length = bytes;
  ucp_mem_h registration = nullptr;
  return ucp_->ucp_mem_map(context_, &params, &registration) == UCS_OK ? registration : nullptr;
}

void Worker::deregister(ucp_mem_h registration) noexcept {
  std::lock_guard const lock(mutex_);
  if (registration != nullptr) ucp_->ucp_mem_unmap(context_, registration);
}

std::vector<std::byte> Worker::pack_key(ucp_mem_h registration) {
  std::lock_guard const lock(mutex_);
  void* packed = nullptr;
  std::size_t length = 0;
  if (ucp_->ucp_rkey_pack(context_, registration, &packed, &length) != UCS_OK) return {};
  auto const* const bytes = static_cast<std::byte const*>(packed);
  std::vector<std::byte> copy(bytes, bytes + length);
  ucp_->ucp_rkey_buffer_release(packed);
  return copy;
}

ucp_rkey_h Worker::unpack_key(int owner, std::span<std::byte const> packed) {
  std::lock_guard const lock(mutex_);
  auto* const endpoint = this->endpoint(owner);
  ucp_rkey_h key = nullptr;
  if (endpoint == nullptr || ucp_->ucp_ep_rkey_unpack(endpoint, packed.data(), &key) != UCS_OK) return nullptr;
  return key;
}

void Worker::forget_key(ucp_rkey_h key) noexcept {
  std::lock_guard const lock(mutex_);
  if (key != nullptr) ucp_->ucp_rkey_destroy(key);
}

void Worker::start_put(Pending& operation, int to, std::span<std::byte const> bytes, std::uint64_t address,
                       ucp_rkey_h key) {
  std::lock_guard const lock(mutex_);
  begin(operation, to, false);
  auto* const endpoint = this->endpoint(to);
  if (endpoint == nullptr) return finish(operation, UCS_ERR_CONNECTION_RESET, 0);
  auto const how = calls_back(operation);
  take(operation, ucp_->ucp_put_nbx(endpoint, bytes.data(), bytes.size(), address, key, &how));
}

void Worker::start_flush(Pending& operation, int to) {
  std::lock_guard const lock(mutex_);
  begin(operation, to, false);
  auto* const endpoint = this->endpoint(to);
  if (endpoint == nullptr) return finish(operation, UCS_ERR_CONNECTION_RESET, 0);
  auto const how = calls_back(operation);
  take(operation, ucp_->ucp_ep_flush_nbx(endpoint, &how));
}

void Worker::cancel(Pending& operation) {
  std::lock_guard const lock(mutex_);
  if (operation.request_ == nullptr || !operation.receives_) return;
  if (stopped_) return finish(operation, UCS_ERR_CANCELED, 0);
  ucp_->ucp_request_cancel(worker_, operation.request_);
}

void Worker::abandon(std::span<Pending* const> operations) {
  std::lock_guard const lock(mutex_);
  auto const all_done = [&] {
    return std::all_of(operations.begin(), operations.end(), [](Pending const* each) { return each->is_done(); });
  };
  for (auto* const each : operations) {
    if (each->request_ != nullptr && each->receives_ && !stopped_) ucp_->ucp_request_cancel(worker_, each->request_);
  }
  advance();
  if (aborts_on_unfinished_) {
    if (advance_until(Clock::now() + kLastWords, all_done)) return;
    stopped_ = true;
    for (auto* const each : operations) {
      if (each->is_done()) continue;
      break_off(each->peer_);
      finish(*each, UCS_ERR_CANCELED, 0);
    }
    return;
  }
  for (auto* const each : operations) {
    if (!each->is_done()) close(each->peer_);
  }
  advance_until(Clock::now() + kLastWords, all_done);
}

void Worker::send_notice(int to, std::span<std::byte const> bytes) {
  std::lock_guard const lock(mutex_);
  auto* const endpoint = this->endpoint(to);
  if (endpoint == nullptr) return;
  std::erase_if(notices_, [](auto const& sent) { return sent->done; });
  auto& notice = *notices_.emplace_back(std::make_unique<Notice>());
  notice.worker = this;
  notice.to = to;
  notice.bytes.assign(bytes.begin(), bytes.end());
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  how.flags = UCP_AM_SEND_FLAG_EAGER;
  how.cb.send = &Worker::on_noticed;
  how.user_data = &notice;
  auto* const request =
      ucp_->ucp_am_send_nbx(endpoint, kNoticeId, nullptr, 0, notice.bytes.data(), notice.bytes.size(), &how);
  notice.done = !UCS_PTR_IS_PTR(request);
}

bool Worker::owes_notice(int to) const {
  std::lock_guard const lock(mutex_);
  return std::any_of(notices_.begin(), notices_.end(), [&](auto const& sent) { return sent->to == to && !sent->done; });
}

void Worker::flush_notices(Clock::time_point deadline) {
  std::lock_guard const lock(mutex_);
  advance_until(deadline, [&] { return all_noticed(); });
}

bool Worker::all_noticed() const noexcept {
  return std::all_of(notices_.begin(), notices_.end(), [](auto const& sent) { return sent->done; });
}

bool Worker::advance() {
  if (stopped_ || ucp_->ucp_worker_progress(worker_) == 0) return false;
  events_.fetch_add(1, std::memory_order_release);
  if (followers_ > 0) changed_.notify_all();
  return true;
}

bool Worker::advance_until(Clock::time_point deadline, std::function<bool()> const& ready) {
  while (!ready()) {
    if (stopped_ || Clock::now() >= deadline) return false;
    advance();
    std::this_thread::yield();
  }
  return true;
}

bool Worker::wait_for(ucs_status_ptr_t request, Clock::time_point deadline) {
  if (!UCS_PTR_IS_PTR(request)) return true;
  auto const done = advance_until(deadline, [&] { return ucp_->ucp_request_check_status(request) != UCS_INPROGRESS; });
  ucp_->ucp_request_free(request);
  return done;
}

void Worker::drain() {
  ucp_request_param_t const plain{};
  ucp_tag_recv_info_t info{};
  while (auto* const message = ucp_->ucp_tag_probe_nb(worker_, 0, 0, 1, &info)) {
    wait_for(ucp_->ucp_tag_msg_recv_nbx(worker_, nullptr, 0, message, &plain), Clock::now() + kLastWords);
  }
}

void Worker::close(int rank) {
  auto& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.endpoint == nullptr) return;
  auto* const endpoint = std::exchange(peer.endpoint, nullptr);
  break_off(rank);
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  how.flags = UCP_EP_CLOSE_FLAG_FORCE;
  wait_for(ucp_->ucp_ep_close_nbx(endpoint, &how), Clock::now() + kLastWords);
}

bool Worker::progress() {
  std::lock_guard const lock(mutex_);
  return advance();
}

void Worker::sleep(std::uint64_t seen, Clock::duration limit) {
  std::unique_lock lock(mutex_);
  if (events() != seen) return;
  if (watched_ || stopped_) {
    ++followers_;
    changed_.wait_for(lock, limit);
    --followers_;
    return;
  }
  if (ucp_->ucp_worker_arm(worker_) != UCS_OK) {  // something has come meanwhile
    advance();
    return;
  }
  watched_ = true;
  lock.unlock();
  pollfd watched{descriptor_, POLLIN, 0};
  auto const time = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
  timespec const nap{time / 1'000'000'000, time % 1'000'000'000};
  ::ppoll(&watched, 1, &nap, nullptr);
  lock.lock();
  watched_ = false;
  advance();
  changed_.notify_all();  // one of the followers takes over
}

void Worker::wake() noexcept {
  std::lock_guard const lock(mutex_);
  events_.fetch_add(1);
  if (!stopped_) ucp_->ucp_worker_signal(worker_);
  changed_.notify_all();
}

}  // namespace weft::ucx
