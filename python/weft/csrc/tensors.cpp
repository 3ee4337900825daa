#include "tensors.hpp"

#include <optional>
#include <sstream>

#include <ATen/ops/item.h>
#include <c10/util/Exception.h>

#include "device.hpp"

namespace weft::torch_backend {
namespace {

std::optional<DataType> data_type_of_scalar(at::ScalarType type) noexcept {
  switch (type) {
    case at::kFloat: return DataType::f32;
    case at::kDouble: return DataType::f64;
    case at::kHalf: return DataType::f16;
    case at::kBFloat16: return DataType::bf16;
    case at::kFloat8_e4m3fn: return DataType::f8e4m3;
    case at::kFloat8_e5m2: return DataType::f8e5m2;
    case at::kComplexFloat: return DataType::c64;
    case at::kComplexDouble: return DataType::c128;
    case at::kBool: return DataType::boolean;
    case at::kChar: return DataType::i8;
    case at::kByte: return DataType::u8;
    case at::kShort: return DataType::i16;
    case at::kUInt16: return DataType::u16;
    case at::kInt: return DataType::i32;
    case at::kUInt32: return DataType::u32;
    case at::kLong: return DataType::i64;
    case at::kUInt64: return DataType::u64;
    default: return std::nullopt;
  }
}

/// The type that moves elements of which Weft knows only the size.
std::optional<DataType> data_type_of_size(std::size_t bytes) noexcept {
  switch (bytes) {
    case 1: return DataType::u8;
    case 2: return DataType::u16;
    case 4: return DataType::u32;
    case 8: return DataType::u64;
    default: return std::nullopt;
  }
}

/// "input, a torch.Tensor of shape [2, 3] and strides [1, 2]"
std::string describe(at::Tensor const& tensor, char const* name) {
  std::ostringstream text;
  text << name << ", a " << tensor.scalar_type() << " tensor of shape " << tensor.sizes();
  if (tensor.layout() == at::kStrided) text << " and strides " << tensor.strides();
  return text.str();
}

[[noreturn]] void refuse(at::Tensor const& tensor, Place const& place, char const* name, bool row_major) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, place, ": ", describe(tensor, name), ", is not dense (layout ",
                    tensor.layout(), "); pass tensor.to_dense()");
  TORCH_CHECK_VALUE(tensor.device().is_cpu() || tensor.device().is_cuda(), place, ": ", describe(tensor, name),
                    ", is on ", tensor.device(), "; weft moves tensors on CPUs and NVIDIA GPUs");
  TORCH_CHECK_VALUE(row_major || tensor.is_non_overlapping_and_dense(), place, ": ", describe(tensor, name),
                    ", has gaps or overlaps in memory; pass tensor.contiguous()");
  TORCH_CHECK_VALUE(false, place, ": ", describe(tensor, name),
                    ", must be in row-major order, since ranks' parts lie one after the other in it; pass "
                    "tensor.contiguous()");
  std::abort();
}

BufferView view_of(at::Tensor const& tensor, Place const& place) {
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), data_type(tensor, place),
          weft_device(tensor.device())};
}

bool is_reachable(at::Tensor const& tensor) {
  return tensor.layout() == at::kStrided && (tensor.device().is_cpu() || tensor.device().is_cuda());
}

}  // namespace

std::ostream& operator<<(std::ostream& out, Place const& place) {
  return out << "weft: rank " << place.rank << ": " << place.operation;
}

DataType data_type(at::Tensor const& tensor, Place const& place) {
  if (auto const type = data_type_of_scalar(tensor.scalar_type())) return *type;
  auto const type = data_type_of_size(tensor.element_size());
  TORCH_CHECK_TYPE(type.has_value(), place, ": tensors of dtype ", tensor.scalar_type(),
                   " are not supported; convert, or view() it as an integer type");
  return *type;
}

