//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only
//
// Entry and return programs of the traced functions. One program serves all functions of one kind:
// the attach cookie is the function's id in the probe table. Linux 5.10 or newer; before 5.15,
// which has no attach cookies, with -DNO_COOKIES.
#include "attach_cookie.h"
#include "block_reports.h"
#include "call_events.h"
#include "effects.h"
#include "filter.h"
#include "functions.h"
#include "preempt.h"
#include "processes.h"
#include "registers.h"
#include "requests.h"
#include "rings.h"
#include "thread_entries.h"
#include "threads.h"
#include "unwind.h"
#include "wrappers.h"

// Brings types into BTF that Go needs and that no map has.
struct exported {
	enum event_kind kind;
	enum event_flag flag;
	enum role role;
	enum layer layer;
	enum effect effect;
	enum cuda_result result;
	enum function_limit function;
	enum table table;
	enum device_type device;
	enum allocator_number number;
	enum size_class_count class;
	enum sampling sampling;
	enum block_key_bits key;
	enum block_value_bits value;
	enum sent_stacks_size sent;
	enum block_cookie cookie;
	enum walk_error error;
	struct details details;
	struct near_table near;
	struct wrapper wrapper;
	struct runtime_part part;
	enum wrapper_limit wrappers;
	struct block_layout layout;
};
const struct exported *exported __attribute__((unused));

char _license[] SEC("license") = "GPL";

// Saves a structure passed by value on entry: the callee may overwrite it.
static EBPF_INLINE void save_by_value(struct pt_regs *ctx, struct thread *thread, struct call *call, struct function *function)
{
#if defined(__x86_64__)
	void *from = (void *)ctx->sp + 8;
#else
	void *from = (void *)argument(call, function->by_value);
#endif
	u32 size = function->by_value_size;
	if (size > BY_VALUE_SIZE)
		size = BY_VALUE_SIZE;
	__builtin_memset(thread->by_value, 0, BY_VALUE_SIZE);
	thread->by_value_valid = !bpf_probe_read_user(thread->by_value, size, from);
}

// Saves where the outermost call returns to. If a call inside it wants a stack, the return address
// on the stack is by then that of the kernel's trampoline.
static EBPF_INLINE void note_caller(struct pt_regs *ctx, struct thread *thread)
{
#if defined(__x86_64__)
	if (bpf_probe_read_user(&thread->caller, sizeof(thread->caller), (void *)ctx->sp))
		thread->caller = 0;
	thread->caller_sp = ctx->sp + 8;
#else
	thread->caller = REGISTER(regs[30]);
	thread->caller_sp = ctx->sp;
#endif
	thread->caller_fp = frame_pointer(ctx);
}

// Reports whether a driver's free was entered inside another one of the same address: a library
// that replaces the driver's functions calls the driver. The outer free was reported.
static EBPF_INLINE bool is_freed_outside(struct thread *thread, u32 depth, u64 address)
{
	struct call *outer = &thread->calls[(depth - 1) & (MAX_DEPTH - 1)];
	if (!depth || outer->role != ROLE_FREE)
		return false;
	struct function *function = find_function(outer->function);
	return function && function->layer == LAYER_DRIVER && argument(outer, function->address) == address;
}

// Makes room for a call inside MAX_DEPTH others, and returns its depth. No program ends so many
// functions by jumps in turn: what is open at the new call's stack pointer is over, and its return
// was not seen. Calls further out may not be over; dropping them is a loss, but one only.
static EBPF_INLINE u32 drop_calls(struct thread *thread, u64 sp, u64 id)
{
	u32 depth = MAX_DEPTH;
#pragma unroll
	for (int i = MAX_DEPTH; i > 0; i--)
		if (depth == i && thread->calls[i - 1].sp == sp)
			depth = i - 1;
	if (depth < MAX_DEPTH)
		return depth;
	lose(COUNTER_TOO_DEEP, id);
	return 0;
}

