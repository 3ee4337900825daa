#include "cuda/device_sweep.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/device_access.hpp"
#include "collectives/nccl/nccl_backend.hpp"
#include "collectives/nccl/nccl_factory.hpp"
#include "common/verify.hpp"
#include "common/weft_calls.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/memory_pool.hpp"
#include "weft/error.hpp"
#include "weft/group.hpp"

namespace weft::perf {
namespace {

Stream make_stream(Options const& options, nccl::Libraries const& libraries) {
  auto const& cuda = *libraries.cuda;
  if (options.null_stream) return Stream(std::make_shared<cuda::CudaStream>(nullptr, libraries.device, cuda));
  return Stream(
      std::make_shared<cuda::CudaStream>(cuda::StreamOptions{.device = libraries.device, .high_priority = true}, cuda));
}

}  // namespace

DeviceSweep::DeviceSweep(Case const& what, Options const& options, Gpu const& gpu, Communicator& communicator)
    : Sweep(what, options, communicator), gpu_(gpu), stream_(make_stream(options, gpu.libraries)) {
  DeviceAccess::connect(communicator, *nccl::factory_of(gpu.libraries));
  auto& backend = dynamic_cast<nccl::NcclBackend&>(*DeviceAccess::backend(communicator));
  if (options.compare_nccl) nccl_.emplace(backend.communicator(), stream_);
}

std::vector<RankPlace> DeviceSweep::places() {
  struct Told {
    std::int64_t pid = 0;
    std::int64_t device = 0;
    char bus_id[32] = {};
    char name[96] = {};
  };
  Told mine{getpid(), gpu_.libraries.device, {}, {}};
  gpu_.bus_id.copy(mine.bus_id, sizeof mine.bus_id - 1);
  gpu_.name.copy(mine.name, sizeof mine.name - 1);
  std::vector<Told> all(static_cast<std::size_t>(board_.ranks()));
  communicator_.all_gather({&mine, sizeof mine, DataType::u8}, {all.data(), all.size() * sizeof mine, DataType::u8});
  auto const hosts = tell_all(communicator_, host_name());
  std::vector<RankPlace> places;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    places.push_back({all[rank].pid, all[rank].device, all[rank].bus_id, all[rank].name, hosts[rank]});
  }
  return places;
}

std::string DeviceSweep::means() const {
  return nccl_ ? fmt::format("# Geometric mean of nccl over weft: {:.2f}\n", geometric_mean(ratios_)) : std::string();
}

std::string DeviceSweep::memory_usage() {
  return fmt::format("buffers {:.1f} MB of a GPU", memory_.mib());
}

void DeviceSweep::allocate(DataType dtype) {
  memory_ = {};
  auto const elements = elements_of(dtype);
  if (options_.checks > 0) mirror_ = {Buffer::host(elements, dtype), Buffer::host(elements, dtype)};
  auto const& libraries = gpu_.libraries;
  auto const one = [&] {
    if (options_.memory == MemoryKind::private_memory)
      return cuda::allocate(elements, dtype, libraries.device, *libraries.cuda);
    return communicator_.allocate(elements, dtype, {DeviceType::cuda, libraries.device});
  };
  memory_.send = one();
  memory_.recv = one();
}

std::function<void()> DeviceSweep::weft_call(Operands const& on, Choice const& choice) {
  CallOptions const options{choice.op, choice.root, {stream_, {}}};
  return [this, on, options] { static_cast<void>(start_weft(case_.op(), communicator_, on, options)); };
}

std::function<void()> DeviceSweep::blocking(std::function<void()> call) {
  if (options_.blocking != 1) return call;
  return [this, call = std::move(call)] {
    call();
    stream_.synchronize();
  };
}

DeviceSide DeviceSweep::weft_side(Counts counts, Choice const& choice, bool in_place) {
  auto const on = operands(memory_, counts, choice, in_place);
  int const calls = options_.aggregate;
  if (calls == 1) return {"weft", on, blocking(weft_call(on, choice)), 1};
  CallOptions const options{choice.op, choice.root, {}};
  auto const together = [this, on, options, calls] {
    Group group(communicator_, {.stream = stream_});
    for (int i = 0; i < calls; ++i) static_cast<void>(start_weft(case_.op(), communicator_, on, options));
    static_cast<void>(group.end());
  };
  return {"weft", on, blocking(together), calls};
}

