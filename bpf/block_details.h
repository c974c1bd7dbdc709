/* SPDX-License-Identifier: GPL-2.0-only */
/* What a replay of PyTorch's allocator needs besides its reports, where user space asks for it: the
 * requested size, stream and pool of each block, and whether the memory of a freed block waits for
 * other streams. It is in the allocator's Block, whose address is in a register or on the stack when
 * the allocator reports. The report proves which one it is: a Block has the address and the size. */
#ifndef VRAMPROF_BLOCK_DETAILS_H
#define VRAMPROF_BLOCK_DETAILS_H

#include "allocators.h"
#include "block_events.h"
#include "filter.h"
#include "registers.h"
#include "verifier.h"

/* Whether details are wanted. User space sets it; without them, the verifier removes this code. */
volatile const u32 wants_details = 0;

/* Where a build of PyTorch has the fields of a Block, and of its pool the owner, in bytes. */
struct block_layout {
	u8 ptr, size, requested, pool, stream;
	u8 allocated; /* bool */
	u8 uses;      /* u64: other streams that use the block */
	u8 events;    /* u32: events that its memory waits for */
	u8 owner;     /* in the pool: its private pool; 0: it is a default pool */
};

/* pid → layout; 0: of processes without one of their own. */
MAP(block_layouts, BPF_MAP_TYPE_HASH, u32, struct block_layout, 1024);

#define MAX_WAITING 32 /* a power of two; struct details has room for as many addresses */
#define DETAILED_ALLOCATORS 128

/* Words that may be the address of a Block: registers, then the caller's frame. A power of two. */
#define CANDIDATE_REGISTERS 8
#define CANDIDATES 64

struct waiting_block {
	u64 object; /* its Block */
	u64 address, size;
};
/* What is known between the reports of one GPU allocator. It needs no lock, as near tables. */
struct allocator_details {
	u64 at[2]; /* the candidate that was the last Block, of frees and of allocations */
	u64 waits; /* entries in waiting */
	u64 kept, completed, index, flags; /* while a report is looked at */
	u64 candidates[CANDIDATES];
	struct waiting_block waiting[MAX_WAITING];
	u64 addresses[MAX_WAITING]; /* of completed blocks */
};
_Static_assert(sizeof(u64) * MAX_WAITING <= sizeof(struct details), "details have room");
MAP(detailed_allocators, BPF_MAP_TYPE_HASH, struct tensor_key, struct allocator_details, DETAILED_ALLOCATORS);
MAP(blank_details, BPF_MAP_TYPE_ARRAY, u32, struct allocator_details, 1);

/* The probe on reports that block_detailed continues with. The verifier would follow both together
 * far longer than each. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 1);
} report_program SEC(".maps");

static EBPF_INLINE void save_candidates(struct pt_regs *ctx, struct allocator_details *a)
{
#if defined(__x86_64__)
	a->candidates[0] = REGISTER(ax);
	a->candidates[1] = REGISTER(bx);
	a->candidates[2] = REGISTER(r12);
	a->candidates[3] = REGISTER(r13);
	a->candidates[4] = REGISTER(r14);
	a->candidates[5] = REGISTER(r15);
	a->candidates[6] = REGISTER(bp);
	a->candidates[7] = REGISTER(r10);
#else
	a->candidates[0] = REGISTER(regs[19]);
	a->candidates[1] = REGISTER(regs[20]);
	a->candidates[2] = REGISTER(regs[21]);
	a->candidates[3] = REGISTER(regs[22]);
	a->candidates[4] = REGISTER(regs[23]);
	a->candidates[5] = REGISTER(regs[24]);
	a->candidates[6] = REGISTER(regs[25]);
	a->candidates[7] = REGISTER(regs[26]);
#endif
	bpf_probe_read_user(&a->candidates[CANDIDATE_REGISTERS], sizeof(a->candidates) - 8 * CANDIDATE_REGISTERS, (void *)REGISTER(sp) + RETURN_ADDRESS_SIZE);
}

// The verifier would follow both ways of each condition, in each iteration of a loop.
#define ONE_IF(condition)                                                                                              \
	({                                                                                                             \
		u64 one = (condition);                                                                                 \
		asm volatile("" : "+r"(one));                                                                          \
		one;                                                                                                   \
	})

// Returns 1 if a candidate has the memory of a report: just it, if it was allocated. If it was
// freed, the Block may have been merged with its neighbors.
static EBPF_INLINE u64 has_memory(struct block_layout *l, u64 object, struct block_report *r)
{
	u64 ptr = 0, size = 0, slack = r->size > 0 ? 0 : 1ull << 47;
	u8 allocated = 0;
	long failed = bpf_probe_read_user(&ptr, 8, (void *)object + l->ptr) | bpf_probe_read_user(&size, 8, (void *)object + l->size) |
		      bpf_probe_read_user(&allocated, 1, (void *)object + l->allocated);
	u64 wanted = r->size > 0 ? r->size : -r->size, before = r->address - ptr;
	return ONE_IF(!failed) & ONE_IF(!(object & 7)) & ONE_IF(!((ptr | size) & 511)) & ONE_IF(allocated == (r->size > 0)) & ONE_IF(before <= slack) & ONE_IF(size - before - wanted <= slack);
}

/* What a Block has besides its memory. */
struct block_fields {
	u64 ptr, size, uses;
	u32 events;
	u8 allocated;
};