// Opens a call. Returns the thread if a stack is wanted: once per outermost call.
static EBPF_INLINE struct thread *enter(struct pt_regs *ctx, struct process *process, u64 id, bool alloc)
{
	if (!is_traced(process))
		return NULL;
	u64 cookie = attach_cookie(ctx);
	u32 function_id = cookie & COOKIE_FUNCTION;
	struct function *function = find_function(function_id);
	if (!function)
		return NULL;
	if (!alloc && function->role == ROLE_INIT) { // it has no return probe, so it opens no call
		long error;
		if (share_of(id, &error))
			send_note(EVENT_INIT, id);
		return NULL;
	}
	struct thread *thread = this_thread(id);
	if (!thread)
		return NULL;
	u64 sp = ctx->sp;
	u32 depth = thread->depth;
	// Close calls whose frame is gone and whose return was not seen: longjmp, an exception, a
	// lost return, a detached probe. An equal stack pointer is a tail call, unless it is the same
	// function again.
#pragma unroll
	for (int i = MAX_DEPTH; i > 0; i--) {
		if (depth != i)
			continue;
		struct call *open = &thread->calls[i - 1];
		if (open->sp < sp || (open->sp == sp && open->function == function_id) || was_retired(open))
			depth = i - 1;
	}
	if (depth >= MAX_DEPTH)
		depth = thread->depth = drop_calls(thread, sp, id);

	struct call *outer = &thread->calls[(depth - 1) & (MAX_DEPTH - 1)];
	if (depth && outer->sp == sp)
		note_wrapped(outer, false); // after a tail call, no stack has the wrapper's frame
	struct call *call = &thread->calls[depth];
	// The function called itself by a jump, or rather its namesake in another library. Or its
	// return was lost.
	bool again = depth < thread->depth && call->sp == sp && call->function == function_id;
	u64 freed = again && call->role == ROLE_FREE ? argument(call, function->address) : 0;
	call->sp = sp;
	call->time = bpf_ktime_get_ns();
	call->function = function_id;
	call->role = function->role;
	call->inner_calls = 0;
	call->inner_successes = 0;
	call->wrapper = cookie >> WRAPPER_SHIFT;
	save_arguments(ctx, call);
	if (alloc && function->by_value_size) // no other function takes one
		save_by_value(ctx, thread, call, function);
	thread->depth = depth + 1;
	if (depth == 0) {
		thread->stack = 0;
		thread->flags = 0;
		thread->tag = 0;
		thread->report.kind = 0;
		thread->caller = 0;
		thread->api = function_id;
		// A driver call contains no other call that takes a stack, and a first call that is a free
		// frees nothing.
		if (!alloc && function->layer != LAYER_DRIVER && !(function->role == ROLE_FREE && argument(call, function->address)))
			note_caller(ctx, thread);
	}
	if (!alloc && function->role == ROLE_FREE && function->layer == LAYER_DRIVER) {
		u64 address = argument(call, function->address);
		if (address && address != freed && !is_freed_outside(thread, depth, address))
			send_call(thread, call, function, EVENT_FREE, id, call->time, address, 0);
	}
	if (!alloc || thread->tag || (depth && !thread->caller))
		return NULL;
	thread->tag = call->time;
	thread->walk = 0;
	if (function->object)
		thread->flags |= UNCOUNTED;
	return thread;
}

// Reads the address that the call stored, or takes the argument itself. Returns 0 on success.
static EBPF_INLINE long read_address(struct call *call, struct function *function, u64 *address)
{
	u64 value = argument(call, function->address);
	void *from = (void *)value + function->address_offset;
	*address = 0;
	if (function->address_width == 8)
		return bpf_probe_read_user(address, 8, from);
	if (function->address_width == 4)
		return bpf_probe_read_user(address, 4, from);
	*address = value;
	return 0;
}

