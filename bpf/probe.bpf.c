//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only
//
// Entry and return programs of the traced CUDA functions. One program serves all functions of a
// shape: what differs (argument positions, layer) stands in struct function, by the id in the attach cookie.
// Linux 5.10 or newer; without attach cookies (5.15) with -DNO_COOKIES.
#include "unwind.h"

// What Go wants to know and nothing here refers to by its type.
struct exported {
	enum event_kind kind;
	enum event_flag flag;
	enum role role;
	enum effect effect;
	struct details details;
};
const struct exported *exported __attribute__((unused));

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

static EBPF_INLINE struct process *find_process(u64 id)
{
	u32 pid = id >> 32;
	return bpf_map_lookup_elem(&processes, &pid);
}

static EBPF_INLINE struct function *find_function(u32 id) { return bpf_map_lookup_elem(&functions, &id); }

// The ordinal + 1 of a context's device, 0: unknown.
static EBPF_INLINE u16 device_of(u64 context, u64 id)
{
	if (!context)
		return 0;
	struct context_key key = {context, id >> 32};
	u32 *device = bpf_map_lookup_elem(&contexts, &key);
	return device ? *device : 0;
}

static EBPF_INLINE void link_context(u64 context, u32 device, u64 id)
{
	if (!context || !device)
		return;
	struct context_key key = {context, id >> 32};
	if (!bpf_map_update_elem(&contexts, &key, &device, BPF_EXIST))
		return;
	struct share *share = share_of(id);
	if (!share || share->contexts >= MAX_CONTEXTS_OF_PROCESS) {
		lose_of(id);
		return;
	}
	if (!bpf_map_update_elem(&contexts, &key, &device, BPF_NOEXIST))
		__sync_fetch_and_add(&share->contexts, 1);
}

static EBPF_INLINE void unlink_context(u64 context, u64 id)
{
	struct context_key key = {context, id >> 32};
	if (bpf_map_delete_elem(&contexts, &key))
		return;
	struct share *share = find_share(id);
	if (share && share->contexts)
		__sync_fetch_and_add(&share->contexts, -1);
}

// The ordinal that is current in a thread, -1: unknown. A context may have been made current before
// its device was learned from another thread.
static EBPF_INLINE s16 current_device(struct thread *thread, u64 id)
{
	if (!thread->device)
		thread->device = device_of(thread->context, id);
	if (!thread->device && thread->runtime_device) {
		struct function *outermost = find_function(thread->calls[0].function);
		if (outermost && outermost->layer == LAYER_RUNTIME)
			return (s16)thread->runtime_device - 1;
	}
	return (s16)thread->device - 1;
}

#define MAX_STREAM_NAME 2 /* above CU_STREAM_PER_THREAD: handles */
#define WRONG_THREAD 908  /* CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD */

// The streams without a handle that can be captured are those of a thread.
static EBPF_INLINE struct stream_key stream_of(u64 stream, u64 id)
{
	struct stream_key key = {stream > MAX_STREAM_NAME ? stream : 1ull << 63 | (u32)id, id >> 32};
	return key;
}

static EBPF_INLINE u64 *captures_of(u64 id)
{
	struct stream_key key = {0, id >> 32};
	return bpf_map_lookup_elem(&captures, &key);
}

static EBPF_INLINE void begin_capture(u64 stream, u64 id)
{
	struct stream_key key = stream_of(stream, id), all = {0, id >> 32};
	u64 one = 1;
	if (bpf_map_lookup_elem(&captures, &key))
		return;
	u64 *n = captures_of(id);
	if (n && *n >= MAX_CAPTURES_OF_PROCESS) {
		lose_of(id);
		return;
	}
	bpf_map_update_elem(&captures, &key, &one, BPF_ANY);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(&captures, &all, &one, BPF_ANY);
}

static EBPF_INLINE void end_capture(u64 stream, u64 id)
{
	struct stream_key key = stream_of(stream, id);
	if (bpf_map_delete_elem(&captures, &key))
		return;
	u64 *n = captures_of(id);
	if (n && *n)
		__sync_fetch_and_add(n, -1);
}

// What is allocated in the order of a captured stream becomes a node of the graph.
static EBPF_INLINE u8 capture_flags(u64 stream, u64 id)
{
	u64 *n = captures_of(id);
	if (!n || !*n)
		return 0;
	struct stream_key key = stream_of(stream, id);
	return bpf_map_lookup_elem(&captures, &key) ? FLAG_CAPTURED : FLAG_BESIDE_CAPTURE;
}

