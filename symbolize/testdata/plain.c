// SPDX-License-Identifier: Apache-2.0
// Plain names: exported, static, aliased and indirect.
volatile int sink;

__attribute__((noinline)) static int local_helper(int n) {
  sink += n;
  return sink * 7;
}

static inline int inlined(int n) {
  sink ^= n;
  return sink + n;
}

__attribute__((noinline)) int exported(int n) {
  return local_helper(n) + inlined(n);
}

int alias_of_exported(int n) __attribute__((weak, alias("exported")));

typedef int (*worker)(int);
worker choose(void) { return exported; }
int indirect(int n) __attribute__((ifunc("choose")));

__asm__(".text\n"
        ".globl unsized_label\n"
        "unsized_label:\n"
        "nop\nnop\nnop\nret\n"
        ".type unsized_function, %function\n"
        ".globl unsized_function\n"
        "unsized_function:\n"
        "nop\nnop\nnop\nret\n");
