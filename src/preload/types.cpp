#include "preload/types.hpp"

#include <algorithm>
#include <array>

namespace weft::preload {
namespace {

std::optional<DataType> integer_of(std::size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1: return is_signed ? DataType::i8 : DataType::u8;
    case 2: return is_signed ? DataType::i16 : DataType::u16;
    case 4: return is_signed ? DataType::i32 : DataType::u32;
    case 8: return is_signed ? DataType::i64 : DataType::u64;
    default: return std::nullopt;
  }
}

bool is_unsigned(MPI_Datatype type) {
  for (auto const known : {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UINT8_T,
                           MPI_UNSIGNED_LONG_LONG, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T, MPI_BYTE}) {
    if (type == known) return true;
  }
  return false;
}

/// Whether MPI itself made the type. Those of Fortran's kinds count as well: they must not be freed.
bool is_predefined(MPI_Datatype type) {
  std::array<int, 4> envelope{};
  PMPI_Type_get_envelope(type, &envelope[0], &envelope[1], &envelope[2], &envelope[3]);
  constexpr std::array kOfMpi{MPI_COMBINER_NAMED, MPI_COMBINER_F90_REAL, MPI_COMBINER_F90_INTEGER,
                              MPI_COMBINER_F90_COMPLEX};
  return std::find(kOfMpi.begin(), kOfMpi.end(), envelope[3]) != kOfMpi.end();
}

/// Whether elements of `type` are plain bytes: a predefined type without gaps, or several of them in a row.
bool is_dense(MPI_Datatype type, std::size_t bytes) {
  std::array<int, 4> counts{};
  if (PMPI_Type_get_envelope(type, &counts[0], &counts[1], &counts[2], &counts[3]) != MPI_SUCCESS) return false;
  if (counts[3] == MPI_COMBINER_NAMED) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    PMPI_Type_get_extent(type, &lower, &extent);
    return lower == 0 && static_cast<std::size_t>(extent) == bytes;
  }
  if (counts[3] != MPI_COMBINER_CONTIGUOUS && counts[3] != MPI_COMBINER_DUP) return false;
  int integer = 1;
  MPI_Aint address = 0;
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  if (PMPI_Type_get_contents(type, counts[0], counts[1], counts[2], &integer, &address, &inner) != MPI_SUCCESS)
    return false;
  MPI_Count inner_bytes = 0;
  PMPI_Type_size_x(inner, &inner_bytes);
  auto const dense = is_dense(inner, static_cast<std::size_t>(inner_bytes));
  if (!is_predefined(inner)) PMPI_Type_free(&inner);  // a handle of our own
  return dense;
}

}  // namespace

TypeTable::TypeTable()
    : operations_{{MPI_SUM, ReduceOp::sum},   {MPI_MAX, ReduceOp::max},   {MPI_MIN, ReduceOp::min},
                  {MPI_PROD, ReduceOp::prod}, {MPI_LAND, ReduceOp::land}, {MPI_LOR, ReduceOp::lor},
                  {MPI_LXOR, ReduceOp::lxor}, {MPI_BAND, ReduceOp::band}, {MPI_BOR, ReduceOp::bor},
                  {MPI_BXOR, ReduceOp::bxor}} {
  // The types programs use most come first: they are found first.
  for (auto const type : {MPI_DOUBLE, MPI_FLOAT}) add(type, Kind::floating);
  for (auto const type : {MPI_INT, MPI_LONG, MPI_UNSIGNED_LONG, MPI_UNSIGNED}) add(type, Kind::integer);
  for (auto const type : {MPI_BYTE}) add(type, Kind::byte);
  for (auto const type : {MPI_CHAR, MPI_PACKED, MPI_WCHAR}) add(type, Kind::other);
  for (auto const type : {MPI_DOUBLE_PRECISION, MPI_REAL, MPI_REAL4, MPI_REAL8}) add(type, Kind::floating);
  for (auto const type :
       {MPI_LONG_LONG, MPI_UNSIGNED_LONG_LONG, MPI_SHORT, MPI_UNSIGNED_SHORT, MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR,
        MPI_INT8_T, MPI_UINT8_T, MPI_INT16_T, MPI_UINT16_T, MPI_INT32_T, MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T,
        MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8})
    add(type, Kind::integer);
  for (auto const type : {MPI_AINT, MPI_OFFSET, MPI_COUNT}) add(type, Kind::address);
  for (auto const type :
       {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8, MPI_COMPLEX16})
    add(type, Kind::complex);
  for (auto const type : {MPI_C_BOOL}) add(type, Kind::logical);
  for (auto const type : {MPI_LOGICAL, MPI_CHARACTER}) add(type, Kind::other);
}