static EBPF_INLINE void fill_event(struct event *event, struct thread *thread, struct call *call,
				   struct function *function, enum event_kind kind, u64 id)
{
	event->size = argument(call, function->size);
	event->stack = thread->stack;
	event->context = thread->context;
	event->extra = argument(call, function->extra);
	event->pid = id >> 32;
	event->tid = (u32)id;
	event->device = current_device(thread, id);
	event->flags = thread->flags;
	if (function->stream)
		event->flags |= capture_flags(argument(call, function->stream), id);
	event->kind = kind;
	event->api = thread->calls[0].function;
	event->function = call->function;
	if (kind == EVENT_ALLOC && event->device < 0 && !thread->astray)
		thread->astray = call->time;
}

#include "tensor.h"

// Who runs out of memory is about to free what it has.
static EBPF_INLINE bool urgent(enum event_kind kind, s32 result)
{
	return kind == EVENT_ALLOC_FAILED && result == 2;
}

// Builds the event in the ring's own memory: the stack of a program stays below the 64 bytes
// from which newer kernels share it between preempted tasks.
static EBPF_INLINE void send_call(struct thread *thread, struct call *call, struct function *function,
				  enum event_kind kind, u64 id, u64 time, u64 address, s32 result)
{
	struct event *event = room_for_event(sizeof(*event), COUNTER_EVENT_LOST, id);
	if (!event)
		return;
	fill_event(event, thread, call, function, kind, id);
	event->time = time;
	event->address = address;
	event->result = result;
	bpf_ringbuf_submit(event, wakes(urgent(kind, result)));
}

struct detailed_event {
	struct event event;
	struct details details;
};

// The same with what user space needs to find size, device or origin.
static EBPF_INLINE void send_details(struct thread *thread, struct call *call, struct function *function,
				     enum event_kind kind, u64 id, u64 time, u64 address, s32 result)
{
	struct detailed_event *event = room_for_event(sizeof(*event), COUNTER_EVENT_LOST, id);
	if (!event)
		return;
	fill_event(&event->event, thread, call, function, kind, id);
	event->event.time = time;
	event->event.address = address;
	event->event.result = result;
	struct details *details = &event->details;
	__builtin_memcpy(details->argument, call->argument, sizeof(details->argument));
	bool complete = true;
	if (function->by_value_size) {
		__builtin_memcpy(details->by_value, thread->by_value, BY_VALUE_SIZE);
		complete = thread->by_value_valid;
	}
	u32 size = function->behind_size;
	if (size > BEHIND_SIZE)
		size = BEHIND_SIZE;
	if (size && bpf_probe_read_user(details->behind, size, (void *)argument(call, function->behind) + function->behind_offset))
		complete = false;
	if (!complete)
		event->event.flags |= FLAG_NO_DETAILS;
	bpf_ringbuf_submit(event, wakes(urgent(kind, result)));
}

static EBPF_INLINE void report(struct thread *thread, struct call *call, struct function *function,
			       enum event_kind kind, u64 id, u64 address, s32 result)
{
	u64 time = function->at_entry ? call->time : bpf_ktime_get_ns();
	if (function->details)
		send_details(thread, call, function, kind, id, time, address, result);
	else
		send_call(thread, call, function, kind, id, time, address, result);
}

// A callee may use the memory of its arguments as it likes: a structure passed by value is kept on entry.
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

static EBPF_INLINE struct thread *this_thread(u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (thread)
		return thread;
	int zero = 0;
	struct thread *blank = bpf_map_lookup_elem(&blank_thread, &zero);
	if (!blank)
		return NULL;
	u32 table = TABLE_THREADS;
	u64 *used = bpf_map_lookup_elem(&tables, &table);
	struct share *share = share_of(id);
	if (!used || !share || (s64)share->threads > (s64)(max_threads - *used) || bpf_map_update_elem(&threads, &id, blank, BPF_NOEXIST)) {
		lose(COUNTER_THREADS_FULL, id);
		return NULL;
	}
	__sync_fetch_and_add(used, 1);
	__sync_fetch_and_add(&share->threads, 1);
	return bpf_map_lookup_elem(&threads, &id);
}

// Notes where the outermost call returns to: a call inside it may want a stack, when the return address on the
// stack is that of the kernel's trampoline.
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

