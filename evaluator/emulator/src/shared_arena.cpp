#include "shared_arena.h"

#include <algorithm>
#include <new>

#include "fresh.h"
#include "limits.h"
#include "nearby.h"

namespace emu {
namespace {

GuardedPages map_or_throw(std::size_t bytes, std::size_t alignment) {
  GuardedPages pages = GuardedPages::map(bytes, alignment);
  if (pages.mapping == nullptr) throw std::bad_alloc();
  return pages;
}

std::string array_of(const char* kind, std::size_t bytes) {
  return std::string("a ") + kind + " shared array of " + std::to_string(bytes) + " bytes";
}

}  // namespace

SharedArena::~SharedArena() {
  for (Site& site : sites_) site.pages.unmap();
  dynamic_.unmap();
}

void SharedArena::begin_launch(std::size_t dynamic_bytes) {
  // Reuse the mapping only for the same size: the array must end at the guard page.
  if (dynamic_.mapping != nullptr && dynamic_.bytes == dynamic_bytes) return;
  dynamic_.unmap();
  dynamic_ = map_or_throw(dynamic_bytes, kAlignment);
}

void* SharedArena::statically(const void* unit, int id, std::size_t bytes, std::size_t alignment) {
  for (Site& site : sites_) {
    if (site.id != id || site.unit != unit || site.pages.bytes != bytes) continue;
    if (site.block != block_) {
      site.block = block_;
      fill_fresh(site.pages.data, bytes);
    } else {
      return site.pages.data;
    }
    std::size_t used = 0;
    for (const Site& other : sites_) used += other.block == block_ ? other.pages.bytes : 0;
    return used > limits::kStaticSharedBytes ? nullptr : site.pages.data;
  }
  // Exact alignment without slack: sizes are multiples of alignments, so the array ends at the guard page.
  sites_.push_back({unit, id, 0, map_or_throw(bytes, alignment)});
  return statically(unit, id, bytes, alignment);
}

void* SharedArena::dynamically() {
  if (dynamic_block_ != block_) {
    dynamic_block_ = block_;
    fill_fresh(dynamic_.data, dynamic_.bytes);
  }
  return dynamic_.data;
}

bool SharedArena::is_written_twice() {
  if (dynamic_block_ != block_) return false;
  const char* const data = dynamic_.data;
  if (content_.empty()) {
    content_.assign(data, data + dynamic_.bytes);
    is_changed_.assign(dynamic_.bytes, false);
    return false;
  }
  bool is_twice = false;
  for (std::size_t i = 0; i != dynamic_.bytes; ++i) {
    if (content_[i] == data[i]) continue;
    is_twice |= is_changed_[i];
    is_changed_[i] = true;
    content_[i] = data[i];
  }
  return is_twice;
}

std::string SharedArena::damage() const {
  std::ptrdiff_t first = 0;
  for (const Site& site : sites_) {
    if (site.block == block_ && site.pages.is_damaged(&first)) {
      return "WRITE " + nearby::distance(first, array_of("static", site.pages.bytes));
    }
  }
  if (dynamic_block_ == block_ && dynamic_.is_damaged(&first)) {
    return "WRITE " + nearby::distance(first, array_of("dynamic", dynamic_.bytes));
  }
  return {};
}

std::string SharedArena::describe(std::uintptr_t address) const {
  for (const Site& site : sites_) {
    if (site.pages.covers(address)) return nearby::describe(site.pages, address, array_of("static", site.pages.bytes));
  }
  if (dynamic_.covers(address)) return nearby::describe(dynamic_, address, array_of("dynamic", dynamic_.bytes));
  return {};
}

}  // namespace emu
