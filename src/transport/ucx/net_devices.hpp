#pragma once

#include <optional>
#include <string>

namespace weft::ucx {

/// The network devices that UCX may use, as its UCX_NET_DEVICES: left to itself it listens on every interface. `told`
/// (WEFT_NET_DEVICES), else none where the user has set UCX_NET_DEVICES, which UCX then follows. Otherwise all
/// InfiniBand ports, and of the other interfaces one: lo where all ranks are on this machine; else the only one besides
/// lo that is up, or the one that leads to MASTER_ADDR, or the one of the default route.
/// @throws Error{invalid_argument} where none of these tells, naming those there are.
[[nodiscard]] std::string choose_net_devices(std::optional<std::string> const& told, bool several_hosts);

}  // namespace weft::ucx