// Reads a Block. Returns 0 on success.
static EBPF_INLINE long read_block(struct block_layout *l, u64 object, struct block_fields *f)
{
	void *at = (void *)object;
	return bpf_probe_read_user(&f->ptr, 8, at + l->ptr) | bpf_probe_read_user(&f->size, 8, at + l->size) |
	       bpf_probe_read_user(&f->allocated, 1, at + l->allocated) | bpf_probe_read_user(&f->uses, 8, at + l->uses) |
	       bpf_probe_read_user(&f->events, 4, at + l->events);
}

// Returns 1 if a block waits for other streams: it is still as it was freed.
static EBPF_INLINE u64 is_waiting(struct block_fields *f, u64 address, u64 size)
{
	return ONE_IF(f->ptr == address) & ONE_IF(f->size == size) & ONE_IF(!f->allocated) & ONE_IF(f->uses | f->events);
}

// Returns the Block of a report; 0: not found.
static EBPF_INLINE u64 find_block(struct allocator_details *a, struct block_layout *l, struct block_report *r)
{
	u64 *at = &a->at[r->size > 0];
	if (has_memory(l, a->candidates[*at & (CANDIDATES - 1)], r))
		return a->candidates[*at & (CANDIDATES - 1)];
	each(n, CANDIDATES, &a->index) { // from the last to the first, which counts: registers are rarely stale
		u64 i = CANDIDATES - 1 - n;
		u64 is = has_memory(l, a->candidates[i & (CANDIDATES - 1)], r);
		*at ^= (*at ^ i) & -is;
	}
	u64 object = a->candidates[*at & (CANDIDATES - 1)];
	return has_memory(l, object, r) ? object : 0;
}

static EBPF_INLINE void send_block_details(enum event_kind kind, struct block_report *r, u64 address, u64 requested, u64 stream, u64 pool, u64 now, u64 id)
{
	struct event *event = reserve_event(sizeof(*event), id);
	if (!event)
		return;
	begin_event(event, kind, id);
	event->time = now;
	event->address = address;
	event->size = requested;
	event->stack = 0;
	event->context = stream;
	event->extra = pool;
	event->result = r->device & 0xff;
	event->device = (s8)(r->device >> 8);
	event->flags = event->api = event->function = 0;
	bpf_ringbuf_submit(event, wakeup_flag(false));
}

// Sends the addresses of the blocks that have completed, in their order.
static EBPF_INLINE void send_addresses(struct allocator_details *a, struct block_report *r, u64 now, u64 id)
{
	u8 *record = reserve_event(sizeof(struct event) + sizeof(struct details), id);
	if (!record)
		return;
	struct event *event = (void *)record;
	__builtin_memset(event, 0, sizeof(*event));
	begin_event(event, EVENT_BLOCK_COMPLETED, id);
	event->time = now;
	event->size = a->completed;
	event->result = r->device & 0xff;
	event->device = (s8)(r->device >> 8);
	bpf_probe_read_kernel(record + sizeof(*event), sizeof(a->addresses), a->addresses);
	bpf_ringbuf_submit(record, wakeup_flag(false));
}

