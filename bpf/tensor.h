/* SPDX-License-Identifier: GPL-2.0-only */
/* Blocks that PyTorch's caching allocator gives out and takes back. One function reports both, holding the
 * allocator's lock: totals are kept here for every block, and only a sample becomes events. */
#ifndef VRAMPROF_TENSOR_H
#define VRAMPROF_TENSOR_H

#define SIZE_CLASSES 128 /* four to a doubling, from 512 bytes on; a power of two */
#define MAX_BLOCKS (4 << 20)
#define ALWAYS 0xffffffff
#define SAMPLE_WINDOW_NS (100 * 1000 * 1000)
#define SAVED_WINDOWS 10 /* whose samples may come at once, after a pause */
#define MAX_HALVINGS 12 /* of a block's probability */
#define MAX_DOUBLINGS 24 /* of the mean */
#define TOTALS_SHARE 7 /* log2 */
#define BLOCK_WITH_TOTALS 5 /* attach cookie: the arguments of reportMemoryUsageToProfiler from PyTorch 1.10 on; else 3 */

/* Blocks of a size class that were allocated since the attach. */
struct size_class {
	u64 allocs, alloc_bytes;
	u64 frees, free_bytes;
};

/* Live blocks of one allocator on a GPU: a small table, of sets of NEAR_WAYS in a cache line each, takes far less time than the
 * map of all blocks, which takes what has no room here. It needs no lock: such an allocator reports holding its own. */
#define NEAR_WAYS 4 /* powers of two */
#define NEAR_SET_BITS 9
#define NEAR_BLOCKS (NEAR_WAYS << NEAR_SET_BITS)
#define NEAR_TABLES 256 /* of 32 KiB each, for the allocators with the least numbers */
#define DEVICE_TYPE_CUDA 1
struct near_block {
	u64 address; /* 0: no block */
	u64 value;   /* as in the map; 0: no block */
};
struct near_blocks {
	struct near_block block[NEAR_BLOCKS];
};
MAP(near_blocks, BPF_MAP_TYPE_ARRAY, u32, struct near_blocks, NEAR_TABLES); /* allocator's number → */

/* What a process's allocator has on one device. */
struct tensor_device {
	u64 ended;                   /* reports that are in all that follows; first and last field, to see a copy that is torn */
	u64 time;                    /* of the first event */
	u32 number;                  /* of ALLOCATOR_BITS, in the keys of its blocks; NO_NUMBER: it is just begun */
	u32 doublings;               /* of the mean, as it is now */
	u64 window;                  /* when the window of the budget began */
	u32 sampled;                 /* in it */
	u32 credit;                  /* blocks that may be sampled before the next halving */
	u64 older_allocated;         /* the allocator's totals just before it */
	u64 older_reserved;
	u64 latest;                  /* time of the latest event */
	u64 allocated, reserved;     /* the allocator's totals after it; where it tells none, live and 0 */
	u64 live;                    /* bytes of blocks that were allocated since the attach, and are booked */
	u64 peak, peak_time;         /* highest allocated, and a time when it was that */
	u64 peak_left;               /* highest allocated before a free */
	u64 sent, sent_allocated, sent_reserved, sent_older; /* of the latest event that had totals: its time, and these; older: allocated - live */
	u64 older_frees, older_bytes; /* blocks that were allocated before the attach */
	u64 unbooked;                /* blocks for which there was no room */
	u64 far;                     /* its live blocks in the map blocks */
	u64 room;                    /* for how many of them it has taken room there */
	struct size_class classes[SIZE_CLASSES];
	u64 begun;                   /* reports that may be in some of the above */
};

struct tensor_key {
	u32 pid;
	u16 device; /* c10::Device: its type, and its index above it */
	u16 unused;
};

/* A live block's name: the address has 48 bits and is a multiple of 64. An allocator has a number that no other one has
 * until user space has removed all its blocks and gives the number back. */
