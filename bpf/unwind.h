/* SPDX-License-Identifier: GPL-2.0-only */
/* The first and the last step of a walk. The first runs in a probe; the last sends the stack if
 * it is new. The steps between them are programs of the OpenTelemetry profiler (walk.bpf.c). */
#ifndef VRAMPROF_UNWIND_H
#define VRAMPROF_UNWIND_H

#include "block_events.h"
#include "counters.h"
#include "hash.h"
#include "kernel_fields.h"
#include "preempt.h"
#include "processes.h"
#include "registers.h"
#include "rings.h"
#include "runtime_parts.h"
#include "sent_stacks.h"
#include "threads.h"
#include "unwinder_functions.h"
#include "walk_recall.h"

/* The unwinder's error codes that user space explains. bpf2go cannot export ErrorCode itself. */
enum walk_error {
	WALK_STACK_LENGTH_EXCEEDED = ERR_STACK_LENGTH_EXCEEDED,
	WALK_EMPTY_STACK = ERR_EMPTY_STACK,
	WALK_MAX_TAIL_CALLS = ERR_MAX_TAIL_CALLS,
	WALK_PYTHON_BAD_CODE_OBJECT_ADDR = ERR_PYTHON_BAD_CODE_OBJECT_ADDR,
	WALK_PYTHON_NO_PROC_INFO = ERR_PYTHON_NO_PROC_INFO,
	WALK_PYTHON_ZERO_THREAD_STATE = ERR_PYTHON_ZERO_THREAD_STATE,
	WALK_NATIVE_LOOKUP_TEXT_SECTION = ERR_NATIVE_LOOKUP_TEXT_SECTION,
	WALK_NATIVE_LOOKUP_STACK_DELTA_OUTER_MAP = ERR_NATIVE_LOOKUP_STACK_DELTA_OUTER_MAP,
	WALK_NATIVE_LOOKUP_STACK_DELTA_INNER_MAP = ERR_NATIVE_LOOKUP_STACK_DELTA_INNER_MAP,
	WALK_NATIVE_STACK_DELTA_INVALID = ERR_NATIVE_STACK_DELTA_INVALID,
	WALK_NATIVE_PC_READ = ERR_NATIVE_PC_READ,
	WALK_NATIVE_NO_PID_PAGE_MAPPING = ERR_NATIVE_NO_PID_PAGE_MAPPING,
	WALK_NATIVE_ZERO_PC = ERR_NATIVE_ZERO_PC,
	WALK_NATIVE_SMALL_PC = ERR_NATIVE_SMALL_PC,
	WALK_NATIVE_UNSUPPORTED_MAPPING = ERR_NATIVE_UNSUPPORTED_MAPPING,
	WALK_NATIVE_NO_VMA = ERR_NATIVE_NO_VMA,
	WALK_NATIVE_NON_EXECUTABLE_VMA = ERR_NATIVE_NON_EXECUTABLE_VMA,
};

MAP(truncated_stacks, BPF_MAP_TYPE_HASH, u32, u64, 256); /* ErrorCode → stacks truncated */
/* Tgid → time of the last EVENT_TABLES. */
MAP(table_requests, BPF_MAP_TYPE_LRU_HASH, u32, u64, 4096);

// Returns 1 if the current walk counts, else 0. A branch would make the verifier visit all that
// follows twice.
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

// Asks user space for a process's unwind tables, at most ten times per second and process.
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

// From CPython 3.13 on, the unwinder reads the thread state from a thread-local variable that is
// NULL while the GIL is released. The older TLS key keeps its value: preset the frame found through
// it.
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

// Returns the thread's number of context switches, plus 1.
static EBPF_INLINE u64 context_switches(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	unsigned long own = 0, forced = 0;
	READ(own, task, nvcsw);
	READ(forced, task, nivcsw);
	return own + forced + 1;
}