// Sends the ends of blocks that waited for other streams. Returns how many still wait.
VERIFIED_ONCE u32 send_completed(struct allocator_details *a, struct block_layout *l, struct block_report *r, u64 now, u64 id)
{
	if (!a || !l || !r)
		return 0;
	a->kept = a->completed = 0;
	each(i, MAX_WAITING, &a->index) {
		struct waiting_block w = a->waiting[i & (MAX_WAITING - 1)];
		struct block_fields f = {};
		u64 failed = read_block(l, w.object, &f), is = ONE_IF(i < a->waits);
		u64 waits = is & ONE_IF(!failed) & is_waiting(&f, w.address, w.size);
		a->waiting[a->kept & (MAX_WAITING - 1)] = w;
		a->addresses[a->completed & (MAX_WAITING - 1)] = w.address;
		a->kept += waits;
		a->completed += is & ~waits;
	}
	a->waits = a->kept;
	if (a->completed)
		send_addresses(a, r, now, id);
	return a->kept;
}

// Sends what a block asked for.
static EBPF_INLINE void send_requested(struct block_layout *l, u64 object, struct block_report *r, u64 now, u64 id)
{
	void *at = (void *)object;
	u64 requested, stream, pool, owner;
	if (bpf_probe_read_user(&requested, 8, at + l->requested) | bpf_probe_read_user(&stream, 8, at + l->stream) |
	    bpf_probe_read_user(&pool, 8, at + l->pool))
		return;
	if (bpf_probe_read_user(&owner, 8, (void *)pool + l->owner))
		return;
	// The pool is a part of its owner.
	if (requested > r->size || (owner && pool - owner > 1024))
		return;
	send_block_details(EVENT_BLOCK_DETAILS, r, r->address, requested, stream, owner, now, id);
}

// Sends the details of a report. Returns flags for the event of a free.
VERIFIED_ONCE u32 detail_report(struct allocator_details *a, struct block_layout *l, struct block_report *r, u64 now, u64 id)
{
	if (!a || !l || !r)
		return 0;
	u64 object = find_block(a, l, r);
	struct block_fields f = {};
	if (!object || read_block(l, object, &f))
		return FLAG_NO_DETAILS;
	if (r->size > 0) {
		send_requested(l, object, r, now, id);
		return 0;
	}
	if (!(f.uses | f.events))
		return 0;
	if (!is_waiting(&f, r->address, -r->size))
		return FLAG_NO_DETAILS;
	if (a->waits >= MAX_WAITING)
		return FLAG_WAITS | FLAG_NO_DETAILS;
	struct waiting_block *w = &a->waiting[a->waits++ & (MAX_WAITING - 1)];
	w->object = object;
	w->address = r->address;
	w->size = -r->size;
	return FLAG_WAITS;
}

// Returns what is known of an allocator, from now on; NULL: there is no room for it.
static EBPF_INLINE struct allocator_details *details_of(struct tensor_key *key)
{
	u32 zero = 0;
	struct allocator_details *a = bpf_map_lookup_elem(&detailed_allocators, key), *blank;
	if (a)
		return a;
	blank = bpf_map_lookup_elem(&blank_details, &zero);
	if (blank)
		bpf_map_update_elem(&detailed_allocators, key, blank, BPF_NOEXIST);
	return bpf_map_lookup_elem(&detailed_allocators, key);
}

// Sends the details of a report, which come before its event, and stores flags for the event of a
// free.
static EBPF_INLINE void note_details(struct pt_regs *ctx, struct block_report *r, u64 id)
{
	u32 pid = id >> 32, zero = 0;
	struct tensor_key key = {.pid = pid, .device = r->device};
	if (!on_gpu(r->device) || !r->size || !is_traced(find_process(id)))
		return;
	struct block_layout *l = bpf_map_lookup_elem(&block_layouts, &pid);
	if (!l)
		l = bpf_map_lookup_elem(&block_layouts, &zero);
	struct allocator_details *a = details_of(&key);
	if (!a || !l)
		return;
	u64 now = bpf_ktime_get_ns();
	if (a->waits)
		send_completed(a, l, r, now, id);
	save_candidates(ctx, a);
	a->flags = detail_report(a, l, r, now, id);
}

// Returns the flags that note_details stored for the report that is being booked.
static EBPF_INLINE u32 detail_flags(struct tensor_key *key)
{
	struct allocator_details *a = bpf_map_lookup_elem(&detailed_allocators, key);
	return a ? a->flags : FLAG_NO_DETAILS;
}

#endif