// Opens a call. Returns the thread when the call is the first inside the outermost one whose stack is wanted.
static EBPF_INLINE struct thread *enter(struct pt_regs *ctx, struct process *process, u64 id, bool alloc)
{
	// A process without an entry counts as traced only when no filter was asked for.
	if (!(process ? process->traced : trace_all))
		return NULL;
	u32 function_id = attach_cookie(ctx);
	struct function *function = find_function(function_id);
	if (!function)
		return NULL;
	if (!alloc && function->role == ROLE_INIT) { // without a return probe: it opens no call
		if (share_of(id))
			send_note(EVENT_INIT, id);
		return NULL;
	}
	struct thread *thread = this_thread(id);
	if (!thread)
		return NULL;
	u64 sp = ctx->sp;
	u32 depth = thread->depth;
	// Calls whose frame is gone never returned to us: longjmp, an exception, a lost return.
	// An equal stack pointer is a tail call, unless it is the same function again.
#pragma unroll
	for (int i = MAX_DEPTH; i > 0; i--) {
		if (depth != i)
			continue;
		struct call *open = &thread->calls[i - 1];
		if (open->sp < sp || (open->sp == sp && open->function == function_id))
			depth = i - 1;
	}
	if (depth >= MAX_DEPTH) {
		thread->depth = MAX_DEPTH;
		lose(COUNTER_TOO_DEEP, id);
		return NULL;
	}

	struct call *call = &thread->calls[depth];
	call->sp = sp;
	call->time = bpf_ktime_get_ns();
	call->function = function_id;
	call->role = function->role;
	call->driver_calls = 0;
	call->driver_successes = 0;
	save_arguments(ctx, call);
	if (alloc && function->by_value_size) // none of the others takes one
		save_by_value(ctx, thread, call, function);
	thread->depth = depth + 1;
	if (depth == 0) {
		thread->stack = 0;
		thread->flags = 0;
		thread->tag = 0;
		thread->report.kind = 0;
		thread->caller = 0;
		// Inside a driver's call no other is made, and the first call of a process frees nothing.
		if (!alloc && function->layer == LAYER_RUNTIME && !(function->role == ROLE_FREE && argument(call, function->address)))
			note_caller(ctx, thread);
	}
	if (!alloc && function->role == ROLE_FREE && function->layer == LAYER_DRIVER) {
		u64 address = argument(call, function->address);
		if (address)
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

static EBPF_INLINE void push_context(struct thread *thread, u64 context, u16 device)
{
	if (thread->pushed < MAX_PUSHED) {
		thread->below[thread->pushed & (MAX_PUSHED - 1)] = thread->context;
		thread->pushed++;
	} else {
		thread->pushed_lost++;
	}
	thread->context = context;
	thread->device = device;
}

static EBPF_INLINE void pop_context(struct thread *thread)
{
	thread->context = 0;
	thread->device = 0; // looked up when it is asked for
	if (thread->pushed_lost) {
		thread->pushed_lost--;
	} else if (thread->pushed) {
		thread->pushed--;
		thread->context = thread->below[thread->pushed & (MAX_PUSHED - 1)];
	}
}

// The context that a runtime call makes current is that of the runtime's device.
static EBPF_INLINE void set_context(struct thread *thread, u64 context, u32 depth, u64 id)
{
	u16 device = device_of(context, id);
	if (!device && context && depth > 0) {
		struct call *outer = &thread->calls[(depth - 1) & (MAX_DEPTH - 1)];
		struct function *function = find_function(outer->function);
		if (function && function->layer == LAYER_RUNTIME) {
			device = function->effect == EFFECT_SET_DEVICE ? argument(outer, function->extra) + 1 : thread->runtime_device;
			link_context(context, device, id);
		}
	}
	thread->context = context;
	thread->device = device;
}

// Says which device the thread's allocations without one were on; context was current by what was known before.
static EBPF_INLINE void tell_learned(struct thread *thread, struct call *call, u64 context, u64 id)
{
	if (!thread->device || !thread->astray)
		return;
	struct event *event = room_for_event(sizeof(*event), COUNTER_EVENT_LOST, id);
	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	event->time = call->time;
	event->address = thread->astray;
	event->size = (u64)thread->pushed + thread->pushed_lost;
	event->context = context;
	event->pid = id >> 32;
	event->tid = (u32)id;
	event->device = (s16)thread->device - 1;
	event->kind = EVENT_LEARNED;
	event->api = call->function;
	event->function = call->function;
	bpf_ringbuf_submit(event, wakes(false));
	if (!thread->pushed && !thread->pushed_lost)
		thread->astray = 0;
}

// What a successful call does to the thread's current context and device.
static EBPF_INLINE void apply_effect(struct thread *thread, struct call *call, struct function *function, u32 depth,
				     u64 id, u64 address)
{
	u16 device = argument(call, function->extra) + 1;
	u64 context = thread->context;
	bool unknown = !thread->device && !device_of(context, id);
	switch (function->effect) {
	case EFFECT_SET_CONTEXT:
		set_context(thread, address, depth, id);
		thread->astray = 0;
		break;
	case EFFECT_PUSH_CONTEXT: push_context(thread, address, device_of(address, id)); break;
	case EFFECT_POP_CONTEXT:
		if (!thread->pushed && !thread->pushed_lost)
			thread->astray = 0; // what is below was never seen
		pop_context(thread);
		break;
	case EFFECT_CREATE_CONTEXT:
		link_context(address, device, id);
		push_context(thread, address, device);
		break;
	case EFFECT_RETAIN_CONTEXT:
		link_context(address, device, id);
		break;
	case EFFECT_DERIVE_CONTEXT:
		link_context(address, device_of(argument(call, function->extra), id), id);
		break;
	case EFFECT_BEGIN_CAPTURE: begin_capture(address, id); break;
	case EFFECT_DESTROY_CONTEXT:
		unlink_context(address, id);
		if (thread->context == address)
			pop_context(thread);
		break;
	case EFFECT_SET_DEVICE:
		thread->runtime_device = device;
		thread->astray = 0;
		if (thread->device != device) { // the runtime makes the context current later
			thread->context = 0;
			thread->device = device;
		}
		break;
	case EFFECT_LEARN_CONTEXT:
		thread->context = address;
		thread->device = device_of(address, id);
		break;
	case EFFECT_LEARN_DEVICE:
		device = address + 1;
		if (function->layer == LAYER_RUNTIME)
			thread->runtime_device = device;
		if (!thread->device)
			thread->device = device;
		if (thread->device == device && !device_of(thread->context, id))
			link_context(thread->context, device, id);
		break;
	}
	if (unknown && (function->effect == EFFECT_LEARN_CONTEXT || function->effect == EFFECT_LEARN_DEVICE))
		tell_learned(thread, call, context, id);
}

// Reads where the call stored its result, or takes the argument itself.
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
		// Inside a runtime call the failure is the runtime's to report, once.
		if (outermost)
			report(thread, call, function, EVENT_ALLOC_FAILED, id, 0, result);
		return;
	}
	if (function->layer == LAYER_RUNTIME && call->driver_successes)
		return;
	u64 address;
	if (read_address(call, function, &address)) {
		lose(COUNTER_UNREADABLE, id);
		return;
	}
	if (address)
		report(thread, call, function, EVENT_ALLOC, id, address, 0);
}

