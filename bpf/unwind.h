/* SPDX-License-Identifier: GPL-2.0-only */
/* Our ends of the unwinder's chain of programs: the start at a probe, and the last step, which
 * sends a stack only when it is new. The steps between are those of the OpenTelemetry profiler. */
#ifndef VRAMPROF_UNWIND_H
#define VRAMPROF_UNWIND_H

#include "kernel_fields.h"
#include "memo.h"
#include "state.h"
#include "unwinder_maps.h"

/* The unwinder's, replaced by the real ones on loading. */
BORROWED(py_procs, BPF_MAP_TYPE_ARRAY);
BORROWED(interpreter_offsets, BPF_MAP_TYPE_ARRAY);
BPF_RODATA_VAR(u32, with_debug_output, 0)
BPF_RODATA_VAR(u64, inverse_pac_mask, 0)
BPF_RODATA_VAR(u64, tpbase_offset, 0)

#ifdef FIND_CODE
#include "code.h"
#define bpf_map_lookup_elem(map, key) \
	(__builtin_strcmp(#map, "&pid_page_to_mapping_info") ? bpf_map_lookup_elem(map, key) : mapping_at((void *)(key)))
#define FINDS_CODE 1
#else
#define FINDS_CODE 0
#endif
#define bpf_probe_read_user watched_read
#include "tracemgmt.h"
extern u64 tpbase_offset;
#include "tsd.h"
#undef bpf_probe_read_user
#undef bpf_map_lookup_elem

#ifdef PREEMPT_GUARD
/* From Linux 6.13 a preempted uprobe program can lose its stack and its per-CPU data
 * (a76ab5731e32); kfuncs since 6.10. */
extern void bpf_preempt_disable(void) __attribute__((section(".ksyms")));
extern void bpf_preempt_enable(void) __attribute__((section(".ksyms")));
#define guard_begin() bpf_preempt_disable()
#define guard_end() bpf_preempt_enable()
#else
#define guard_begin()
#define guard_end()
#endif

static EBPF_INLINE void add_count(enum counter counter, u64 n)
{
	u64 *value = bpf_map_lookup_elem(&counters, &counter);
	if (value)
		__sync_fetch_and_add(value, n);
}

static EBPF_INLINE void count(enum counter counter) { add_count(counter, 1); }

static EBPF_INLINE struct share *find_share(u64 id)
{
	u32 pid = id >> 32;
	return bpf_map_lookup_elem(&shares, &pid);
}

// The same, begun if need be: with a process's first call.
static EBPF_INLINE struct share *share_of(u64 id)
{
	u32 pid = id >> 32, zero = 0;
	struct share *share = bpf_map_lookup_elem(&shares, &pid);
	if (share)
		return share;
	struct share *blank = bpf_map_lookup_elem(&blank_share, &zero);
	if (!blank)
		return NULL;
	bpf_map_update_elem(&shares, &pid, blank, BPF_NOEXIST);
	return bpf_map_lookup_elem(&shares, &pid);
}

static EBPF_INLINE void lose_of(u64 id)
{
	struct share *share = find_share(id);
	if (share)
		__sync_fetch_and_add(&share->lost, 1);
}

// Counts what a process loses.
static EBPF_INLINE void lose(enum counter counter, u64 id)
{
	count(counter);
	lose_of(id);
}

// Says whether a process may write no more into a ring: what it wrote that may still be there is more than is free.
static EBPF_INLINE bool is_beyond(struct ring_share *share, void *ring, u64 size, u64 bytes)
{
	u64 writer = bpf_ringbuf_query(ring, BPF_RB_PROD_POS), reader = bpf_ringbuf_query(ring, BPF_RB_CONS_POS);
	if ((s64)(reader - share->mark) >= 0) {
		share->mark = writer;
		share->written = 0;
	}
	if ((s64)share->written > (s64)(size - (writer - reader)))
		return true;
	__sync_fetch_and_add(&share->written, bytes);
	return false;
}

// Reserves room for an event. While less than half of the ring is used nobody is asked what he has of it.
static EBPF_INLINE void *room_for_event(u64 size, enum counter counter, u64 id)
{
	if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > events_size / 2) {
		struct share *share = find_share(id);
		if (share && is_beyond(&share->events, &events, events_size, size)) {
			lose(counter, id);
			return NULL;
		}
	}
	void *event = bpf_ringbuf_reserve(&events, size, 0);
	if (!event)
		lose(counter, id);
	return event;
}

// 1 if the walk under way counts. No branch: the verifier would look at all that follows twice.
static EBPF_INLINE u64 counted(struct thread *thread) { return ~(thread->flags / UNCOUNTED) & 1; }

static EBPF_INLINE void count_of_walk(struct thread *thread, enum counter counter) { add_count(counter, counted(thread)); }

static EBPF_INLINE void count_truncated(struct thread *thread, u32 reason)
{
	u64 *value = bpf_map_lookup_elem(&truncated_stacks, &reason);
	if (!value) {
		u64 zero = 0;
		bpf_map_update_elem(&truncated_stacks, &reason, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&truncated_stacks, &reason);
	}
	if (value)
		__sync_fetch_and_add(value, counted(thread));
}

static EBPF_INLINE void fill_note(struct event *event, enum event_kind kind, u64 id)
{
	event->time = bpf_ktime_get_ns();
	event->pid = id >> 32;
	event->tid = (u32)id;
	event->kind = kind;
}

// An event that asks user space to act, at once.
static EBPF_INLINE void send_note(enum event_kind kind, u64 id)
{
	struct event *event = room_for_event(sizeof(*event), COUNTER_EVENT_LOST, id);
	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	fill_note(event, kind, id);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

// Asks user space for the unwind tables of a process, at most ten times a second and process.
static EBPF_INLINE void request_tables(u64 id)
{
	u32 pid = id >> 32;
	u64 now = bpf_ktime_get_ns();
	u64 *last = bpf_map_lookup_elem(&table_requests, &pid);
	if (last && now - *last < 100 * 1000 * 1000)
		return;
	bpf_map_update_elem(&table_requests, &pid, &now, BPF_ANY);
	send_note(EVENT_TABLES, id);
}

// From CPython 3.13 on the unwinder reads the thread state from a thread-local that is NULL while the
// GIL is released. The older key outlives the release: preset the frame that it leads to.
static EBPF_INLINE void find_python_frame(PerCPURecord *record, u32 layout)
{
	PyProcInfo *python = bpf_map_lookup_elem(&py_procs, &layout);
	if (!python || !python->tls_offset)
		return;
	void *base, *state = NULL;
	if (tsd_get_base(&base) || watched_read(&state, sizeof(state), base + python->tls_offset) || state)
		return;
	int key;
	if (watched_read(&key, sizeof(key), (void *)python->autoTLSKeyAddr) ||
	    tsd_read(&python->tsdInfo, base, key, &state) || !state)
		return;
	void *frame = NULL;
	watched_read(&frame, sizeof(frame), state + python->PyThreadState_frame);
	record->pythonUnwindState.py_frame = frame;
}

static EBPF_INLINE u64 frame_pointer(struct pt_regs *ctx)
{
#if defined(__x86_64__)
	return ctx->bp;
#else
	return ctx->regs[29];
#endif
}

// The key of walks that start from the same registers of the same thread, with the same tables.
static EBPF_INLINE u64 walk_key(struct pt_regs *ctx, struct process *process, u64 id)
{
	u64 key = mix(mix(process->seed, process->generation), id);
#if defined(__x86_64__)
	return mix(mix(key, ctx->ip), ctx->sp);
#else
	return mix(mix(mix(mix(key, ctx->pc), ctx->sp), ctx->regs[29]), ctx->regs[30]);
#endif
}

static EBPF_INLINE long read_python_frame(struct scratch *scratch, const PyProcInfo *python, u64 address, u64 *value)
{
	if (!python)
		return -1;
	u64 offset = address - scratch->frames_at;
	if (offset > WINDOW_SIZE - PYTHON_FRAME_SIZE) {
		offset = WINDOW_SIZE - PYTHON_FRAME_SIZE;
		scratch->frames_at = address - offset;
		// Before 3.11, and at the begin of a mapping, there is only this frame to read.
		if (!python->lasti_is_codeunit ||
		    bpf_probe_read_user(scratch->frames, WINDOW_SIZE, (void *)scratch->frames_at)) {
			scratch->frames_at = 0;
			if (bpf_probe_read_user(&scratch->frames[offset], PYTHON_FRAME_SIZE, (void *)address))
				return -1;
		}
	}
	// Older verifiers lose the bound of the offset: give it again, unseen by the compiler.
	asm volatile("" : "+r"(offset));
	*value = hash_python_frame(python, &scratch->frames[offset & (WINDOW_SIZE - 1)]);
	return 0;
}

// Words above the thread's stack pointer are read through the window.
static EBPF_INLINE long read_check(struct scratch *scratch, const PyProcInfo *python, struct pt_regs *ctx,
				   struct check *check, u64 *value)
{
	u64 address = check->address & ((1ull << CHECK_KIND_SHIFT) - 1);
	u64 kind = check->address >> CHECK_KIND_SHIFT;
	if (kind == CHECK_INT)
		return bpf_probe_read_user(value, 4, (void *)address);
	if (kind == CHECK_PYTHON_FRAME)
		return read_python_frame(scratch, python, address, value);
	if (kind == CHECK_FRAME_POINTER) {
		*value = frame_pointer(ctx);
		return 0;
	}
	u64 offset = address - scratch->window_at;
	if (offset > WINDOW_SIZE - 8) {
		if (address - ctx->sp > 1 << 20 ||
		    bpf_probe_read_user(scratch->window, WINDOW_SIZE, (void *)address))
			return bpf_probe_read_user(value, 8, (void *)address);
		scratch->window_at = address;
		offset = 0;
	}
	if (offset & 7)
		return bpf_probe_read_user(value, 8, (void *)address);
	*value = scratch->window[(offset / 8) & (WINDOW_SIZE / 8 - 1)];
	return 0;
}

// Looks for a remembered walk that reads the same words now. Otherwise thread->walk is where the
// walk that has to be done should be remembered, or 0. What the loop carries along lies in a map, where the
// verifier does not follow it: else it would look at every iteration in every state.
static EBPF_INLINE bool recall_walk(struct pt_regs *ctx, struct thread *thread, struct process *process, u64 id)
{
	u32 zero = 0;
	thread->walk = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!process || !scratch)
		return false;
	scratch->window_at = 0;
	scratch->frames_at = 0;
	scratch->next = 0;
	u32 layout = process->layout;
	const PyProcInfo *python = bpf_map_lookup_elem(&py_procs, &layout);
	u64 key = walk_key(ctx, process, id);
	struct walk *walk = bpf_map_lookup_elem(&walks, &key);
#pragma unroll 1
	for (int step = 0; step < MAX_CHECKS + MAX_BRANCHES; step++) {
		if (!walk) {
			thread->walk = key;
			return false;
		}
		u64 n = scratch->next;
		asm volatile("" : "+r"(n)); // one register for the comparison and the index
		if (n >= walk->checks || n >= MAX_CHECKS) {
			thread->stack = walk->stack;
			return true;
		}
		struct check *check = &walk->check[n];
		scratch->next = n + 1;
		scratch->value = 0;
		if (read_check(scratch, python, ctx, check, &scratch->value))
			return false;
		if (scratch->value == check->value)
			continue;
		key = mix(mix(key, scratch->next), scratch->value);
		walk = bpf_map_lookup_elem(&walks, &key);
	}
	return false;
}

static EBPF_INLINE void remember_walk(struct thread *thread)
{
	struct walk *walk = current_recording();
	if (!walk || !thread->walk || walk->checks > MAX_CHECKS)
		return;
	walk->stack = thread->stack;
	bpf_map_update_elem(&walks, &thread->walk, walk, BPF_ANY);
}

// How often this thread has given up its processor so far, plus 1.
static EBPF_INLINE u64 context_switches(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	unsigned long own = 0, forced = 0;
	READ(own, task, nvcsw);
	READ(forced, task, nivcsw);
	return own + forced + 1;
}

// Counts the walks that have begun on this CPU and not ended: several if threads preempt one another.
static EBPF_INLINE void count_walks(s64 change)
{
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (scratch)
		__sync_fetch_and_add(&scratch->walking, change);
}

// Takes this CPU's record for a walk, also from a thread that was preempted in the middle of one. That thread goes on in it,
// not knowing, as soon as this one is preempted: then what this one has is torn too.
static EBPF_INLINE PerCPURecord *claim_record(struct thread *thread, u32 layout, u64 id)
{
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	PerCPURecord *record = get_pristine_per_cpu_record();
	if (!record || !scratch)
		return NULL;
	thread->switches = scratch->walking ? context_switches() : 0;
	count_walks(1);
	Trace *trace = &record->trace;
	trace->pid = layout; // where the unwinder looks for mappings and for Python; the pid comes when the walk is over
	trace->tid = (u32)id;
	trace->ktime = thread->tag; // with tid the tag that unwind_stop checks
	return record;
}

static EBPF_INLINE bool is_torn(struct thread *thread, Trace *trace, u64 id)
{
	return trace->tid != (u32)id || trace->ktime != thread->tag ||
	       (thread->switches && thread->switches != context_switches());
}

// A walk that a call inside the outermost one wants begins where that one returns to.
static EBPF_INLINE void begin_at_caller(struct thread *thread, UnwindState *state)
{
	if (!thread->caller)
		return;
	state->pc = thread->caller;
	state->sp = thread->caller_sp;
	state->fp = thread->caller_fp;
	state->return_address = true;
}

// Walks the stack of a thread that stands at the entry of a traced function. The walk ends in
// kprobe_unwind_stop; this function only returns when the chain could not be entered.
static EBPF_INLINE void start_unwind(struct pt_regs *ctx, struct thread *thread, struct process *process, u64 id)
{
	u32 layout = process ? process->layout : 0;
	PIDPageMappingInfo *known = layout ? pid_information(layout) : NULL;
	if (!known)
		request_tables(id);
	if (!known && !FINDS_CODE) {
		thread->flags |= FLAG_NO_TABLES;
		count_of_walk(thread, COUNTER_NO_TABLES);
		return;
	}
	guard_begin();
	PerCPURecord *record = claim_record(thread, layout, id);
	guard_end();
	if (!record)
		return;
	begin_recording(frame_pointer(ctx));
	ErrorCode error = copy_state_regs(&record->state, ctx, false);
	begin_at_caller(thread, &record->state);
	int unwinder = PROG_UNWIND_STOP;
	if (!error) {
		record->usesAnonymousMappings = known && pid_uses_anonymous_mappings(known);
		find_python_frame(record, layout);
		error = get_next_unwinder_after_native_frame(record, &unwinder);
	}
	record->state.unwind_error = error;
	tail_call(ctx, unwinder);
	count_walks(-1);
	count_of_walk(thread, COUNTER_CHAIN_BROKEN);
}

static EBPF_INLINE bool wants_tables(ErrorCode error)
{
	return error == ERR_NATIVE_NO_PID_PAGE_MAPPING || error == ERR_NATIVE_LOOKUP_TEXT_SECTION ||
	       error == ERR_NATIVE_LOOKUP_STACK_DELTA_OUTER_MAP || error == ERR_NATIVE_LOOKUP_STACK_DELTA_INNER_MAP ||
	       error == ERR_PYTHON_NO_PROC_INFO;
}

// Walks over the frames of compiled code that lies in no file, by frame pointers. Returns the program
// that goes on, or PROG_UNWIND_STOP with the state's error when the walk ends here.
static EBPF_INLINE int step_over_jit(PerCPURecord *record)
{
	UnwindState *state = &record->state;
	int unwinder = PROG_UNWIND_STOP;
	note_frame_pointer();
#pragma unroll 1
	for (int i = 0; i < 16; i++) {
		u8 flags = state->return_address ? FRAME_FLAG_RETURN_ADDRESS : 0;
		u64 *file = push_frame(state, &record->trace, FRAME_MARKER_NATIVE, flags, state->pc, 1);
		if (!file) {
			state->unwind_error = ERR_STACK_LENGTH_EXCEEDED;
			break;
		}
		*file = 0;
		// Each step leaves sp above the frame: a frame pointer below it ends the walk.
		if (state->fp < state->sp || !unwinder_unwind_frame_pointer(state)) {
			state->unwind_error = ERR_NATIVE_PC_READ;
			break;
		}
		state->unwind_error = get_next_unwinder_after_native_frame(record, &unwinder);
		if (state->unwind_error != ERR_NATIVE_NO_PID_PAGE_MAPPING)
			break;
	}
	return state->unwind_error ? PROG_UNWIND_STOP : unwinder;
}

static EBPF_INLINE void send_block(enum event_kind kind, struct block_report *r, u64 stack, u32 flags, u64 id)
{
	struct event *event = room_for_event(sizeof(*event), COUNTER_EVENT_LOST, id);
	if (!event)
		return;
	event->time = r->time;
	event->address = r->address;
	event->size = kind == EVENT_BLOCK_FREE || kind == EVENT_TOTALS ? r->live : r->size;
	event->stack = stack;
	event->context = r->allocated;
	event->extra = r->reserved;
	event->pid = id >> 32;
	event->tid = (u32)id;
	event->result = r->device & 0xff;
	event->device = (s8)(r->device >> 8);
	event->flags = r->totals ? flags | FLAG_TOTALS : flags;
	event->kind = kind;
	event->api = 0;
	event->halvings = r->halvings;
	bpf_ringbuf_submit(event, wakes(kind == EVENT_BLOCK_FAILED));
}

// Sends the block whose stack was just walked, if the walk was for one.
static EBPF_INLINE void send_waiting_block(u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (!thread || !thread->report.kind)
		return;
	send_block(thread->report.kind, &thread->report, thread->stack, thread->flags, id);
	thread->report.kind = 0;
}

// Says whether a process may send no more stacks now. While less than half of the ring is used nobody is asked.
static EBPF_INLINE u32 is_stack_refused(u64 words, u32 *pid)
{
	if (bpf_ringbuf_query(&stack_events, BPF_RB_AVAIL_DATA) <= stacks_size / 2)
		return 0;
	struct share *share = bpf_map_lookup_elem(&shares, pid);
	return share && is_beyond(&share->stacks, &stack_events, stacks_size, sizeof(Trace) - sizeof(((Trace *)0)->frame_data) + 8 * words);
}

static EBPF_INLINE void lose_stack(struct thread *thread, u64 id)
{
	struct share *share = find_share(id);
	count_of_walk(thread, COUNTER_STACK_LOST);
	if (share)
		__sync_fetch_and_add(&share->lost_stacks, 1);
}

// Ends a walk, or returns the program that goes on with it.
static EBPF_INLINE int finish_unwind(void)
{
	PerCPURecord *record = get_per_cpu_record();
	u64 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (!record || !thread)
		return PROG_UNWIND_STOP;
	Trace *trace = &record->trace;
	// The chain is not guarded against preemption, and a per-CPU record is its only memory.
	if (is_torn(thread, trace, id)) {
		thread->flags |= FLAG_TORN;
		trace->ktime = 0; // whoever owns the record now has our frames in it
		count_of_walk(thread, COUNTER_TORN);
		return PROG_UNWIND_STOP;
	}
	u32 pid = id >> 32;
	struct process *process = bpf_map_lookup_elem(&processes, &pid);
	bool jit = process && process->jit;
	if (jit && record->state.unwind_error == ERR_NATIVE_NO_PID_PAGE_MAPPING) {
		int unwinder = step_over_jit(record);
		if (unwinder != PROG_UNWIND_STOP) {
			record->state.error_metric = -1;
			return unwinder;
		}
	}
	ErrorCode error = record->state.unwind_error;
	if (!error && !trace->frame_data_len)
		error = ERR_EMPTY_STACK;
	if (FINDS_CODE && error && !trace->frame_data_len && !trace->pid) { // nothing is known of the process, nor of its code
		thread->flags |= FLAG_NO_TABLES;
		count_of_walk(thread, COUNTER_NO_TABLES);
		trace->ktime = 0;
		return PROG_UNWIND_STOP;
	}
	if (error) {
		thread->flags |= FLAG_TRUNCATED;
		count_truncated(thread, error);
		push_abort(trace, error);
		if (!jit && wants_tables(error))
			request_tables(id);
	}

	thread->refused = is_stack_refused(trace->frame_data_len, &pid); // in memory: the verifier follows one way only
	u64 hash = (process ? process->seed : 0) ^ 0xcbf29ce484222325ull ^ pid;
	u32 length = trace->frame_data_len;
#pragma unroll 1
	for (u32 i = 0; i < sizeof(trace->frame_data) / sizeof(trace->frame_data[0]); i++) {
		if (i >= length)
			break;
		hash = (hash ^ trace->frame_data[i]) * 0x9E3779B97F4A7C15ull;
		hash ^= hash >> 29;
	}
	if (!hash)
		hash = 1;
	thread->stack = hash;
	trace->ktime = trace->pid; // the layout: no walk has so small a tag
	trace->pid = pid;
	if (bpf_map_lookup_elem(&stacks, &hash)) {
		if (!error)
			remember_walk(thread);
		return PROG_UNWIND_STOP;
	}
	if (thread->refused) {
		lose_stack(thread, id);
		return PROG_UNWIND_STOP;
	}
	trace->value = hash;
	u64 size = sizeof(Trace) - sizeof(trace->frame_data) + sizeof(trace->frame_data[0]) * length;
	if (size > sizeof(Trace))
		return PROG_UNWIND_STOP;
	// A new stack is rare, and its Python names must be read while the process lives: wake the reader.
	if (bpf_ringbuf_output(&stack_events, trace, size, BPF_RB_FORCE_WAKEUP) < 0) {
		lose_stack(thread, id);
		return PROG_UNWIND_STOP; // not marked as sent: the next event with this stack tries again
	}
	u8 sent = 1;
	bpf_map_update_elem(&stacks, &hash, &sent, BPF_ANY);
	return PROG_UNWIND_STOP;
}

SEC("kprobe/unwind_stop")
int kprobe_unwind_stop(struct pt_regs *ctx)
{
	guard_begin();
	int next = finish_unwind();
	if (next == PROG_UNWIND_STOP) {
		count_walks(-1);
		send_waiting_block(bpf_get_current_pid_tgid());
	}
	guard_end();
	if (next != PROG_UNWIND_STOP)
		tail_call(ctx, next);
	return 0;
}

#endif
