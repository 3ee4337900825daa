#pragma once

#include <nccl.h>

#include <cstddef>

#if NCCL_VERSION_CODE < 22800
#error "Weft needs the headers of NCCL 2.28 or newer"
#endif

namespace weft::nccl {

/// Every NCCL function that Weft calls, under NCCL's name and with NCCL's meaning. Weft reaches NCCL only through this
/// table: a real library is opened at run time (see NcclLibrary), and tests put a recording fake in its place.
/// Functions that a library lacks are null.
struct NcclFunctions {
  // Every library from 2.28 on has these.
  ncclResult_t (*get_version)(int*);
  ncclResult_t (*get_unique_id)(ncclUniqueId*);
  char const* (*get_error_string)(ncclResult_t);
  char const* (*get_last_error)(ncclComm_t);

  ncclResult_t (*comm_init_rank_config)(ncclComm_t*, int ranks, ncclUniqueId, int rank, ncclConfig_t*);
  ncclResult_t (*comm_split)(ncclComm_t, int color, int key, ncclComm_t*, ncclConfig_t*);
  ncclResult_t (*comm_shrink)(ncclComm_t, int* excluded, int excluded_count, ncclComm_t*, ncclConfig_t*, int flags);
  ncclResult_t (*comm_finalize)(ncclComm_t);
  ncclResult_t (*comm_destroy)(ncclComm_t);
  ncclResult_t (*comm_abort)(ncclComm_t);
  ncclResult_t (*comm_get_async_error)(ncclComm_t, ncclResult_t*);

  ncclResult_t (*group_start)();
  ncclResult_t (*group_end)();

  ncclResult_t (*all_reduce)(void const*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*reduce)(void const*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int root, ncclComm_t,
                         cudaStream_t);
  ncclResult_t (*reduce_scatter)(void const*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                 cudaStream_t);
  ncclResult_t (*all_gather)(void const*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*broadcast)(void const*, void*, std::size_t, ncclDataType_t, int root, ncclComm_t, cudaStream_t);
  ncclResult_t (*all_to_all)(void const*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
  ncclResult_t (*gather)(void const*, void*, std::size_t, ncclDataType_t, int root, ncclComm_t, cudaStream_t);
  ncclResult_t (*scatter)(void const*, void*, std::size_t, ncclDataType_t, int root, ncclComm_t, cudaStream_t);
  ncclResult_t (*send)(void const*, std::size_t, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
  ncclResult_t (*recv)(void*, std::size_t, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);

  ncclResult_t (*red_op_create_pre_mul_sum)(ncclRedOp_t*, void* scalar, ncclDataType_t, ncclScalarResidence_t,
                                            ncclComm_t);
  ncclResult_t (*red_op_destroy)(ncclRedOp_t, ncclComm_t);

  ncclResult_t (*mem_alloc)(void**, std::size_t);
  ncclResult_t (*mem_free)(void*);
  ncclResult_t (*comm_window_register)(ncclComm_t, void*, std::size_t, ncclWindow_t*, int flags);
  ncclResult_t (*comm_window_deregister)(ncclComm_t, ncclWindow_t);

  // Only some libraries have these.
  ncclResult_t (*comm_revoke)(ncclComm_t, int flags);  ///< null before 2.28.9: communicators are aborted instead
};

}  // namespace weft::nccl