#define ALLOCATOR_BITS 22
#define NO_NUMBER 0xffffffff
static EBPF_INLINE u64 block_key(u64 address, u32 allocator) { return address >> 6 << ALLOCATOR_BITS | allocator; }

/* Allocators on GPUs, and all others: each worker of a data loader has one for the host, and there may be hundreds for a
 * GPU's process. Numbers of the former are below MAX_GPU_ALLOCATORS, those of the latter from there on. */
#define MAX_GPU_ALLOCATORS 2048
#define MAX_HOST_ALLOCATORS 8192
#define FREE_NUMBERS(name, entries)                                                                                    \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_STACK);                                                                      \
		__type(value, u32);                                                                                    \
		__uint(max_entries, entries);                                                                          \
	} name SEC(".maps")
GROWING_MAP(tensor_devices, struct tensor_key, struct tensor_device, MAX_GPU_ALLOCATORS);
GROWING_MAP(host_tensor_devices, struct tensor_key, struct tensor_device, MAX_HOST_ALLOCATORS);
FREE_NUMBERS(gpu_numbers, MAX_GPU_ALLOCATORS); /* the least on top: these have near tables */
FREE_NUMBERS(host_numbers, MAX_HOST_ALLOCATORS);
MAP(blank_tensor_device, BPF_MAP_TYPE_ARRAY, u32, struct tensor_device, 1);

/* How likely a block of a class is sampled. A mean that is doubled halves that, but not for those of at least the mean: they
 * are always taken. */
struct sample_class {
	u32 threshold; /* of 2^32, with no doublings */
	u32 spared;    /* so many doublings halve nothing */
};
MAP(sample_classes, BPF_MAP_TYPE_ARRAY, u32, struct sample_class, SIZE_CLASSES);
GROWING_MAP(blocks, u64, u64, MAX_BLOCKS); /* block_key → size << 1 | sampled */

static EBPF_INLINE u32 size_class(u64 size)
{
	u32 log = 0;
	u64 rest = size >> 9;
	if (!rest)
		return 0;
	// Without branches: the verifier would look at all that follows once for each way through them.
#pragma unroll
	for (int bit = 5; bit >= 0; bit--) {
		u64 high = rest >> (1 << bit), minus = -high;
		asm volatile("" : "+r"(minus));
		u32 shift = (high | minus) >> 63 << bit;
		rest >>= shift;
		log += shift;
	}
	u32 number = 1 + 4 * log + (size >> (log + 7) & 3);
	return number < SIZE_CLASSES ? number : SIZE_CLASSES - 1;
}

// Only allocators on GPUs have totals that are told, and report holding a lock.
static EBPF_INLINE bool on_gpu(u16 device) { return (device & 0xff) == DEVICE_TYPE_CUDA; }

static EBPF_INLINE struct tensor_device *find_allocator(struct tensor_key *key)
{
	if (on_gpu(key->device))
		return bpf_map_lookup_elem(&tensor_devices, key);
	return bpf_map_lookup_elem(&host_tensor_devices, key);
}

// Enters an allocator under a number of its own. Returns NULL without room, or where another thread was faster.
static EBPF_INLINE struct tensor_device *enter_allocator(void *devices, void *numbers, struct tensor_key *key, u64 id)
{
	u32 zero = 0, number;
	struct tensor_device *blank = bpf_map_lookup_elem(&blank_tensor_device, &zero);
	struct share *share = share_of(id);
	if (!blank || !share || share->allocators >= MAX_ALLOCATORS_OF_PROCESS || bpf_map_pop_elem(numbers, &number))
		return NULL;
	struct tensor_device *d = NULL;
	if (!bpf_map_update_elem(devices, key, blank, BPF_NOEXIST))
		d = bpf_map_lookup_elem(devices, key);
	if (d) {
		d->number = number;
		__sync_fetch_and_add(&share->allocators, 1);
	} else {
		bpf_map_push_elem(numbers, &number, 0);
	}
	return d;
}