at::Tensor const& only(std::vector<at::Tensor> const& tensors, Place const& place) {
  TORCH_CHECK_VALUE(tensors.size() == 1, place, ": expects one tensor, not ", tensors.size());
  return tensors[0];
}

void check_reachable(at::Tensor const& tensor, Place const& place, char const* name) {
  if (C10_UNLIKELY(!is_reachable(tensor))) refuse(tensor, place, name, false);
}

BufferView view(at::Tensor const& tensor, Place const& place, char const* name) {
  auto const fits = is_reachable(tensor) && (tensor.is_contiguous() || tensor.is_non_overlapping_and_dense());
  if (C10_UNLIKELY(!fits)) refuse(tensor, place, name, false);
  return view_of(tensor, place);
}

BufferView contiguous_view(at::Tensor const& tensor, Place const& place, char const* name) {
  auto const fits = is_reachable(tensor) && tensor.is_contiguous();
  if (C10_UNLIKELY(!fits)) refuse(tensor, place, name, true);
  return view_of(tensor, place);
}

void check_same_type(at::Tensor const& one, at::Tensor const& other, Place const& place) {
  TORCH_CHECK_VALUE(one.scalar_type() == other.scalar_type(), place, ": tensors have different dtypes, ",
                    one.scalar_type(), " and ", other.scalar_type());
}

void check_alike(at::Tensor const& one, at::Tensor const& other, Place const& place, char const* name) {
  check_same_type(one, other, place);
  TORCH_CHECK_VALUE(one.sizes() == other.sizes(), place, ": ", name, " has shape ", one.sizes(),
                    " but the other tensors have ", other.sizes(), "; make the shapes equal");
}

bool overlaps(BufferView one, BufferView other) {
  auto const begin = [](BufferView buffer) { return static_cast<std::byte const*>(buffer.data); };
  auto const end = [&](BufferView buffer) { return begin(buffer) + buffer.count * size_of(buffer.dtype); };
  return begin(one) < end(other) && begin(other) < end(one);
}

at::Tensor apart(at::Tensor const& input, BufferView send, BufferView recv, std::size_t share) {
  if (C10_LIKELY(!overlaps(send, recv))) return input;
  auto const& whole = send.count > recv.count ? send : recv;
  auto const& part = send.count > recv.count ? recv : send;
  if (part.data == whole.slice(share, 0).data) return input;
  return input.clone();
}

Reduction reduction(c10d::ReduceOp const& op, at::Tensor const& tensor, Place const& place) {
  TORCH_CHECK_TYPE(data_type_of_scalar(tensor.scalar_type()).has_value(), place, ": tensors of dtype ",
                   tensor.scalar_type(), " are moved but not reduced; convert to a dtype that has sums, e.g. float32");
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return ReduceOp::sum;
    case c10d::ReduceOp::AVG: return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::prod;
    case c10d::ReduceOp::MIN: return ReduceOp::min;
    case c10d::ReduceOp::MAX: return ReduceOp::max;
    case c10d::ReduceOp::BAND: return ReduceOp::band;
    case c10d::ReduceOp::BOR: return ReduceOp::bor;
    case c10d::ReduceOp::BXOR: return ReduceOp::bxor;
    case c10d::ReduceOp::PREMUL_SUM: {
      auto const* const factor = dynamic_cast<c10d::NCCLPreMulSumSupplement const*>(op.supplement_.get());
      TORCH_CHECK_VALUE(factor != nullptr, place,
                        ": PREMUL_SUM has no factor; make it by "
                        "torch.distributed._make_nccl_premul_sum(factor)");
      return Reduction::premul_sum(factor->tensor_factor.defined() ? factor->tensor_factor.item().toDouble()
                                                                   : factor->double_factor);
    }
    default: break;
  }
  TORCH_CHECK_VALUE(false, place, ": reduce op ", static_cast<int>(op.op_), " is not one of torch's");
  std::abort();
}

}  // namespace weft::torch_backend
