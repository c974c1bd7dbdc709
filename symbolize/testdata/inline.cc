// SPDX-License-Identifier: Apache-2.0
// Inlined calls, templates, namespaces, a lambda and a virtual method.
#include <cstddef>
#include <vector>

extern "C" void *allocate(std::size_t);
volatile int sink;

namespace tensor {

template <typename T> struct Buffer {
  explicit Buffer(std::size_t n) : data(grow(n)) {}
  static inline T *grow(std::size_t n) {
    sink = static_cast<int>(n);
    return static_cast<T *>(allocate(n * sizeof(T)));
  }
  T *data;
};

struct Op {
  virtual ~Op() {}
  virtual void *run(int n);
};

inline int twice(int n) {
  if (sink > n)
    sink = n * 3;
  return sink + n;
}

__attribute__((noinline)) void *Op::run(int n) {
  Buffer<float> small(twice(n));
  Buffer<std::vector<double>> large(twice(n + 1));
  sink = twice(sink);
  return small.data ? static_cast<void *>(small.data) : large.data;
}

}  // namespace tensor

namespace {
__attribute__((noinline)) void *hidden(int n) {
  auto each = [n](int k) __attribute__((noinline)) { return allocate(n + k); };
  return each(sink);
}
}  // namespace

extern "C" void *train(tensor::Op *op, int steps) {
  void *last = nullptr;
  for (int i = 0; i < steps; i++) {
    last = op->tensor::Op::run(i);
    if (__builtin_expect(last == nullptr, 0))
      throw hidden(i);
  }
  return last;
}