static EBPF_INLINE struct tensor_device *new_tensor_device(struct tensor_key *key, struct block_report *r, u64 now, u64 id)
{
	struct process *process = find_process(id);
	if (!(process ? process->traced : trace_all))
		return NULL;
	struct tensor_device *d = on_gpu(key->device) ? enter_allocator(&tensor_devices, &gpu_numbers, key, id)
						      : enter_allocator(&host_tensor_devices, &host_numbers, key, id);
	if (!d) {
		lose(COUNTER_THREADS_FULL, id);
		return NULL;
	}
	d->credit = SAVED_WINDOWS * window_samples;
	d->time = d->window = now;
	if (r->reserved && (r->size < 0 || r->allocated >= r->size)) // without totals: 0
		d->older_allocated = r->allocated - r->size;
	d->older_reserved = r->reserved;
	d->allocated = d->peak = d->peak_left = d->sent_allocated = d->sent_older = d->older_allocated;
	d->reserved = d->sent_reserved = r->reserved;
	d->latest = d->sent = d->peak_time = now;
	struct block_report before = {.time = now, .allocated = d->older_allocated, .reserved = r->reserved, .device = r->device};
	send_block(EVENT_ALLOCATOR, &before, 0, 0, id);
	return d;
}

// Tells user space the totals as they are since the latest report. A sample's events leave out what blocks that are not of it change.
static EBPF_INLINE void send_totals(struct tensor_device *d, u16 device, u64 time, u64 id)
{
	struct block_report r = {
		.time = time, .allocated = d->allocated, .reserved = d->reserved, .live = d->live, .device = device, .totals = true,
	};
	d->sent = time;
	d->sent_allocated = d->allocated;
	d->sent_reserved = d->reserved;
	d->sent_older = d->allocated - d->live;
	send_block(EVENT_TOTALS, &r, 0, 0, id);
}

static EBPF_INLINE u64 distance(u64 a, u64 b)
{
	s64 d = a - b;
	return d < 0 ? -d : d;
}

// Says whether what was sent has to be sent anew.
static EBPF_INLINE bool drifted(struct tensor_device *d, struct block_report *r)
{
	if (!on_gpu(r->device))
		return false;
	u64 step = d->allocated >> TOTALS_SHARE;
	if (step < totals_step || !totals_step)
		step = totals_step;
	return d->reserved != d->sent_reserved || distance(d->allocated, d->sent_allocated) > step ||
	       distance(d->allocated - d->live, d->sent_older) > step;
}

// Tells what the allocator had until now, where a free ends the highest that it ever had and no event had that.
static EBPF_INLINE void leave_peak(struct tensor_device *d, struct block_report *r, u64 now, u64 id)
{
	if (r->size >= 0 || d->allocated <= d->peak_left || !on_gpu(r->device))
		return;
	d->peak_left = d->allocated;
	if (d->sent >= d->latest)
		return;
	d->peak_time = now - 1;
	send_totals(d, r->device, now - 1, id);
}

// Takes over the totals after a report, whose block is booked.
static EBPF_INLINE void take_totals(struct tensor_device *d, struct block_report *r, u64 now, bool told)
{
	if (!told)
		r->allocated = d->live;
	d->allocated = r->allocated;
	d->reserved = r->reserved;
	d->latest = now;
	if (d->allocated > d->peak) {
		d->peak = d->allocated;
		d->peak_time = now;
	}
	r->live = d->live;
	r->totals = true;
}

// Notes that a sampled block's event has the totals.
static EBPF_INLINE void totals_sent(struct tensor_device *d, enum event_kind kind)
{
	d->sent = d->latest;
	d->sent_allocated = d->allocated;
	d->sent_reserved = d->reserved;
	if (kind == EVENT_BLOCK_FREE)
		d->sent_older = d->allocated - d->live;
}

// The near table of an allocator, NULL for one on the host and for one with a high number.
static EBPF_INLINE struct near_blocks *near_blocks_of(struct tensor_device *d)
{
	u32 number = d->number;
	return bpf_map_lookup_elem(&near_blocks, &number);
}

