//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only
//
// Lists which processes map which CUDA library (task_vma iterator, Linux 5.12), and reports when a
// followed process forks, calls execve or ends (raw tracepoints, which need no tracefs).
#include "change_time.h"
#include "counters.h"
#include "event.h"
#include "hash.h"
#include "helpers.h"
#include "kernel_fields.h"
#include "processes.h"
#include "shares.h"
#include "threads.h"

// Removes the entry of a thread that has ended. Returns whether it had one.
static bool forget_thread(u32 pid, u32 tid)
{
	u64 id = (u64)pid << 32 | tid;
	if (bpf_map_delete_elem(&threads, &id))
		return 0;
	u64 *used = find_table(TABLE_THREADS);
	struct share *share = find_share(id);
	if (used)
		__sync_fetch_and_add(used, -1);
	if (share && share->threads)
		__sync_fetch_and_add(&share->threads, -1);
	return 1;
}

/* One executable mapping of a file whose name begins with "libcud", "libc10" (PyTorch) or "libncc",
 * or of the program itself. The last record of a process has its layout: a hash of its executable
 * mappings. */
struct mapped_file {
	u64 inode; /* or the layout */
	u64 start, end;
	u32 device; /* kernel dev_t of the real file, below overlayfs */
	u32 pid;
	u8 program; /* the file is the program that the process executes */
	u8 layout;  /* the record has the layout, no mapping */
	u8 unused[6];
	u8 name[64];
};
const struct mapped_file *unused_mapped_file __attribute__((unused));

/* One executable mapping of a file. The last record has the layout in start, and no inode. */
struct mapped_code {
	u64 start;
	u64 inode;
	/* Address of the inode in the kernel. It differs between files with the same inode
	 * number, as snapshots on btrfs have. */
	u64 address;
	u64 size;
	u64 changed; /* ns, time of the last change of content or owner */
	u32 device;
	u32 unused;
};
const struct mapped_code *unused_mapped_code __attribute__((unused));

/* Part of each layout's hash, so that no process can forge another's layout. */
volatile const u64 layout_secret = 0;

/* Limits of the records of one process: it may have thousands of mappings of one file. */
enum mapped_limit {
	MAX_PARTS = 64, /* of one file, with no mapping of another between them */
	MAX_MAPPED = 256, /* of all files */
};
const enum mapped_limit *unused_mapped_limit __attribute__((unused));

/* The layout of an iterator's current process, and of the process before. If an element's
 * records do not fit into the buffer, the kernel discards them and visits the element again. */
struct layout_state {
	u64 hash;
	u64 latest; /* start of the mapping that was added last */
	u64 first; /* start of the first mapping of the process */
	u64 before; /* hash of the process before, if it maps any code */
	u32 pid;
	u32 pid_before; /* 0: the process before has no record to send */
	u32 mappings; /* number of mappings in hash */
	u32 parts; /* records of the latest file */
	u32 records; /* of all files */
	u32 unused;
	u64 file; /* address of the inode of the latest record */
};

/* By session of an iterator: a process can hold one while others run. User space has given up one
 * whose entry was evicted. */
MAP(layout_states, BPF_MAP_TYPE_LRU_HASH, u64, struct layout_state, 1024);

static EBPF_INLINE struct layout_state *find_layout_state(struct bpf_iter_meta *meta)
{
	u64 session = meta->session_id;
	if (!meta->seq_num) {
		struct layout_state begin = {};
		bpf_map_update_elem(&layout_states, &session, &begin, BPF_ANY);
	}
	return bpf_map_lookup_elem(&layout_states, &session);
}

static EBPF_INLINE void end_layout_state(struct bpf_iter_meta *meta)
{
	u64 session = meta->session_id;
	bpf_map_delete_elem(&layout_states, &session);
}

// Begins the layout of the next process, and keeps that of the current one.
static void begin_layout(struct layout_state *state, struct task_struct *task, struct vm_area_struct *vma)
{
	struct mm_struct *mm = task->mm;
	state->pid_before = state->mappings ? state->pid : 0;
	state->before = state->hash;
	state->pid = task->tgid;
	state->first = vma->vm_start;
	state->latest = 0;
	state->mappings = state->parts = state->records = 0;
	state->file = 0;
	u64 vdso = 0;
	if (mm)
		READ(vdso, mm, context.vdso);
	state->hash = mix(layout_secret, vdso);
}

