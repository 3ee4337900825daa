#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "weft/wire_format.hpp"

namespace weft {

/// What moves the bytes of a communicator.
enum class BackendKind { shm, mpi, hierarchical, ucx, hierarchical_ucx };

/// Its name as WEFT_BACKEND takes it.
[[nodiscard]] std::string_view to_string(BackendKind kind) noexcept;

/// What moves the bytes of a communicator's memory on GPUs.
enum class DeviceBackendKind {
  automatic,     ///< nccl on one host, hierarchical on several, staged where there is no NCCL, or nothing to do inside
  nccl,          ///< NCCL, also between hosts
  staged,        ///< the host's back end, through pinned memory
  hierarchical,  ///< NCCL inside hosts, the host's back end between
};

/// Its name as WEFT_DEVICE_BACKEND takes it.
[[nodiscard]] std::string_view to_string(DeviceBackendKind kind) noexcept;

/// Time limits lie between these; now plus the longest is a point in time that clocks can tell.
inline constexpr std::chrono::milliseconds kShortestTimeout{1};
inline constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(365 * 24);

[[nodiscard]] constexpr bool is_timeout(std::chrono::milliseconds limit) noexcept {
  return limit >= kShortestTimeout && limit <= kLongestTimeout;
}

/// Everything WEFT_* environment variables can set, read once and passed in. docs/configuration.md lists them all.
struct Config {
  std::chrono::milliseconds timeout{
      300'000};                    ///< WEFT_TIMEOUT: how long a collective waits for a peer (e.g. 300s, 500ms)
  std::string log_level = "warn";  ///< WEFT_LOG_LEVEL: trace debug info warn error off
  std::optional<std::size_t>
      staging_bytes;  ///< WEFT_STAGING_BYTES: staging ring per rank (e.g. 4M); default from the caches
  std::optional<std::chrono::microseconds>
      spin;  ///< WEFT_SPIN: polling before a wait sleeps (e.g. 50us, 0us); default by cores to spare
  bool read_peers =
      true;              ///< WEFT_READ_PEERS: ranks copy out of one another's private memory where the kernel lets them
  bool explain = false;  ///< WEFT_EXPLAIN: rank 0 says which algorithms are chosen, and why
  bool bind = true;      ///< WEFT_BIND: 0 leaves threads unbound
  bool mpi_stats = false;              ///< WEFT_MPI_STATS: libweft_mpi.so reports the calls it served and passed on
  std::optional<std::string> host_id;  ///< WEFT_HOST_ID: ranks of equal names share memory; default: by machine
  /// WEFT_BACKEND: shm mpi hierarchical ucx hierarchical_ucx; default by where the ranks are, and what started them
  std::optional<BackendKind> backend;
  /// WEFT_NET_DEVICES: what UCX may use, as UCX_NET_DEVICES (e.g. eth0 or mlx5_0:1,eth0); default: one interface
  std::optional<std::string> net_devices;
  /// WEFT_RMA: over UCX, long parts of symmetric memory are written to where they belong, without their receivers'
  /// doing, where all ranks have it so. Not by default: when a rank dies meanwhile, UCX may abort the others instead of
  /// telling them.
  bool rma = false;
  /// WEFT_WIRE: f32 bf16 fp8, what sums and averages of f32 cross between hosts as; rank 0's counts
  WireFormat wire = WireFormat::f32;
  /// WEFT_DEVICE_BACKEND: auto nccl staged hierarchical; equal on all ranks
  DeviceBackendKind device_backend = DeviceBackendKind::automatic;
  std::size_t flight_recorder = 256;            ///< WEFT_FLIGHT_RECORDER: calls remembered per communicator; 0 none
  std::optional<std::string> flight_directory;  ///< WEFT_FLIGHT_DIR: where failing communicators write them down

  /// WEFT_NCCL_LIBRARY: the libnccl.so that device memory goes through; default: libnccl.so.2, the process's or as the
  /// loader finds it
  std::optional<std::string> nccl_library;
  std::optional<std::size_t> torch_heap;  ///< WEFT_TORCH_HEAP: shared heap for PyTorch's CPU tensors (e.g. 4G)
  bool report = false;                    ///< WEFT_REPORT: the PyTorch back end reports its overlap at exit

  /// WEFT_TUNING_CACHE: where measured costs of algorithms are kept. None: nothing is measured, algorithms follow from
  /// cache sizes alone. from_environment() gives $XDG_CACHE_HOME/weft/tuning.json, or ~/.cache/weft/tuning.json.
  std::optional<std::string> tuning_cache;
  /// WEFT_AUTOTUNE_CACHE: where an Autotuner keeps what it settled on. None: it measures in every run.
  /// from_environment() gives $XDG_CACHE_HOME/weft/autotune.json, or ~/.cache/weft/autotune.json.
  std::optional<std::string> autotune_cache;

  /// Reads the environment. Warns, once in a process, about unknown WEFT_ names with the nearest known one (those of
  /// the tests, the demo, the scripts and the build are passed over); a bad value is an error.
  /// @throws Error{invalid_argument} naming variable, value and what is allowed.
  [[nodiscard]] static Config from_environment();

  /// As above, warning each time, over any (name → value) source: `environment` is null-terminated "NAME=value"
  /// strings, as environ.
  [[nodiscard]] static Config from_environment(char const* const* environment);

  /// Holds values set in code to the same rules. launch(), every bootstrap and Communicator::create call it.
  /// @throws Error{invalid_argument} naming member, value and what is allowed.
  void check() const;
};

/// "4M" → 4194304 (suffixes K M G T, powers of 1024; "Mi" and "MiB" are "M"). Empty when malformed or too large.
[[nodiscard]] std::optional<std::size_t> parse_bytes(std::string const& text);
/// "20us" → 20'000 ns (ns us ms s; a bare number is seconds). Empty when malformed or negative.
[[nodiscard]] std::optional<std::chrono::nanoseconds> parse_duration(std::string const& text);

}  // namespace weft