// Counts the current walks on this CPU: several if threads preempt one another.
static EBPF_INLINE void count_walks(s64 change)
{
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (scratch)
		__sync_fetch_and_add(&scratch->walking, change);
}

// Takes this CPU's record for a walk, even from a thread that was preempted during a walk. When
// that thread runs again it continues in the record, unaware: if this thread is preempted by then,
// its walk is torn too.
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
	// The unwinder's key of mappings and of Python; finish_unwind sets the pid.
	trace->pid = layout;
	trace->tid = (u32)id;
	trace->ktime = thread->tag; // tid and tag tell is_torn whose record it is
	return record;
}

static EBPF_INLINE bool is_torn(struct thread *thread, Trace *trace, u64 id)
{
	return trace->tid != (u32)id || trace->ktime != thread->tag ||
	       (thread->switches && thread->switches != context_switches());
}

// Begins a walk at the caller of the outermost call, if a call inside it wants the stack.
static EBPF_INLINE void begin_at_caller(struct thread *thread, UnwindState *state)
{
	if (!thread->caller)
		return;
	state->pc = thread->caller;
	state->sp = thread->caller_sp;
	state->fp = thread->caller_fp;
	state->return_address = true;
}

// Walks the stack of a thread at the entry of a traced function. The walk ends in
// kprobe_unwind_stop; this function returns only if the chain cannot be entered.
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

/* Return probes of one thread that may be open at once, of all tracers. */
#define MAX_RETURN_PROBES 8

// A return probe, of any tracer, puts the address of the kernel's trampoline in the place of the
// return address that it hits. Takes the return address from the kernel's list instead. The walk is
// not remembered: the words on the stack do not tell its way.
static EBPF_INLINE bool leave_trampoline(UnwindState *state)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct uprobe_task *probes = NULL;
	struct return_instance *open = NULL;
	READ(probes, task, utask);
	if (!probes || READ(open, probes, return_instances))
		return false;
#pragma unroll 1
	for (int i = 0; i < MAX_RETURN_PROBES && open; i++) {
		unsigned long sp = 0, address = 0;
		READ(sp, open, stack);
		READ(address, open, orig_ret_vaddr);
		if (address && sp + RETURN_ADDRESS_SIZE == state->sp) {
			state->pc = normalize_pac_ptr(address);
			spoil_recording();
			return true;
		}
		if (READ(open, open, next))
			break;
	}
	return false;
}

// The runtime loads the driver in its first call, whose walk begins in the driver's code before its
// unwind tables are known. Leaves the probed function for its caller: a probe with a return is on
// an instruction before the first push. User space finds the pushed frame's file, if it is known by
// then.
static EBPF_INLINE bool leave_new_library(PerCPURecord *record, struct thread *thread)
{
	UnwindState *state = &record->state;
	// The walk has left the function, or began elsewhere.
	if (state->return_address || record->trace.frame_data_len > 2 || thread->caller || thread->report.kind)
		return false;
	if (!record->trace.frame_data_len) { // else only the function's unwind information is missing
		u64 *file = push_frame(state, &record->trace, FRAME_MARKER_NATIVE, 0, state->pc, 1);
		if (!file)
			return false;
		*file = 0;
	}
#if defined(__x86_64__)
	if (watched_read(&state->pc, sizeof(state->pc), (void *)state->sp))
		return false;
	state->sp += RETURN_ADDRESS_SIZE;
#else
	state->pc = normalize_pac_ptr(state->lr);
#endif
	state->return_address = true;
	return true;
}

// Walks over frames of JIT-compiled code, which is in no file, by frame pointers. Returns the
// program that continues, or PROG_UNWIND_STOP with the error in the state if the walk ends here.
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
		// A step moves sp above the frame, so a frame pointer below sp ends the walk.
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

static EBPF_INLINE void lose_stack(struct thread *thread, u64 id)
{
	struct share *share = find_share(id);
	count_of_walk(thread, COUNTER_STACK_LOST);
	if (share)
		__sync_fetch_and_add(&share->lost_stacks, 1);
}

