#include "importers/chakra/storages.hpp"

#include <algorithm>
#include <utility>

namespace weft::chakra {

namespace {

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

void add_once(std::vector<std::int32_t>& to, std::int32_t id) {
  if (std::find(to.begin(), to.end(), id) == to.end()) to.push_back(id);
}

}  // namespace

void Storages::allocate(std::int64_t storage) {
  contents_[storage] = {.allocated = true};
}

void Storages::make_within(OpId op, std::int64_t storage) {
  auto const found = contents_.find(storage);
  if (found != contents_.end() && found->second.made_by == op) return;  // its own result
  contents_[storage] = {.made_by = op, .allocated = true};
}

bool Storages::is_empty(std::int64_t storage) const {
  auto const found = contents_.find(storage);
  return found != contents_.end() && found->second.tensor == kNone && found->second.made_by == kNone;
}

TensorId Storages::add(std::string name, TensorId alias_of) {
  TensorId const tensor = graph_.add(OpTensor{.name = std::move(name), .alias_of = alias_of});
  roots_.push_back(alias_of == kNone ? tensor : alias_of);
  extents_.push_back(0);
  return tensor;
}

void Storages::touch(TensorId tensor, std::int64_t extent) {
  auto& of_root = extents_[index(roots_[index(tensor)])];
  of_root = std::max(of_root, extent);
}

/// The tensor that lies in the storage. Where there was none, it adds one that `by` has written, or that was there from
/// the beginning.
TensorId Storages::made(Content& content, std::int64_t storage, OpId by) {
  if (content.tensor != kNone) return content.tensor;
  content.tensor = add("storage" + std::to_string(storage), kNone);
  if (by == kNone) {
    graph_.tensors[index(content.tensor)].kept = true;
  } else {
    graph_.ops[index(by)].writes.push_back(content.tensor);
    content.users.push_back(by);
  }
  return content.tensor;
}

void Storages::read(OpId op, std::int64_t storage, std::int64_t extent) {
  auto& content = contents_[storage];
  TensorId const tensor = made(content, storage, content.made_by);
  touch(tensor, extent);
  if (content.made_by == op) return;
  add_once(graph_.ops[index(op)].reads, tensor);
  if (content.users.empty() || content.users.back() != op) content.users.push_back(op);
}

void Storages::make(OpId op, std::int64_t storage, std::int64_t extent) {
  auto& content = contents_[storage];
  bool const again = content.tensor != kNone && content.made_by == op;  // two results in one storage
  if (!again) content = {.made_by = op};
  touch(made(content, storage, op), extent);
}

void Storages::write(OpId op, std::int64_t storage, std::int64_t extent) {
  if (is_empty(storage)) {
    make(op, storage, extent);
    return;
  }
  auto& content = contents_[storage];
  TensorId const before = made(content, storage, content.made_by);
  touch(before, extent);
  if (content.made_by == op) return;  // the operator has written there already
  TensorId const root = roots_[index(before)];
  TensorId const after = add(graph_.tensors[index(root)].name, root);
  graph_.tensors[index(after)].kept = graph_.tensors[index(root)].kept;
  auto& node = graph_.ops[index(op)];
  node.writes.push_back(after);
  for (OpId const user : content.users) {
    if (user != op) node.after.push_back(user);
  }
  content = {.tensor = after, .made_by = op, .users = {op}};
}

void Storages::finish() {
  for (std::size_t tensor = 0; tensor < roots_.size(); ++tensor) {
    graph_.tensors[tensor].bytes = extents_[index(roots_[tensor])];
  }
  for (auto& op : graph_.ops) {  // several of an operator's storages may have had the same users
    std::sort(op.after.begin(), op.after.end());
    op.after.erase(std::unique(op.after.begin(), op.after.end()), op.after.end());
  }
}

}  // namespace weft::chakra