void TypeTable::add(MPI_Datatype type, Kind kind) {
  if (type == MPI_DATATYPE_NULL) return;  // a Fortran type where MPI was built without Fortran
  MPI_Count bytes = 0;
  if (PMPI_Type_size_x(type, &bytes) != MPI_SUCCESS || bytes <= 0) return;
  auto const size = static_cast<std::size_t>(bytes);
  std::optional<DataType> dtype;
  switch (kind) {
    case Kind::integer:
    case Kind::byte:
    case Kind::address: dtype = integer_of(size, !is_unsigned(type)); break;
    case Kind::floating:
      if (size == 4) dtype = DataType::f32;
      if (size == 8) dtype = DataType::f64;
      break;
    case Kind::complex:
      if (size == 8) dtype = DataType::c64;
      if (size == 16) dtype = DataType::c128;
      break;
    case Kind::logical:
      if (size == 1) dtype = DataType::boolean;
      break;
    case Kind::other: break;
  }
  entries_.push_back({type, {type, size, static_cast<std::ptrdiff_t>(size), is_dense(type, size)}, dtype, kind});
}

TypeTable::Entry const* TypeTable::find(MPI_Datatype type) const noexcept {
  auto const entry = std::find_if(entries_.begin(), entries_.end(), [type](Entry const& e) { return e.type == type; });
  return entry == entries_.end() ? nullptr : &*entry;
}

/// Which operations MPI allows on a type: MPI-3.1, 5.9.2.
bool TypeTable::allows(Kind kind, ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::min:
    case ReduceOp::max: return kind == Kind::integer || kind == Kind::floating || kind == Kind::address;
    case ReduceOp::sum:
    case ReduceOp::prod:
      return kind == Kind::integer || kind == Kind::floating || kind == Kind::complex || kind == Kind::address;
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::lxor: return kind == Kind::integer || kind == Kind::logical;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor: return kind == Kind::integer || kind == Kind::byte || kind == Kind::address;
    default: return false;
  }
}

std::optional<KnownReduction> TypeTable::reduction(MPI_Datatype type, MPI_Op op) const noexcept {
  auto const* const entry = find(type);
  if (entry == nullptr || !entry->dtype) return std::nullopt;
  auto const operation =
      std::find_if(operations_.begin(), operations_.end(), [op](Operation const& o) { return o.handle == op; });
  if (operation == operations_.end() || !allows(entry->kind, operation->op)) return std::nullopt;
  return KnownReduction{*entry->dtype, operation->op};
}

std::optional<Layout> TypeTable::layout(MPI_Datatype type, MPI_Comm scratch) const {
  if (auto const* const entry = find(type)) return entry->layout;
  if (type == MPI_DATATYPE_NULL) return std::nullopt;
  // MPI checks the type even where nothing is packed: it may be uncommitted.
  std::byte nowhere{};
  int position = 0;
  if (PMPI_Pack(&nowhere, 0, type, &nowhere, 1, &position, scratch) != MPI_SUCCESS) return std::nullopt;
  MPI_Count bytes = 0;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  if (PMPI_Type_size_x(type, &bytes) != MPI_SUCCESS || bytes < 0) return std::nullopt;
  if (PMPI_Type_get_extent(type, &lower, &extent) != MPI_SUCCESS) return std::nullopt;
  auto const size = static_cast<std::size_t>(bytes);
  return Layout{type, size, extent, is_dense(type, size)};
}

}  // namespace weft::preload