// Writes the record of a process's layout. Returns an error if the buffer is full.
static long send_layout(struct seq_file *seq, u32 pid, u64 hash)
{
	struct mapped_file record = {.pid = pid, .inode = hash, .layout = 1};
	return pid ? bpf_seq_write(seq, &record, sizeof(record)) : 0;
}

// Returns the address as a number: the verifier rejects arithmetic on a pointer.
static u64 inode_address(struct vm_area_struct *vma)
{
	struct file *file = vma->vm_file;
	u64 address = 0;
	READ(address, file, f_inode);
	return address;
}

// Adds a mapping to the layout, unless the kernel visits it again.
static void add_to_layout(struct layout_state *state, struct vm_area_struct *vma, u64 inode)
{
	u64 start = vma->vm_start;
	if (start == state->latest)
		return;
	state->latest = start;
	state->mappings++;
	state->hash = mix(mix(mix(mix(state->hash, start), vma->vm_end), vma->vm_pgoff), inode);
}

// Reports whether a mapping is a file's code.
static bool is_code(struct task_struct *task, struct vm_area_struct *vma)
{
	return task && vma && vma->vm_flags & VM_EXEC && vma->vm_file;
}

// Counts a record of a mapping, and reports whether the limits allow it.
static bool may_send(struct layout_state *state, u64 inode)
{
	if (inode != state->file)
		state->parts = 0;
	state->file = inode;
	if (state->parts >= MAX_PARTS || state->records >= MAX_MAPPED)
		return false;
	state->parts++;
	state->records++;
	return true;
}

// Lists the mappings of all processes that user space looks for, and the processes' layouts.
SEC("iter/task_vma")
int mapped_files(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	bool first = !ctx->meta->seq_num, last = !task || !vma;
	struct layout_state *state = is_code(task, vma) || first || last ? find_layout_state(ctx->meta) : NULL;
	if (!state)
		return 0;
	if (last) {
		if (!send_layout(ctx->meta->seq, state->mappings ? state->pid : 0, state->hash)) // else the kernel comes again
			end_layout_state(ctx->meta);
		return 0;
	}
	if (!is_code(task, vma))
		return 0;
	if ((u32)task->tgid != state->pid)
		begin_layout(state, task, vma);
	if (vma->vm_start == state->first)
		send_layout(ctx->meta->seq, state->pid_before, state->before);
	struct file *file = vma->vm_file;
	struct inode *inode = file->f_inode;
	u64 address = inode_address(vma);
	bool again = vma->vm_start == state->latest;
	add_to_layout(state, vma, address);
	struct mapped_file record = {.pid = task->tgid, .start = vma->vm_start, .end = vma->vm_end};
	bpf_probe_read_kernel_str(record.name, sizeof(record.name), file->f_path.dentry->d_name.name);
	bool cuda = record.name[0] == 'l' && record.name[1] == 'i' && record.name[2] == 'b' &&
		    ((record.name[3] == 'c' && record.name[4] == 'u' && record.name[5] == 'd') ||
		     (record.name[3] == 'c' && record.name[4] == '1' && record.name[5] == '0') ||
		     (record.name[3] == 'n' && record.name[4] == 'c' && record.name[5] == 'c'));
	struct mm_struct *mm = task->mm;
	record.program = mm && mm->exe_file == file;
	if ((!cuda && !record.program) || (!again && !may_send(state, address)))
		return 0;
	record.inode = inode->i_ino;
	record.device = inode->i_sb->s_dev;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

// Lists the executable mappings of the one process that the iterator's link names (Linux 6.1).
SEC("iter/task_vma")
int process_code(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	bool first = !ctx->meta->seq_num, last = !task || !vma;
	struct layout_state *state = is_code(task, vma) || first || last ? find_layout_state(ctx->meta) : NULL;
	if (!state)
		return 0;
	if (last) {
		struct mapped_code end = {.start = state->hash};
		if (!state->pid || !bpf_seq_write(ctx->meta->seq, &end, sizeof(end))) // else the kernel comes again
			end_layout_state(ctx->meta);
		return 0;
	}
	if (!is_code(task, vma))
		return 0;
	if ((u32)task->tgid != state->pid)
		begin_layout(state, task, vma);
	struct inode *inode = vma->vm_file->f_inode;
	u64 address = inode_address(vma);
	add_to_layout(state, vma, address);
	struct mapped_code record = {.start = vma->vm_start, .inode = inode->i_ino, .address = address, .size = inode->i_size, .changed = changed_at(inode)};
	record.device = inode->i_sb->s_dev;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

// Sends an event of a process, and wakes the reader.
static void send(enum event_kind kind, u32 pid, u32 tid)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		if (kind != EVENT_EXIT) // user space finds ended processes by itself later
			count(COUNTER_EVENT_LOST);
		return;
	}
	__builtin_memset(event, 0, sizeof(*event));
	fill_note(event, kind, (u64)pid << 32 | tid);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

SEC("raw_tracepoint/sched_process_exit")
int process_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct signal_struct *signal;
	u32 pid = 0, tid = 0;
	s32 live = 1;
	READ(pid, task, tgid);
	READ(tid, task, pid);
	// A thread may end inside a traced call. The next thread with its id has its own entry.
	bool called = forget_thread(pid, tid);
	struct process *process = bpf_map_lookup_elem(&processes, &pid);
	if (!process)
		return 0;
	if (called)
		process->inherited = 0; // user space knows it from its events
	READ(signal, task, signal);
	READ(live, signal, live.counter);
	if (live != 0)
		return 0;
	if (process->inherited)
		bpf_map_delete_elem(&processes, &pid);
	else
		send(EVENT_EXIT, pid, tid);
	return 0;
}

