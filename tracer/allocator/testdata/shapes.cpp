// SPDX-License-Identifier: Apache-2.0
// The shape of PyTorch's allocator at a version: VERSION is 113, 200, 210, 260, 300 (main) or 301 (its
// template). Only the order and kinds of fields are PyTorch's. It fills them at random, prints each
// block, and waits. Compiled as libc10_cuda.so.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>
#include <unistd.h>

using Words = std::vector<uint64_t>;
static std::mt19937_64 dice(VERSION);

// Flat is a hash map of robin-hood kind, with entries of a distance and some words.
template <int WORDS> struct Flat {
  struct Slot { int8_t distance; uint64_t words[WORDS]; };
  Slot *slots; uint64_t mask; int8_t shift, lookups; float load; uint64_t count;
  Flat() { reset(4, 3); mask = 0; }
  void reset(uint64_t n, int8_t most) {
    slots = new Slot[n + most]; mask = n - 1; shift = 60; lookups = most; load = 0.5f; count = 0;
    for (uint64_t i = 0; i < n + most; i++) slots[i].distance = -1;
    slots[(n == 4 && most == 3 ? 1 : n) + most - 1].distance = 0;  // the end
    if (n == 4 && most == 3) slots[2].distance = -1, slots[3].distance = 0;
  }
  void put(const std::vector<Words> &rows) {
    uint64_t n = 8;
    int8_t most = 4;
    while (n < rows.size() * 2) n *= 2, most++;
    reset(n, most);
    count = rows.size();
    for (auto &row : rows) {
      uint64_t i = dice() & mask;
      while (slots[i].distance >= 0) i = (i + 1) & mask;
      slots[i].distance = dice() % 3;
      for (int k = 0; k < WORDS; k++) slots[i].words[k] = row[k];
    }
  }
};

struct Block; struct Private;
bool less(const Block *a, const Block *b);
#if VERSION == 301
struct Less { bool operator()(const Block *a, const Block *b) const { return less(a, b); } };
struct Ordered : std::set<Block *, Less> {};
#else
struct Ordered : std::set<Block *, bool (*)(const Block *, const Block *)> {
  Ordered() : std::set<Block *, bool (*)(const Block *, const Block *)>(less) {}
};
#endif

struct Pool {
  Ordered blocks;
#if VERSION >= 210
  Ordered unmapped;
#endif
  bool small = false; Private *owner = nullptr;
#if VERSION >= 260
  int64_t calls = 0;
#endif
};

struct Block {
#if VERSION >= 260
  int8_t device;
#else
  int device;
#endif
  uint64_t stream; Flat<2> uses;
#if VERSION >= 300
  int32_t registrations = -1;
#endif
  uint64_t size;
#if VERSION >= 200
  uint64_t requested;
#endif
  Pool *pool; uint64_t ptr; bool allocated = false;
#if VERSION >= 210
  bool mapped = true;
#endif
  Block *prev = nullptr, *next = nullptr; int events = 0; int64_t collected = 0; std::shared_ptr<int> context[2]; void *expandable = nullptr;
};
bool less(const Block *a, const Block *b) {
  return std::make_pair(a->stream, std::make_pair(a->size, a->ptr)) < std::make_pair(b->stream, std::make_pair(b->size, b->ptr));
}

struct Counter { int64_t current = 0, peak = 0, allocated = 0, freed = 0; };
struct Three { Counter of[3]; };
enum { ALLOCATIONS, SEGMENTS, ACTIVE, SPLIT, ALLOCATED_BYTES, RESERVED_BYTES, ACTIVE_BYTES, SPLIT_BYTES, REQUESTED_BYTES };
struct Stats {
  Three all[VERSION >= 200 ? 9 : 8]; int64_t retries = 3, ooms = 1; Counter oversize[2]; int64_t most = -1;
  void add(int i, bool small, int64_t n) {
#if VERSION < 200
    if (i == REQUESTED_BYTES) return;
#endif
    for (int k : {0, small ? 1 : 2}) all[i].of[k].current += n, all[i].of[k].peak += n + 9, all[i].of[k].allocated += n + 4, all[i].of[k].freed += 4;
  }
};

struct Private {
#if VERSION >= 300
  uint64_t id[2] = {0, 5};
#endif
  int uses = 1, mallocs = 0;
#if VERSION >= 300
  void *allocator = nullptr;
#endif
  Pool large, small;
};

struct Device {
  std::recursive_mutex mutex; Stats stats;
#if VERSION >= 300
  int8_t id = 0;
#endif
  Pool large, small; Flat<1> active;
#if VERSION < 210
  int captures = 0;
#else
  std::vector<std::pair<std::pair<uint64_t, uint64_t>, std::function<bool(void *)>>> captures;
#endif
#if VERSION >= 300
  Flat<2> oom_pools;
#endif
  std::vector<Block *> deferred; Flat<4> events; size_t total = 0, most = 0; std::vector<void *> expandable; bool flags[2] = {};
  std::mutex other; void *more[4] = {}; Flat<3> graphs, freeable;
};

struct Root {
  virtual ~Root() = default;
  Flat<2> shards[67]; std::vector<std::unique_ptr<Device>> devices;
};
static Root root;

extern "C" void shape(int segments, int most) {
  uint64_t address = 0x7f0000000000;
  for (int d = 0; d < 2; d++) {
    auto *dev = new Device; root.devices.emplace_back(dev);
    auto *own = new Private; own->large.owner = own->small.owner = own; own->small.small = dev->small.small = true;
    dev->graphs.put({{0, 5, (uint64_t)own}});
    std::vector<Words> live;
    for (int s = 0; s < segments; s++, address += 64 << 20) {
      bool small = dice() % 2, in_private = dice() % 6 == 0, was_free = false;
      Pool *pool = in_private ? (small ? &own->small : &own->large) : small ? &dev->small : &dev->large;
      uint64_t stream = dice() % 3 * 4096, at = address;
      Block *last = nullptr;
      for (int n = 1 + dice() % most; n > 0; n--) {
        auto *b = new Block; b->device = d; b->stream = stream; b->pool = pool; b->ptr = at; b->size = (1 + dice() % 300) * 512;
        at += b->size; b->prev = last;
        if (last) last->next = b;
        last = b;
        uint64_t requested = b->size;
#if VERSION >= 200
        requested = b->requested = b->size - dice() % 512;
#endif
        const char *state = "inactive";
        if (was_free || dice() % 3) {
          was_free = false; b->allocated = dice() % 20; b->events = !b->allocated; state = b->allocated ? "active_allocated" : "active_pending_free";
          live.push_back({(uint64_t)b}); dev->stats.add(ACTIVE, small, 1); dev->stats.add(ACTIVE_BYTES, small, b->size);
          if (b->allocated) { dev->stats.add(ALLOCATIONS, small, 1); dev->stats.add(ALLOCATED_BYTES, small, b->size); dev->stats.add(REQUESTED_BYTES, small, requested); }
        } else {
          was_free = true; pool->blocks.insert(b);
        }
        printf("%lu %lu %lu %lu %d %d %d %s\n", b->ptr, b->size, requested, stream, in_private ? 5 : 0, d, small, state);
      }
      dev->stats.add(SEGMENTS, small, 1); dev->stats.add(RESERVED_BYTES, small, at - address);
    }
    dev->active.put(live);
  }
  puts("end");
  fflush(stdout);
}
