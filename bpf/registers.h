/* SPDX-License-Identifier: GPL-2.0-only */
/* Arguments, results, stack and frame pointers of a traced function, from its registers. */
#ifndef VRAMPROF_REGISTERS_H
#define VRAMPROF_REGISTERS_H

#include "threads.h"

// Loads each register by an instruction of its own. Otherwise the compiler computes the register's
// address first, and the verifier rejects pointers computed from the context.
#define REGISTER(name)                                                                                                 \
	({                                                                                                             \
		u64 value;                                                                                             \
		asm volatile("%0 = *(u64 *)(%1 + %2)"                                                                  \
			     : "=r"(value)                                                                             \
			     : "r"(ctx), "i"(__builtin_offsetof(struct pt_regs, name)));                               \
		value;                                                                                                 \
	})

static EBPF_INLINE void save_arguments(struct pt_regs *ctx, struct call *call)
{
#if defined(__x86_64__)
	call->argument[0] = REGISTER(di);
	call->argument[1] = REGISTER(si);
	call->argument[2] = REGISTER(dx);
	call->argument[3] = REGISTER(cx);
	call->argument[4] = REGISTER(r8);
	call->argument[5] = REGISTER(r9);
#else
	call->argument[0] = REGISTER(regs[0]);
	call->argument[1] = REGISTER(regs[1]);
	call->argument[2] = REGISTER(regs[2]);
	call->argument[3] = REGISTER(regs[3]);
	call->argument[4] = REGISTER(regs[4]);
	call->argument[5] = REGISTER(regs[5]);
	call->argument[6] = REGISTER(regs[6]);
#endif
}

static EBPF_INLINE u64 argument(struct call *call, u8 position)
{
	return position ? call->argument[(position - 1) & (MAX_ARGUMENTS - 1)] : 0;
}

static EBPF_INLINE s32 return_value(struct pt_regs *ctx)
{
#if defined(__x86_64__)
	return (s32)ctx->ax;
#else
	return (s32)ctx->regs[0];
#endif
}

/* Bytes that a call pushes. */
#if defined(__x86_64__)
#define RETURN_ADDRESS_SIZE 8
#else
#define RETURN_ADDRESS_SIZE 0
#endif

// Returns, on return, the stack pointer that the call had on entry. On x86-64 the return address is
// already popped.
static EBPF_INLINE u64 entry_sp(struct pt_regs *ctx) { return ctx->sp - RETURN_ADDRESS_SIZE; }

#if defined(__x86_64__)
#define ARGUMENT_1 REGISTER(di)
#define ARGUMENT_2 REGISTER(si)
#define ARGUMENT_3 REGISTER(dx)
#define ARGUMENT_4 REGISTER(cx)
#define ARGUMENT_5 REGISTER(r8)
#else
#define ARGUMENT_1 REGISTER(regs[0])
#define ARGUMENT_2 REGISTER(regs[1])
#define ARGUMENT_3 REGISTER(regs[2])
#define ARGUMENT_4 REGISTER(regs[3])
#define ARGUMENT_5 REGISTER(regs[4])
#endif
#define ARGUMENT(position) ARGUMENT_##position

static EBPF_INLINE u64 frame_pointer(struct pt_regs *ctx)
{
#if defined(__x86_64__)
	return ctx->bp;
#else
	return ctx->regs[29];
#endif
}

#endif