SEC("raw_tracepoint/sched_process_exec")
int process_exec(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 pid = 0;
	READ(pid, task, tgid);
	forget_thread(pid, pid);
	// The thread that called execve; it has the leader's id from now on.
	forget_thread(pid, ctx[1]);
	struct process *process = bpf_map_lookup_elem(&processes, &pid);
	if (process && process->inherited)
		bpf_map_delete_elem(&processes, &pid);
	else if (process)
		send(EVENT_EXEC, pid, pid);
	return 0;
}

/* Children of traced processes are traced until they call execve. Set for a filter by name. */
volatile const bool trace_children = 0;

/* Children inherit their parent's layout, so that their first stack is complete. Set if every
 * process is traced. */
volatile const bool inherit = 0;

/* Id of the function in whose calls a library creates threads of its own. User space sets it. */
volatile const u8 thread_maker = 0;

// Tells user space of a thread that the current one makes in a call of thread_maker, and of the
// stack of that call. The thread's id is the address.
static void send_thread(struct task_struct *child, u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (!thread || !thread->depth || !thread_maker)
		return;
	struct call *call = &thread->calls[(thread->depth - 1) & (MAX_DEPTH - 1)];
	if (call->function != thread_maker)
		return;
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(COUNTER_EVENT_LOST);
		return;
	}
	__builtin_memset(event, 0, sizeof(*event));
	fill_note(event, EVENT_CALL, id);
	u32 tid = 0;
	READ(tid, child, pid);
	event->address = tid;
	event->stack = thread->stack;
	event->device = -1;
	event->api = event->function = thread_maker;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

// Follows children of a command that the tracer started, and of processes chosen by name. A child
// has its parent's name and mappings. User space has no time to read them from a child that lives
// for a millisecond.
SEC("raw_tracepoint/sched_process_fork")
int process_fork(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	u32 pid = 0, child_pid = 0;
	READ(pid, parent, tgid);
	struct process *process = bpf_map_lookup_elem(&processes, &pid);
	if (!process)
		return 0;
	READ(child_pid, child, tgid);
	if (child_pid == pid) {
		send_thread(child, bpf_get_current_pid_tgid());
		return 0;
	}
	bool followed = process->held || (trace_children && process->traced);
	if (!followed && !(inherit && process->traced && process->layout))
		return 0;
	struct process copy = {
		.seed = bpf_ktime_get_ns(), .traced = process->traced, .held = process->held, .layout = process->layout, .inherited = !followed,
	};
	// An existing entry is of an earlier process with this pid.
	if (bpf_map_update_elem(&processes, &child_pid, &copy, BPF_ANY) && followed)
		count(COUNTER_NOT_FOLLOWED);
	return 0;
}

char _license[] SEC("license") = "GPL";
