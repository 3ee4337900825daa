#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weft/buffer.hpp"
#include "weft/optimizer_options.hpp"
#include "weft/stream.hpp"

namespace weft {

/// Parameters that are optimized alike.
struct ParameterGroup {
  std::vector<BufferView> parameters;  ///< f32, bf16 or f16; all groups' on the CPU, or on one GPU
  OptimizerOptions options;
};

enum class StateType {
  f32,
  block8,  ///< one byte an element and a scale for every 256 (Dettmers et al.: 8-bit Optimizers via Block-wise
           ///< Quantization, 2022; the steps here are powers, not theirs: m = ±s·(q/127)², v = s·(q/255)⁴, rounded at
           ///< random to either side, the same way in every run)
};

struct OptimizerSettings {
  bool master_weights = true;   ///< bf16 and f16 parameters have f32 originals of 4 bytes an element
  bool zero_gradients = false;  ///< updates leave zeros where the gradient was
  StateType state = StateType::f32;
};

/// Memory of the caller's for what Optimizer keeps of one parameter; must outlive it. The optimizer takes what lies
/// there for its own and sets nothing first.
struct ParameterMemory {
  BufferView master{};               ///< f32 original of a bf16 or f16 parameter; without memory where it has none
  std::vector<BufferView> states{};  ///< f32, in the order of state_names()
};

/// What a step depends on beside gradients. The values are read when its updates run, not when it is called (`step`
/// when it begins), so nobody has to wait for them on the host. On a GPU pointers are into its memory, and what
/// begin_step() enqueues reads them all.
///
/// A gradient g becomes g·inv_scale·clip, and is then brought within ±clip_value: in f32, whatever its type.
struct StepInputs {
  float const* lr = nullptr;  ///< null: the options'
  /// The number of this step, if it is applied, 1 to 2^53: what bias corrections and decays go by, and step_count()
  /// from then on. The caller counts, and gives a step that was skipped no number. To count for several optimizers
  /// without the host's help, give another optimizer's step_memory(), once that one has begun the same step; both then
  /// skip by the same found_inf. Null: one more than step_count().
  std::int64_t const* step = nullptr;
  float const* inv_scale = nullptr;   ///< multiplies gradients; null: 1
  float const* clip = nullptr;        ///< multiplies them too, see clip_factor(); null: 1
  std::optional<float> clip_value{};  ///< at least 0, see clip_grad_value(); needs no other gradient. Absent: no limit
  /// Not 0: the step is skipped and does not count; gradients are still zeroed. Null: no step is skipped.
  float const* found_inf = nullptr;
  Stream const* stream = nullptr;  ///< GPU: where the step runs; null: on the device's legacy default stream
};

/// Updates many tensors, each in one pass over its memory (Lamb: two), SIMD chosen at run time. Arithmetic is f32,
/// whatever the types; results are within a few units in the last place of the formulas' in double.
///
/// On a GPU begin_step(), update() and step() only enqueue, allocate nothing, and can be captured in CUDA graphs (a
/// graph repeats the options' lr, so give it StepInputs::lr): step() is one launch for all tensors of an optimizer
/// (Lamb: three) beside a small one. update_moments() of one parameter, step_count() and what is for checkpoints wait
/// for the device.
///
/// A step: begin_step(), then update() of each tensor once, in any order; or step(). Parameters must outlive it. Not
/// thread-safe, but different threads may update() different tensors between the same begin_step() and the next.
class Optimizer {
 public:
  /// @throws Error{unsupported} for a parameter of another type or device; Error{invalid_argument} for one without
  /// memory, for two that share some, and for options that make no sense; Error{out_of_memory}
  explicit Optimizer(std::vector<ParameterGroup> const& groups, OptimizerSettings const& settings = {});
  /// One group.
  Optimizer(std::vector<BufferView> parameters, OptimizerOptions const& options,
            OptimizerSettings const& settings = {});
  /// States and f32 originals lie in `memory`, one entry for each parameter, counted over all groups. So tensors may be
  /// given in parts that threads update side by side, and what belongs to another library stays its own.
  /// @throws as above; Error{invalid_argument} for memory that does not fit; Error{unsupported} for a StateType other
  /// than f32.
  Optimizer(std::vector<ParameterGroup> const& groups, std::vector<ParameterMemory> const& memory,
            OptimizerSettings const& settings);
  ~Optimizer();
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  /// Counts a step, unless *inputs.found_inf. `inputs` are read until the next begin_step(). @throws
  /// Error{invalid_argument} for a *inputs.step below 1 (not on a GPU, where such a step gives NaN), and nothing
  /// begins.
  void begin_step(StepInputs const& inputs = {});
  /// Updates parameter `index` (counted over all groups) from `gradient`: f32, bf16 or f16, as many elements.
  /// @throws Error{invalid_argument} on a wrong index, count or dtype, without begin_step(), or the second time since.
  void update(std::size_t index, BufferView gradient);
  /// The same of several parameters: on a GPU one launch for neighbours of one kind of optimizer.
  void update(std::span<std::size_t const> indices, std::span<BufferView const> gradients);
  /// begin_step() and update() of every parameter.
  void step(std::span<BufferView const> gradients, StepInputs const& inputs = {});