static EBPF_INLINE void leave_free(struct thread *thread, struct call *call, struct function *function, u64 id,
				   s32 result)
{
	u64 address = argument(call, function->address);
	if (!address)
		return;
	if (function->layer == LAYER_DRIVER) {
		if (result)
			send_call(thread, call, function, EVENT_FREE_FAILED, id, call->time, address, result);
		return;
	}
	if (!result && !call->driver_calls)
		send_call(thread, call, function, EVENT_FREE, id, call->time, address, 0);
}

static EBPF_INLINE void leave_other(struct thread *thread, struct call *call, struct function *function, u32 depth,
				    u64 id, s32 result)
{
	if (function->effect == EFFECT_END_CAPTURE && result != WRONG_THREAD)
		end_capture(argument(call, function->address), id);
	if (result)
		return;
	u64 address;
	if (read_address(call, function, &address)) {
		lose(COUNTER_UNREADABLE, id);
		return;
	}
	bool told = function->layer == LAYER_RUNTIME && call->driver_successes;
	if (function->role == ROLE_CALL && !told)
		report(thread, call, function, EVENT_CALL, id, address, 0);
	apply_effect(thread, call, function, depth, id, address);
}

static EBPF_INLINE void leave(struct pt_regs *ctx, u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (!thread)
		return;
	u32 function_id = attach_cookie(ctx);
	u64 sp = entry_sp(ctx);
	u32 depth = MAX_DEPTH;
#pragma unroll
	for (int i = 0; i < MAX_DEPTH; i++)
		if (i < thread->depth && thread->calls[i].sp == sp && thread->calls[i].function == function_id)
			depth = i;
	struct function *function = find_function(function_id);
	if (depth >= MAX_DEPTH || !function)
		return; // entered before the probes were there
	struct call *call = &thread->calls[depth];
	s32 result = return_value(ctx);
	if (function->layer == LAYER_DRIVER && depth > 0) {
		struct call *outer = &thread->calls[(depth - 1) & (MAX_DEPTH - 1)];
		if (outer->role == call->role) {
			outer->driver_calls++;
			outer->driver_successes += !result;
		}
	}
	if (function->role == ROLE_ALLOC)
		leave_alloc(thread, call, function, depth == 0, id, result);
	else if (function->role == ROLE_FREE)
		leave_free(thread, call, function, id, result);
	else
		leave_other(thread, call, function, depth, id, result);
	thread->depth = depth;
}

