/* SPDX-License-Identifier: GPL-2.0-only */
/* Types, macros and helper functions from the unwinder's headers, for clang's BPF target. */
#ifndef VRAMPROF_UNWINDER_DEFS_H
#define VRAMPROF_UNWINDER_DEFS_H

#if defined(__TARGET_ARCH_x86)
#define __x86_64__ 1
#define __x86_64 1
#elif defined(__TARGET_ARCH_arm64)
#define __aarch64__ 1
#endif

// clang-format off: order matters
#include "bpfdefs.h"
#include "kernel.h"
#include "types.h"
// clang-format on

#endif