  /// Lamb of a tensor whose other parts are elsewhere, instead of update(): first the moments and Σp², Σu² of this
  /// part, then, with the sums over all parts, the parameter. Other optimizers do all of it in the first call and leave
  /// zeros.
  struct Norms {
    double parameter = 0;
    double direction = 0;
  };
  [[nodiscard]] Norms update_moments(std::size_t index, BufferView gradient);
  void apply(std::size_t index, Norms const& whole);
  /// The same of several, without waiting for a GPU: `norms`, f64 where the parameters are, gets those of indices[i] at
  /// 2·places[i] and behind; apply() reads the sums there. @throws Error{invalid_argument} as update() does.
  void update_moments(std::span<std::size_t const> indices, std::span<BufferView const> gradients,
                      std::span<std::size_t const> places, BufferView norms);
  void apply(std::span<std::size_t const> indices, std::span<std::size_t const> places, BufferView norms);

  [[nodiscard]] std::size_t parameter_count() const noexcept;  ///< tensors in all groups
  /// @throws Error{invalid_argument} for a bad index, as everything that takes one, of a group too.
  [[nodiscard]] BufferView parameter(std::size_t index) const;
  /// Parameter `index`'s f32 original; the parameter itself where it has none.
  [[nodiscard]] BufferView master(std::size_t index) const;
  /// Copies parameter values to the f32 originals: after parameters were written from elsewhere.
  void refresh_masters();

  [[nodiscard]] std::size_t group_count() const noexcept;
  [[nodiscard]] OptimizerOptions const& options(std::size_t group = 0) const;
  /// Of all groups. @throws Error{invalid_argument} for one that is not finite and at least 0.
  void set_lr(double lr);
  void set_lr(std::size_t group, double lr);
  /// From the next step on. @throws Error{invalid_argument} for options that make no sense, or are of another optimizer
  /// or keep other states than the group's.
  void set_options(std::size_t group, OptimizerOptions const& options);

  /// Steps that were applied.
  [[nodiscard]] std::int64_t step_count() const;
  void set_step_count(std::int64_t step);  ///< @throws Error{invalid_argument} for one below 0 or above 2^53
  /// Where step_count() is kept, in the parameters' device's memory, as long as the optimizer lives (moved or not).
  [[nodiscard]] std::int64_t const* step_memory() const noexcept;

  /// For checkpoints: torch's names of what is kept for parameter `index` ("exp_avg" …), and each as f32. Of 8-bit
  /// state a copy, which set_state() takes back.
  [[nodiscard]] std::span<std::string_view const> state_names(std::size_t index) const;
  [[nodiscard]] std::vector<float> state(std::size_t index, std::size_t which) const;
  /// @throws Error{invalid_argument} on a wrong count.
  void set_state(std::size_t index, std::size_t which, std::span<float const> values);
  /// Bytes of states and of f32 originals.
  [[nodiscard]] std::size_t state_bytes() const noexcept;

  class Impl;  ///< the seam implemented per device

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