DeviceSide DeviceSweep::nccl_side(Counts counts, Choice const& choice) {
  auto const on = operands(memory_, counts, choice, false);
  auto const one = nccl_->call(case_, on, choice.op, place(choice.root));
  return {"nccl", on, blocking(nccl_->grouped(one, options_.aggregate)), options_.aggregate};
}

DeviceRounds DeviceSweep::sides_of(std::size_t bytes, Choice const& choice, Entry& entry) {
  entry.counts = case_.counts(bytes / size_of(choice.dtype), board_.ranks());
  std::vector<DeviceSide> sides{weft_side(entry.counts, choice, false)};
  if (nccl_) {
    entry.nccl = sides.size();
    sides.push_back(nccl_side(entry.counts, choice));
  }
  if (options_.in_place) {
    entry.in_place = sides.size();
    sides.push_back(weft_side(entry.counts, choice, true));
  }
  return DeviceRounds(std::move(sides));
}

Timing DeviceSweep::sample_timing(DeviceSample sample, Counts counts, DataType dtype) {
  return timing_of(options_.cpu_time ? sample.host : sample.device, counts, dtype);
}

double DeviceSweep::wrong_in(Entry const& entry, Choice const& choice, bool in_place) {
  auto const call = weft_call(operands(memory_, entry.counts, choice, in_place), choice);
  auto& to = stream_.impl();
  auto const& [device_send, device_recv] = memory_;
  auto const checked = [&] {
    to.copy(device_send.data(), mirror_.send.data(), device_send.view().bytes());
    to.copy(device_recv.data(), mirror_.recv.data(), device_recv.view().bytes());
    call();
    to.copy(mirror_.recv.data(), device_recv.data(), device_recv.view().bytes());
    // A broadcast's root has the result in its send buffer.
    to.copy(mirror_.send.data(), device_send.data(), device_send.view().bytes());
    stream_.synchronize();
  };
  return count_wrong(board_, case_, operands(mirror_, entry.counts, choice, in_place), entry.counts, place(choice.root),
                     choice.op, options_.checks, checked);
}

void DeviceSweep::finish_line(DeviceRounds const& rounds, Entry const& entry, Choice const& choice) {
  auto const bytes = std::max(entry.counts.send, entry.counts.recv) * size_of(choice.dtype);
  Line line = line_of(bytes, entry.counts, choice);
  auto const checked = [&](Timing& timing, bool in_place) {
    if (options_.checks == 0 || (in_place && !case_.checks_in_place())) return;
    note_wrong(timing, wrong_in(entry, choice, in_place));
  };
  auto const best = rounds.best(0);
  checked(line.out_of_place.emplace(sample_timing(best, entry.counts, choice.dtype)), false);
  if (entry.in_place) {
    checked(line.in_place.emplace(sample_timing(rounds.best(*entry.in_place), entry.counts, choice.dtype)), true);
  }
  Detail detail;
  detail.call = best.device;
  detail.iterations = options_.loop.iterations;
  detail.cost = best.host;
  detail.rounds = detail.rounds_kept = static_cast<std::size_t>(options_.rounds);
  if (entry.nccl) {
    detail.peer_call = rounds.best(*entry.nccl).device;
    detail.peer_cost = rounds.best(*entry.nccl).host;
    ratios_.push_back(ratio(*detail.peer_call, detail.call));
  }
  print_line(line, detail);
}

void DeviceSweep::run_choice(Choice const& choice) {
  DeviceTimer timer(board_, stream_, options_.loop.across);
  std::vector<DeviceRounds> rounds;
  std::vector<Entry> entries;
  for (auto const bytes : options_.sizes()) {
    rounds.push_back(sides_of(bytes, choice, entries.emplace_back()));
    rounds.back().warm_up(timer, options_.warmup);
  }
  for (int round = 0; round < options_.rounds; ++round) {
    for (auto& size : rounds) size.measure(timer, options_.loop.iterations);
  }
  for (std::size_t i = 0; i < rounds.size(); ++i) finish_line(rounds[i], entries[i], choice);
}

}  // namespace weft::perf
