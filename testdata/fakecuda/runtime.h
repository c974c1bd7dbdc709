// SPDX-License-Identifier: Apache-2.0
// Internal to the runtime, which is compiled twice: with exported symbols for the shared library,
// with hidden ones for the static library.
#pragma once
#include "private.h"

#ifdef CUDART_STATIC
#define API __attribute__((visibility("hidden")))
#else
#define API __attribute__((visibility("default")))
#endif

// The real functions begin with `push %r15` and save every callee-saved register.
#if defined(__x86_64__)
#define SAVE_REGISTERS() __asm__ volatile("" ::: "rbx", "rbp", "r12", "r13", "r14", "r15")
#elif defined(__aarch64__)
#define SAVE_REGISTERS() __asm__ volatile("" ::: "x19", "x20", "x21", "x22")
#endif

enum { SUCCESS = 0, INVALID_VALUE = 1, INSUFFICIENT_DRIVER = 35, NO_DEVICE = 100, INVALID_DEVICE = 101 };

// extern declarations ignore -fvisibility.
extern __attribute__((visibility("hidden"))) struct private_table cudart_driver;
int cudart_ready(void);       // makes the thread's device current if necessary
int cudart_record(int result); // for cudaGetLastError
int cudart_context(int ordinal, struct context **c); // the primary context, created if necessary
