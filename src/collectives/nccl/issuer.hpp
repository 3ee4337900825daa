#pragma once

#include <cstddef>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/message.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "collectives/nccl/nccl_types.hpp"
#include "runtime/cuda/cuda_stream.hpp"

namespace weft::nccl {

/// Turns Weft's calls into NCCL calls on one stream. Where one Weft call needs several NCCL calls, it groups them. An
/// Issuer lives for one call, or for all calls of one group; finish() comes last.
/// @throws Error{system|…} naming NCCL's call.
class Issuer {
 public:
  /// `scratch`: a few bytes of device memory.
  Issuer(NcclCommunicator& communicator, ncclComm_t handle, cuda::CudaStream& stream, int rank, int size,
         void* scratch) noexcept
      : communicator_(communicator),
        nccl_(communicator.nccl()),
        handle_(handle),
        stream_(stream),
        rank_(rank),
        size_(size),
        scratch_(scratch) {}
  ~Issuer();
  Issuer(Issuer const&) = delete;
  Issuer& operator=(Issuer const&) = delete;

  /// end_group() launches all calls issued since begin_group() together. Groups nest.
  void begin_group();
  void end_group();

  /// `call` must have passed check_supported().
  void issue(Call const& call);
  void issue(Message const& message);

  /// Waits if NCCL has not finished its host-side work (the first call makes connections, for example), then releases
  /// the operators and staging memory that calls needed.
  void finish();

 private:
  void note(ncclResult_t result, char const* call) {
    if (result != ncclSuccess) [[unlikely]]
      note_slowly(result, call);
  }
  void note_slowly(ncclResult_t result, char const* call);
  void give_back_staging();

  void all_reduce(Call const& call);
  void reduce(Call const& call);
  void reduce_scatter(Call const& call);
  void reduce_scatter_v(Call const& call);
  void all_gather_v(Call const& call);
  void gather_v(Call const& call);
  void scatter_v(Call const& call);
  void all_to_all(Call const& call);
  void all_to_all_v(Call const& call);
  void barrier();

  /// Point-to-point transfers, in bytes.
  void send(void const* data, std::size_t bytes, int peer);
  void receive(void* data, std::size_t bytes, int peer);
  /// Copies what this rank gives itself.
  void copy(void* to, void const* from, std::size_t bytes);
  /// The NCCL operator of a reducing call; makes one for premul_sum.
  [[nodiscard]] ncclRedOp_t operator_for(Call const& call, ReducedElements const& how);

  NcclCommunicator& communicator_;
  NcclFunctions const& nccl_;
  ncclComm_t const handle_;
  cuda::CudaStream& stream_;
  int const rank_;
  int const size_;
  void* const scratch_;
  int depth_ = 0;
  bool in_progress_ = false;
  std::vector<ncclRedOp_t> operators_;  // premul_sum's
  std::vector<void*> staging_;
};

}  // namespace weft::nccl