static EBPF_INLINE void leave_alloc(struct thread *thread, struct call *call, struct function *function,
				    bool outermost, u64 id, s32 result)
{
	if (result) {
		// Inside a runtime call, only the runtime call reports the failure.
		if (outermost)
			report(thread, call, function, EVENT_ALLOC_FAILED, id, 0, result);
		return;
	}
	if (call->inner_successes) {
		note_wrapped(call, true);
		return;
	}
	u64 address;
	if (read_address(call, function, &address)) {
		lose(COUNTER_UNREADABLE, id);
		return;
	}
	if (!address)
		return;
	note_wrapped(call, false);
	report(thread, call, function, EVENT_ALLOC, id, address, 0);
}

static EBPF_INLINE void leave_free(struct thread *thread, struct call *call, struct function *function, u32 depth,
				   u64 id, s32 result)
{
	u64 address = argument(call, function->address);
	if (!address)
		return;
	if (function->layer == LAYER_DRIVER) {
		if (result && !is_freed_outside(thread, depth, address))
			send_call(thread, call, function, EVENT_FREE_FAILED, id, call->time, address, result);
		return;
	}
	if (result)
		return;
	note_wrapped(call, call->inner_calls);
	if (!call->inner_calls)
		send_call(thread, call, function, EVENT_FREE, id, call->time, address, 0);
}

static EBPF_INLINE void leave_other(struct thread *thread, struct call *call, struct function *function, u32 depth,
				    u64 id, s32 result)
{
	if (function->effect == EFFECT_END_CAPTURE && result != CUDA_CAPTURE_WRONG_THREAD)
		end_capture(argument(call, function->address), id);
	if (result)
		return;
	u64 address;
	if (read_address(call, function, &address)) {
		lose(COUNTER_UNREADABLE, id);
		return;
	}
	if (function->role == ROLE_CALL && !call->inner_successes)
		report(thread, call, function, EVENT_CALL, id, address, 0);
	if (function->layer == LAYER_RUNTIME || !call->inner_successes)
		apply_effect(thread, call, function, depth, id, address);
}

// Notes in the call around an inner call that the inner call reported the same. A runtime function
// calls the driver's function; a function of a library that replaces runtime or driver calls its
// namesake there, or another function that allocates or frees.
static EBPF_INLINE void note_inner(struct call *outer, struct call *call, struct function *function, bool success)
{
	if (outer->role != call->role)
		return;
	if (call->role > ROLE_FREE && call->function != outer->function) {
		struct function *outside = find_function(outer->function);
		if (!outside || outside->layer == LAYER_DRIVER || function->layer == LAYER_RUNTIME)
			return;
	}
	outer->inner_calls++;
	outer->inner_successes += success;
}

// Returns the depth of the call that returns; MAX_DEPTH: it was entered before the attach.
static EBPF_INLINE u32 depth_of_return(struct pt_regs *ctx, struct thread *thread, u32 function_id)
{
	u64 sp = entry_sp(ctx);
	u32 depth = MAX_DEPTH;
#pragma unroll
	for (int i = 0; i < MAX_DEPTH; i++)
		if (i < thread->depth && thread->calls[i].sp == sp && thread->calls[i].function == function_id)
			depth = i;
	return depth;
}

static EBPF_INLINE void leave(struct pt_regs *ctx, u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (!thread)
		return;
	u32 function_id = attach_cookie(ctx) & COOKIE_FUNCTION;
	u32 depth = depth_of_return(ctx, thread, function_id);
	struct function *function = find_function(function_id);
	if (depth >= MAX_DEPTH || !function)
		return;
	struct call *call = &thread->calls[depth];
	if (was_retired(call))
		return;
	s32 result = return_value(ctx);
	if (depth > 0)
		note_inner(&thread->calls[(depth - 1) & (MAX_DEPTH - 1)], call, function, !result);
	if (function->role == ROLE_ALLOC)
		leave_alloc(thread, call, function, depth == 0, id, result);
	else if (function->role == ROLE_FREE)
		leave_free(thread, call, function, depth, id, result);
	else
		leave_other(thread, call, function, depth, id, result);
	thread->depth = depth;
}

