//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only
//
// Entry and return programs of the traced CUDA functions. One program serves all functions of a
// shape: what differs (argument positions, layer) comes in the attach cookie, see struct cookie.
// Linux 5.15 or newer: attach cookies, ring buffer.
#include "unwind.h"

char _license[] SEC("license") = "GPL";

// One load instruction for each register: left to itself the compiler first computes which
// register's address to read, and the verifier refuses pointers computed from the context.
#define REGISTER(name)                                                                                                 \
	({                                                                                                             \
		u64 value;                                                                                             \
		asm volatile("%0 = *(u64 *)(%1 + %2)"                                                                  \
			     : "=r"(value)                                                                             \
			     : "r"(ctx), "i"(__builtin_offsetof(struct pt_regs, name)));                               \
		value;                                                                                                 \
	})

static EBPF_INLINE u64 argument(struct pt_regs *ctx, u32 position)
{
	switch (position) {
#if defined(__x86_64__)
	case 1: return REGISTER(di);
	case 2: return REGISTER(si);
	case 3: return REGISTER(dx);
	case 4: return REGISTER(cx);
	case 5: return REGISTER(r8);
#else
	case 1: return REGISTER(regs[0]);
	case 2: return REGISTER(regs[1]);
	case 3: return REGISTER(regs[2]);
	case 4: return REGISTER(regs[3]);
	case 5: return REGISTER(regs[4]);
#endif
	}
	return 0;
}

static EBPF_INLINE s32 return_value(struct pt_regs *ctx)
{
#if defined(__x86_64__)
	return (s32)ctx->ax;
#else
	return (s32)ctx->regs[0];
#endif
}

// The stack pointer that the call had on entry, seen from its return:
// on x86-64 the return address is popped by then.
static EBPF_INLINE u64 entry_sp(struct pt_regs *ctx)
{
#if defined(__x86_64__)
	return ctx->sp - 8;
#else
	return ctx->sp;
#endif
}

static EBPF_INLINE struct process *find_process(u64 id)
{
	u32 pid = id >> 32;
	return bpf_map_lookup_elem(&processes, &pid);
}

// Builds the event in the ring's own memory: the stack of a program stays below the 64 bytes
// from which newer kernels share it between preempted tasks.
static EBPF_INLINE void send_call(struct thread *thread, struct call *call, enum event_kind kind, u64 id,
				  u64 time, u64 address, s32 result)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(COUNTER_EVENT_LOST);
		return;
	}
	event->time = time;
	event->address = address;
	event->size = call->size;
	event->stack = thread->stack;
	event->pid = id >> 32;
	event->tid = (u32)id;
	event->result = result;
	event->flags = thread->flags;
	event->kind = kind;
	event->api = thread->calls[0].cookie.function;
	event->function = call->cookie.function;
	event->duration = time - call->time;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

// Opens a call. Returns the thread when the call is its outermost allocation, whose stack is wanted.
static EBPF_INLINE struct thread *enter(struct pt_regs *ctx, struct process *process, u64 id)
{
	// A process without an entry counts as traced only when no filter was asked for.
	if (!(process ? process->traced : trace_all))
		return NULL;
	struct cookie cookie = read_cookie(ctx);
	if (cookie.role == ROLE_INIT) { // without a return probe: it opens no call
		send_note(EVENT_INIT, id);
		return NULL;
	}
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (!thread) {
		int zero = 0;
		struct thread *blank = bpf_map_lookup_elem(&blank_thread, &zero);
		if (!blank)
			return NULL;
		bpf_map_update_elem(&threads, &id, blank, BPF_ANY);
		thread = bpf_map_lookup_elem(&threads, &id);
		if (!thread) {
			count(COUNTER_THREADS_FULL);
			return NULL;
		}
	}

	u64 sp = ctx->sp;
	u32 depth = thread->depth;
	// Calls whose frame is gone never returned to us: longjmp, an exception, a lost return.
	// An equal stack pointer is a tail call, unless it is the same function again.
#pragma unroll
	for (int i = MAX_DEPTH; i > 0; i--) {
		if (depth != i)
			continue;
		struct call *open = &thread->calls[i - 1];
		if (open->sp < sp || (open->sp == sp && open->cookie.function == cookie.function))
			depth = i - 1;
	}
	if (depth >= MAX_DEPTH) {
		thread->depth = MAX_DEPTH;
		count(COUNTER_TOO_DEEP);
		return NULL;
	}

	struct call *call = &thread->calls[depth];
	call->sp = sp;
	call->time = bpf_ktime_get_ns();
	call->cookie = cookie;
	call->size = argument(ctx, cookie.size);
	call->pointer = argument(ctx, cookie.pointer);
	call->driver_calls = 0;
	call->driver_allocs = 0;
	thread->depth = depth + 1;
	if (depth == 0) {
		thread->stack = 0;
		thread->flags = 0;
	}
	if (cookie.role == ROLE_FREE && cookie.layer == LAYER_DRIVER) {
		if (call->pointer)
			send_call(thread, call, EVENT_FREE, id, call->time, call->pointer, 0);
	}
	return depth == 0 ? thread : NULL;
}

