#pragma once

#include <ucp/api/ucp.h>

#include <memory>

namespace weft::ucx {

/// The functions of UCX that Weft calls, under UCX's names and with its meaning. The library is opened at run time,
/// since loading it installs hooks and signal handlers, which processes that do not use UCX should not get.
struct UcpLibrary {
#define WEFT_UCP_FUNCTIONS(apply)                                                                                      \
  apply(ucp_init_version) apply(ucp_cleanup) apply(ucp_config_read) apply(ucp_config_modify) apply(ucp_config_release) \
      apply(ucp_worker_create) apply(ucp_worker_destroy) apply(ucp_worker_get_address)                                 \
          apply(ucp_worker_release_address) apply(ucp_worker_get_efd) apply(ucp_worker_arm) apply(ucp_worker_signal)   \
              apply(ucp_worker_progress) apply(ucp_worker_flush_nbx) apply(ucp_worker_set_am_recv_handler)             \
                  apply(ucp_ep_create) apply(ucp_ep_close_nbx) apply(ucp_am_send_nbx) apply(ucp_tag_send_nbx)          \
                      apply(ucp_tag_recv_nbx) apply(ucp_tag_probe_nb) apply(ucp_tag_msg_recv_nbx)                      \
                          apply(ucp_request_cancel) apply(ucp_request_check_status) apply(ucp_request_free)            \
                              apply(ucp_tag_send_sync_nbx) apply(ucp_mem_map) apply(ucp_mem_unmap)                     \
                                  apply(ucp_rkey_pack) apply(ucp_rkey_buffer_release) apply(ucp_ep_rkey_unpack)        \
                                      apply(ucp_rkey_destroy) apply(ucp_put_nbx) apply(ucp_ep_flush_nbx)               \
                                          apply(ucs_status_string)
#define WEFT_UCP_MEMBER(name) decltype(&::name) name = nullptr;
  WEFT_UCP_FUNCTIONS(WEFT_UCP_MEMBER)
#undef WEFT_UCP_MEMBER

  /// Opens libucp.so.0 as the loader finds it, or as the process has it already. It stays open until the process ends.
  /// @throws Error{unsupported} saying what to install.
  [[nodiscard]] static std::shared_ptr<UcpLibrary const> open();

  /// @throws Error{system} with `call` and UCX's text for `status`, unless that is UCS_OK.
  void check(ucs_status_t status, char const* call) const;
};

}  // namespace weft::ucx