// Returns the place of a block in a near table, NULL if there is none. With 0 for what is looked for: a free place for it.
static EBPF_INLINE struct near_block *find_near(struct near_blocks *near, struct block_report *r, u64 what)
{
	if (!near)
		return NULL;
	u32 set = (r->address >> 9) * 0x9E3779B97F4A7C15ull >> (64 - NEAR_SET_BITS);
	struct near_block *b = &near->block[set * NEAR_WAYS & (NEAR_BLOCKS - NEAR_WAYS)];
#pragma unroll
	for (int i = 0; i < NEAR_WAYS; i++, b++)
		if (b->address == what)
			return b;
	return NULL;
}

#define NO_ROOM (~0ull)
#define ROOM 1024 /* blocks for which an allocator takes room at a time: what all have is changed rarely */

// Takes room for further blocks of an allocator in the map of all, if its process may have more.
static EBPF_INLINE bool find_room(struct tensor_device *d, u64 id)
{
	u32 table = TABLE_BLOCKS;
	u64 *used = bpf_map_lookup_elem(&tables, &table);
	struct share *share = find_share(id);
	if (!used || !share || (s64)share->blocks > (s64)(max_blocks - *used))
		return false;
	__sync_fetch_and_add(used, ROOM);
	__sync_fetch_and_add(&share->blocks, ROOM);
	__sync_fetch_and_add(&d->room, ROOM);
	return true;
}

// Gives back room that an allocator has not needed for a while.
static EBPF_INLINE void leave_room(struct tensor_device *d, u64 id)
{
	u32 table = TABLE_BLOCKS;
	u64 *used = bpf_map_lookup_elem(&tables, &table);
	struct share *share = find_share(id);
	if (!used || !share || share->blocks < ROOM)
		return;
	__sync_fetch_and_add(used, -ROOM);
	__sync_fetch_and_add(&share->blocks, -ROOM);
	__sync_fetch_and_add(&d->room, -ROOM);
}

// Notes a live block. Returns the value of an older one at its address, 0 without one, or NO_ROOM.
static EBPF_INLINE u64 keep_block(struct tensor_device *d, struct block_report *r, u64 value, u64 id)
{
	u64 key = block_key(r->address, d->number), before;
	struct near_blocks *table = near_blocks_of(d);
	struct near_block *near = find_near(table, r, r->address);
	if (!near && !(d->far && bpf_map_lookup_elem(&blocks, &key)))
		near = find_near(table, r, 0);
	if (near) {
		before = near->value;
		near->value = value;
		near->address = r->address;
		return before;
	}
	if (d->far >= d->room && !find_room(d, id))
		return NO_ROOM;
	if (!bpf_map_update_elem(&blocks, &key, &value, BPF_NOEXIST)) {
		__sync_fetch_and_add(&d->far, 1);
		return 0;
	}
	u64 *old = bpf_map_lookup_elem(&blocks, &key);
	if (!old)
		return NO_ROOM;
	before = *old;
	*old = value;
	return before;
}

// Forgets a live block. Returns its value, 0 if it was not known.
static EBPF_INLINE u64 drop_block(struct tensor_device *d, struct block_report *r, u64 id)
{
	struct near_block *near = find_near(near_blocks_of(d), r, r->address);
	u64 value;
	if (near) {
		value = near->value;
		near->address = 0;
		near->value = 0;
		return value;
	}
	if (!d->far)
		return 0;
	u64 key = block_key(r->address, d->number);
	u64 *old = bpf_map_lookup_elem(&blocks, &key);
	if (!old)
		return 0;
	value = *old;
	bpf_map_delete_elem(&blocks, &key);
	__sync_fetch_and_add(&d->far, -1);
	if (d->room > d->far + 2 * ROOM)
		leave_room(d, id);
	return value;
}