// Ends a walk, or returns the program that continues it.
static EBPF_INLINE int finish_unwind(void)
{
	PerCPURecord *record = get_per_cpu_record();
	u64 id = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (!record || !thread)
		return PROG_UNWIND_STOP;
	Trace *trace = &record->trace;
	// The chain keeps its state in the per-CPU record and can be preempted.
	if (is_torn(thread, trace, id)) {
		thread->flags |= FLAG_TORN;
		// The record's owner has frames of this walk: its walk is torn too.
		trace->ktime = 0;
		count_of_walk(thread, COUNTER_TORN);
		return PROG_UNWIND_STOP;
	}
	u32 pid = id >> 32;
	struct process *process = bpf_map_lookup_elem(&processes, &pid);
	bool jit = process && process->jit;
	if (wants_tables(record->state.unwind_error)) {
		int unwinder = PROG_UNWIND_STOP;
		if (leave_new_library(record, thread))
			record->state.unwind_error = get_next_unwinder_after_native_frame(record, &unwinder);
		if (record->state.unwind_error == ERR_NATIVE_NO_PID_PAGE_MAPPING && leave_trampoline(&record->state))
			record->state.unwind_error = get_next_unwinder_after_native_frame(record, &unwinder);
		if (jit && record->state.unwind_error == ERR_NATIVE_NO_PID_PAGE_MAPPING)
			unwinder = step_over_jit(record);
		if (unwinder != PROG_UNWIND_STOP) {
			record->state.error_metric = -1;
			return unwinder;
		}
	}
	ErrorCode error = record->state.unwind_error;
	if (!error && !trace->frame_data_len)
		error = ERR_EMPTY_STACK;
	// Neither the process nor its code is known.
	if (FINDS_CODE && error && !trace->frame_data_len && !trace->pid) {
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

	// In memory: the verifier does not track it.
	thread->refused = is_stack_refused(trace->frame_data_len, &pid);
	u64 hash = (process ? process->seed : 0) ^ 0xcbf29ce484222325ull ^ pid;
	u32 length = trace->frame_data_len;
	trace->num_kernel_frames = 0;
	if (!thread->report.kind)
		cut_to_wrapper(thread, trace, counted(thread));
#pragma unroll 1
	each(i, sizeof(trace->frame_data) / sizeof(trace->frame_data[0]), &trace->value) {
		if (i >= length)
			break;
		// All bits from the first word on. Read each time, and no branch: the verifier would
		// follow the loop with each value.
		u64 use = (s64)((u64)*(volatile u16 *)&trace->num_kernel_frames - 1 - i) >> 63;
		asm volatile("" : "+r"(use));
		hash ^= (hash ^ mix(hash, trace->frame_data[i])) & use;
	}
	if (!hash)
		hash = 1;
	thread->stack = hash;
	trace->ktime = trace->pid; // the layout's number; tags of walks are much larger
	trace->pid = pid;
	if (was_sent(hash)) {
		if (!error)
			remember_walk(thread);
		return PROG_UNWIND_STOP;
	}
	if (thread->refused) {
		lose_stack(thread, id);
		return PROG_UNWIND_STOP;
	}
	trace->value = hash;
	// Read again: the verifier would follow the loop's end with each value of length.
	u64 size = STACK_SIZE(*(volatile u16 *)&trace->frame_data_len);
	if (size > sizeof(Trace))
		return PROG_UNWIND_STOP;
	// Wake the reader: new stacks are rare, and Python names must be read while the process
	// lives.
	if (bpf_ringbuf_output(&stack_events, trace, size, BPF_RB_FORCE_WAKEUP) < 0) {
		lose_stack(thread, id);
		return PROG_UNWIND_STOP; // the next event with this stack sends it
	}
	note_sent(hash);
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
