#pragma once

#include <optional>
#include <string>

namespace weft::ucx {

/// Chooses the network devices that UCX may use, in the form of UCX_NET_DEVICES; left to itself, UCX listens on every
/// interface.
///
/// - `told` (WEFT_NET_DEVICES), where it is set.
/// - Empty where the user has set UCX_NET_DEVICES, which UCX then follows.
/// - Otherwise all InfiniBand ports, and one other interface: lo where all ranks are on this machine; else the only one
///   besides lo that is up, or the one that leads to MASTER_ADDR, or the one of the default route.
/// @throws Error{invalid_argument} naming the interfaces where none of these rules finds one, or where `told` names one
/// that is not up.
[[nodiscard]] std::string choose_net_devices(std::optional<std::string> const& told, bool several_machines);

}  // namespace weft::ucx