// Entry of an allocation, which unwinds: all programs of a chain of tail calls must be of one attach type.
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

// Prepares the thread for a walk of the stack under an allocator's report. A traced call that it still has open
// below is one that never returned: an allocator reports outside of them.
static EBPF_INLINE struct thread *begin_report(struct block_report *r, enum event_kind kind, u64 id)
{
	struct thread *thread = this_thread(id);
	if (!thread)
		return NULL;
	thread->report = *r;
	thread->report.kind = kind;
	thread->depth = 0;
	thread->stack = 0;
	thread->flags = 0;
	thread->caller = 0;
	thread->tag = bpf_ktime_get_ns();
	count(COUNTER_STACKS);
	return thread;
}

// Returns the thread if the block is of the sample, so that its stack is wanted.
static EBPF_INLINE struct thread *note_block(struct pt_regs *ctx, u64 id)
{
	struct block_report r = {.address = ARGUMENT(1), .size = ARGUMENT(2)};
	bool told = attach_cookie(ctx) == BLOCK_WITH_TOTALS;
	if (told) {
		r.allocated = ARGUMENT(3);
		r.reserved = ARGUMENT(4);
		r.device = ARGUMENT(5);
	} else {
		r.device = ARGUMENT(3);
	}
	struct tensor_key key = {.pid = id >> 32, .device = r.device};
	struct tensor_device *d = find_allocator(&key);
	u64 now = bpf_ktime_get_ns();
	if (!d)
		d = new_tensor_device(&key, &r, now, id);
	if (!d || !r.address || !r.size)
		return NULL;
	if (d->number == NO_NUMBER) { // another thread is about to begin it
		__sync_fetch_and_add(&d->unbooked, 1);
		return NULL;
	}
	r.time = now;
	d->begun++;
	leave_peak(d, &r, now, id);
	bool sampled = r.size < 0 ? unbook_block(d, &r, id) : book_block(d, &r, now, id);
	take_totals(d, &r, now, told);
	d->ended = d->begun;
	if (!sampled) {
		if (drifted(d, &r))
			send_totals(d, r.device, now, id);
		return NULL;
	}
	if (r.size < 0) {
		totals_sent(d, EVENT_BLOCK_FREE);
		send_block(EVENT_BLOCK_FREE, &r, 0, 0, id);
		return NULL;
	}
	totals_sent(d, EVENT_BLOCK);
	return begin_report(&r, EVENT_BLOCK, id);
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
		send_waiting_block(id);
	guard_end();
	if (thread && !known) {
		start_unwind(ctx, thread, process, id);
		send_waiting_block(id); // without a stack
	}
	return 0;
}

// Entry of c10::reportOutOfMemoryToProfiler: the bytes asked for, the allocator's totals, the device.
SEC("kprobe/block_failed")
int block_failed(struct pt_regs *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	struct block_report r = {.time = bpf_ktime_get_ns(), .size = ARGUMENT(1), .allocated = ARGUMENT(2), .reserved = ARGUMENT(3), .device = ARGUMENT(4)};
	guard_begin();
	struct process *process = find_process(id);
	bool traced = process ? process->traced : trace_all;
	struct tensor_key key = {.pid = id >> 32, .device = r.device};
	struct tensor_device *d = find_allocator(&key);
	if (d) {
		d->begun++;
		take_totals(d, &r, r.time, true);
		d->ended = d->begun;
		totals_sent(d, EVENT_BLOCK_FAILED);
	}
	struct thread *thread = traced ? begin_report(&r, EVENT_BLOCK_FAILED, id) : NULL;
	guard_end();
	if (thread) {
		start_unwind(ctx, thread, process, id);
		send_waiting_block(id); // without a stack
	}
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
	// Only who will be let go on may stand still: first the room to tell that it does.
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