// Entry of a function whose stack is taken. It starts the unwinder's chain of tail calls, whose
// programs must all have one attach type.
SEC("kprobe/alloc_enter")
int alloc_enter(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	guard_begin();
	struct process *process = find_process(id);
	struct thread *thread = enter(ctx, process, id, true);
	if (thread)
		count_of_walk(thread, COUNTER_STACKS);
	bool known = thread && !thread->caller && recall_walk(ctx, thread, process, id);
	guard_end();
	if (thread && !known)
		start_unwind(ctx, thread, process, id);
	return 0;
}

SEC("kprobe/call_enter")
int call_enter(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	guard_begin();
	enter(ctx, find_process(id), id, false);
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

// Sends what a request to the kernel driver gives back. The object may be one of another kind, or
// have been made before the attach: user space ignores those.
static EBPF_INLINE void send_object_free(struct request *r, u32 function_id, u64 id)
{
	struct request_free f;
	if (bpf_probe_read_user(&f, sizeof(f), r->body)) {
		lose(COUNTER_UNREADABLE, id);
		return;
	}
	struct event *event = reserve_event(sizeof(*event), id);
	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	fill_note(event, EVENT_FREE, id);
	event->address = key_of_object(f.client, f.handle);
	event->device = -1;
	event->api = event->function = function_id;
	bpf_ringbuf_submit(event, wakeup_flag(false));
}

// Reports whether the call around the innermost one allocates for the program: what the driver
// takes for that is booked by the call's own event, or as rounding.
static EBPF_INLINE bool is_for_allocation(struct thread *thread)
{
	u32 depth = thread->depth;
	if (depth < 2)
		return false;
	struct call *outer = &thread->calls[(depth - 2) & (MAX_DEPTH - 1)];
	struct function *function = find_function(outer->function);
	return function && function->role == ROLE_ALLOC && function->layer == LAYER_DRIVER && !function->object;
}

// Entry of ioctl in a process that uses CUDA.
SEC("kprobe/request_enter")
int request_enter(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct request r;
	if (!read_request(ARGUMENT(2), ARGUMENT(3), &r))
		return 0;
	guard_begin();
	struct process *process = find_process(id);
	struct thread *thread = NULL;
	bool known = false;
	struct given g;
	if (!is_traced(process)) {
		// no call is open
	} else if (r.number == REQUEST_FREE) {
		send_object_free(&r, attach_cookie(ctx) & COOKIE_FUNCTION, id);
	} else if (read_given(&r, &g)) {
		thread = enter(ctx, process, id, true);
		struct thread *open = bpf_map_lookup_elem(&threads, &id);
		if (open && is_for_allocation(open)) {
			open->depth--;
			thread = NULL;
		}
		if (thread) {
			count_of_walk(thread, COUNTER_STACKS);
			known = !thread->caller && recall_walk(ctx, thread, process, id);
		}
	}
	guard_end();
	if (thread && !known)
		start_unwind(ctx, thread, process, id);
	return 0;
}

// Sends the memory that a request to the kernel driver returned, unless an ioctl inside did: the
// one of libc, which a library in front of it calls.
static EBPF_INLINE void leave_request(struct pt_regs *ctx, struct thread *thread, u64 id)
{
	u32 function_id = attach_cookie(ctx) & COOKIE_FUNCTION;
	u32 depth = depth_of_return(ctx, thread, function_id);
	struct function *function = find_function(function_id);
	if (depth >= MAX_DEPTH || !function)
		return;
	struct call *call = &thread->calls[depth];
	thread->depth = depth;
	struct call *outer = &thread->calls[(depth - 1) & (MAX_DEPTH - 1)];
	struct function *around = depth ? find_function(outer->function) : NULL;
	struct request r;
	struct given g;
	if (call->inner_successes)
		return;
	if (!read_request(argument(call, 2), argument(call, 3), &r) || !read_given(&r, &g)) { // on entry, it could be read
		lose(COUNTER_UNREADABLE, id);
		return;
	}
	if (g.status)
		return;
	if (depth)
		note_inner(outer, call, function, true);
	struct event *event = reserve_event(sizeof(*event), id);
	if (!event)
		return;
	fill_event(event, thread, call, function, EVENT_ALLOC, id, bpf_ktime_get_ns(), key_of_object(g.client, g.handle), 0);
	event->size = g.size;
	if (around && (around->effect == EFFECT_CREATE_CONTEXT || around->effect == EFFECT_RETAIN_CONTEXT)) {
		event->device = argument(outer, around->extra);
		event->context = 0; // the new one is not current yet
	}
	bpf_ringbuf_submit(event, wakeup_flag(false));
}

SEC("kprobe/request_return")
int request_return(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (!thread || !thread->depth)
		return 0;
	guard_begin();
	leave_request(ctx, thread, id);
	guard_end();
	return 0;
}

// Entry of c10::reportMemoryUsageToProfiler.
SEC("kprobe/block_reported")
int block_reported(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	guard_begin();
	struct thread *thread = note_block(ctx, id);
	struct process *process = thread ? find_process(id) : NULL;
	bool known = thread && recall_walk(ctx, thread, process, id);
	if (known)
		send_block_of(thread, id);
	guard_end();
	if (thread && !known) {
		start_unwind(ctx, thread, process, id);
		send_waiting_block(id); // the chain was not entered: no stack
	}
	return 0;
}

// The same, where details of blocks are wanted: it sends them, and goes on with block_reported.
SEC("kprobe/block_detailed")
int block_detailed(struct pt_regs *ctx)
{
	struct block_report r = {};
	guard_begin();
	read_report(ctx, &r);
	note_details(ctx, &r, bpf_get_current_pid_tgid());
	guard_end();
	bpf_tail_call(ctx, &report_program, 0);
	return 0;
}

// Entry of c10::reportOutOfMemoryToProfiler(requested, allocated, reserved, device).
SEC("kprobe/block_failed")
int block_failed(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct block_report r = {.time = bpf_ktime_get_ns(), .size = ARGUMENT(1), .allocated = ARGUMENT(2), .reserved = ARGUMENT(3), .device = ARGUMENT(4)};
	guard_begin();
	struct process *process = find_process(id);
	struct tensor_key key = {.pid = id >> 32, .device = r.device};
	struct tensor_device *d = find_allocator(&key);
	if (d) {
		d->begun++;
		take_totals(d, &r, r.time, true);
		d->ended = d->begun;
		totals_sent(d, EVENT_BLOCK_FAILED);
	}
	struct thread *thread = is_traced(process) ? begin_report(&r, EVENT_BLOCK_FAILED, id) : NULL;
	guard_end();
	if (thread) {
		start_unwind(ctx, thread, process, id);
		send_waiting_block(id); // the chain was not entered: no stack
	}
	return 0;
}

// Entry of _dl_debug_state, which the dynamic loader of glibc and musl calls for debuggers: after
// its list of libraries changed, and before code of a new library runs. A process that the tracer
// started stops here until the new library has its probes.
SEC("kprobe/library_loaded")
int library_loaded(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct process *process = find_process(id);
	if (!process || !process->held)
		return 0;
	// Reserve the event first: never stop a process that nobody will resume.
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(COUNTER_NOT_HELD);
		return 0;
	}
	__builtin_memset(event, 0, sizeof(*event));
	if (bpf_send_signal(SIGSTOP)) {
		bpf_ringbuf_discard(event, BPF_RB_NO_WAKEUP);
		count(COUNTER_NOT_HELD);
		return 0;
	}
	fill_note(event, EVENT_HELD, id);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 0;
}
