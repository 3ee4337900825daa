#pragma once

namespace weft::torch_backend {

/// torch.ops.weft's layers (weft/layers.py says what each computes): schemas, what computes them on CPUs and GPUs, and
/// their gradients. torch knows them from the moment at which the extension is loaded, so that a process loads only one
/// build of it. Calls below autograd go through torch's dispatcher: torch.compile sees the ops.

/// Whether the ops compute on GPUs; otherwise they throw c10::NotImplementedError there.
[[nodiscard]] bool has_device_layers() noexcept;

}  // namespace weft::torch_backend