static EBPF_INLINE void leave_alloc(struct thread *thread, struct call *call, bool outermost, u64 id, s32 result)
{
	bool driver = call->cookie.layer == LAYER_DRIVER;
	u64 now = bpf_ktime_get_ns();
	if (result) {
		// Inside a runtime call the failure is the runtime's to report, once.
		if (outermost)
			send_call(thread, call, EVENT_ALLOC_FAILED, id, now, 0, result);
		return;
	}
	if (!driver && call->driver_allocs)
		return;
	u64 address = 0;
	if (bpf_probe_read_user(&address, sizeof(address), (void *)call->pointer)) {
		count(COUNTER_UNREADABLE);
		return;
	}
	if (address && call->size)
		send_call(thread, call, EVENT_ALLOC, id, now, address, 0);
}

static EBPF_INLINE void leave_free(struct thread *thread, struct call *call, u64 id, s32 result)
{
	if (!call->pointer)
		return;
	if (call->cookie.layer == LAYER_DRIVER) {
		if (result)
			send_call(thread, call, EVENT_FREE_FAILED, id, call->time, call->pointer, result);
		return;
	}
	if (!result && !call->driver_calls)
		send_call(thread, call, EVENT_FREE, id, call->time, call->pointer, 0);
}

static EBPF_INLINE void leave(struct pt_regs *ctx, u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (!thread)
		return;
	struct cookie cookie = read_cookie(ctx);
	u64 sp = entry_sp(ctx);
	u32 depth = MAX_DEPTH;
#pragma unroll
	for (int i = 0; i < MAX_DEPTH; i++)
		if (i < thread->depth && thread->calls[i].sp == sp && thread->calls[i].cookie.function == cookie.function)
			depth = i;
	if (depth >= MAX_DEPTH)
		return; // entered before the probes were there
	struct call *call = &thread->calls[depth];
	s32 result = return_value(ctx);
	if (cookie.layer == LAYER_DRIVER && depth > 0) {
		struct call *outer = &thread->calls[(depth - 1) & (MAX_DEPTH - 1)];
		outer->driver_calls++;
		if (!result && cookie.role == ROLE_ALLOC)
			outer->driver_allocs++;
	}
	if (cookie.role == ROLE_ALLOC)
		leave_alloc(thread, call, depth == 0, id, result);
	else if (cookie.role == ROLE_FREE)
		leave_free(thread, call, id, result);
	thread->depth = depth;
}

// Entry of an allocation: the only program that unwinds, hence a perf event uprobe
// (uprobe_multi programs cannot tail-call the unwinder).
SEC("kprobe/alloc_enter")
int alloc_enter(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	guard_begin();
	struct process *process = find_process(id);
	struct thread *thread = enter(ctx, process, id);
	if (thread)
		count(COUNTER_STACKS);
	bool known = thread && recall_walk(ctx, thread, process, id);
	guard_end();
	if (thread && !known)
		start_unwind(ctx, thread, id);
	return 0;
}

SEC("kprobe/call_enter")
int call_enter(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	guard_begin();
	enter(ctx, find_process(id), id);
	guard_end();
	return 0;
}

SEC("kprobe/call_return")
int call_return(struct pt_regs *ctx)
{
	guard_begin();
	leave(ctx, bpf_get_current_pid_tgid());
	guard_end();
	return 0;
}

// The dynamic loader calls _dl_debug_state whenever its list of libraries changed, before any code
// of a new library runs (glibc and musl, for debuggers). A process that the tracer started stops here
// until the new library has its probes.
SEC("kprobe/library_loaded")
int library_loaded(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct process *process = find_process(id);
	if (!process || !process->held)
		return 0;
	if (bpf_send_signal(SIGSTOP))
		return 0;
	send_note(EVENT_HELD, id);
	return 0;
}