// Begins the next window of an allocator's budget, if it is time: what was not used is saved, up to a limit.
// Where less than a third was used, the mean is halved: twice of it is well below the budget.
static EBPF_INLINE void open_window(struct tensor_device *d, u64 now)
{
	if ((s64)(now - d->window) < SAMPLE_WINDOW_NS)
		return;
	u64 windows = (now - d->window) / SAMPLE_WINDOW_NS; // all but the first without a block
	if (windows > SAVED_WINDOWS)
		windows = SAVED_WINDOWS;
	if (d->sampled < windows * window_samples / 3)
		d->doublings = d->doublings > windows ? d->doublings - windows : 0;
	u32 credit = d->credit + windows * window_samples;
	d->credit = credit < SAVED_WINDOWS * window_samples ? credit : SAVED_WINDOWS * window_samples;
	d->sampled = 0;
	d->window = now;
}

// Takes one sample from the budget. When nothing is left the mean is doubled, from the next block on: so
// how likely a block was to be sampled never depends on itself.
static EBPF_INLINE void spend_sample(struct tensor_device *d, u64 now)
{
	d->sampled++;
	if (d->credit)
		d->credit--;
	if (d->credit || d->doublings >= MAX_DOUBLINGS)
		return;
	d->doublings++;
	d->credit = window_samples;
	d->sampled = 0;
	d->window = now;
}

// Decides whether a block is of the sample, and notes in the report how likely that was.
static EBPF_INLINE bool sample_block(struct tensor_device *d, u32 number, struct block_report *r, u64 now)
{
	struct sample_class *class = bpf_map_lookup_elem(&sample_classes, &number);
	if (!class || !class->threshold)
		return false;
	u32 likely = class->threshold;
	if (window_samples) {
		open_window(d, now);
		if (d->doublings > class->spared) {
			u32 halvings = d->doublings - class->spared;
			r->halvings = halvings < MAX_HALVINGS ? halvings : MAX_HALVINGS;
			likely >>= r->halvings & 15;
		}
	}
	if (likely != ALWAYS && bpf_get_prandom_u32() >= likely)
		return false;
	if (window_samples)
		spend_sample(d, now);
	return true;
}

static EBPF_INLINE void count_block(u64 *blocks, u64 *bytes, u64 size)
{
	__sync_fetch_and_add(blocks, 1);
	__sync_fetch_and_add(bytes, size);
}

// Books a block that was given out. Returns whether it is of the sample.
static EBPF_INLINE bool book_block(struct tensor_device *d, struct block_report *r, u64 now, u64 id)
{
	u64 size = r->size;
	u32 number = size_class(size);
	bool sampled = sample_block(d, number, r, now);
	u64 before = keep_block(d, r, size << 1 | sampled, id);
	if (before == NO_ROOM) {
		__sync_fetch_and_add(&d->unbooked, 1);
		lose_of(id);
		return false;
	}
	if (before) { // its free was not reported, as when a private pool is restored
		struct size_class *c = &d->classes[size_class(before >> 1) & (SIZE_CLASSES - 1)];
		count_block(&c->frees, &c->free_bytes, before >> 1);
		__sync_fetch_and_add(&d->live, -(before >> 1));
		if (before & 1 && !sampled) // user space has it
			send_block(EVENT_BLOCK_FREE, r, 0, 0, id);
	}
	struct size_class *c = &d->classes[number & (SIZE_CLASSES - 1)];
	count_block(&c->allocs, &c->alloc_bytes, size);
	__sync_fetch_and_add(&d->live, size);
	return sampled;
}

// Takes a block back. Returns whether it was of the sample.
static EBPF_INLINE bool unbook_block(struct tensor_device *d, struct block_report *r, u64 id)
{
	u64 value = drop_block(d, r, id);
	if (!value) {
		count_block(&d->older_frees, &d->older_bytes, -r->size);
		return false;
	}
	struct size_class *c = &d->classes[size_class(value >> 1) & (SIZE_CLASSES - 1)];
	count_block(&c->frees, &c->free_bytes, value >> 1);
	__sync_fetch_and_add(&d->live, -(value >> 1));
	return value & 1;
}

#endif
