/* SPDX-License-Identifier: GPL-2.0-only */
/* PyTorch's allocators: one per process and device. */
#ifndef VRAMPROF_ALLOCATORS_H
#define VRAMPROF_ALLOCATORS_H

#include "losses.h"
#include "processes.h"
#include "size_classes.h"
#include "threads.h"

enum device_type { DEVICE_CPU, DEVICE_CUDA }; /* c10::DeviceType */

/* The allocator of one process on one device. */
struct tensor_device {
	/* Reports counted completely; a copy with begun != ended is torn. */
	u64 ended;
	u64 time;                    /* of the first event */
	/* ALLOCATOR_BITS wide, in the keys of its blocks; or NO_NUMBER. */
	u32 number;
	/* Sampling, see block_sampling.h. */
	u32 opened;                  /* windows so far */
	u64 window;                  /* start of the current one */
	u32 sampled;                 /* blocks sampled in it */
	u32 credit;                  /* blocks to sample before any class is thinned */
	u32 level;                   /* samples in a window that each class may take then */
	u32 exceeded;                /* samples without credit since the level fell */
	u64 older_allocated;         /* the allocator's totals before the first event */
	u64 older_reserved;
	u64 latest;                  /* time of the latest event */
	/* The allocator's totals then; live and 0 if it reports none. */
	u64 allocated, reserved;
	u64 live;                    /* bytes of live blocks that were allocated since the attach */
	u64 peak, peak_time;         /* highest allocated, and a time at which it was reached */
	u64 peak_left;               /* highest allocated before a free */
	/* The latest event with totals: its time, the totals, and allocated - live. */
	u64 sent, sent_allocated, sent_reserved, sent_older;
	u64 older_frees, older_bytes; /* freed blocks that were allocated before the attach */
	u64 unbooked;                /* blocks that did not fit into the map blocks */
	u64 far;                     /* its live blocks in the map blocks */
	u64 room;                    /* entries that it has reserved there */
	struct size_class classes[SIZE_CLASSES];
	struct class_samples samples[SIZE_CLASSES];
	u64 begun;                   /* reports whose counting has begun */
};

struct tensor_key {
	u32 pid;
	u16 device; /* c10::Device: the type in the low byte, the index in the high byte */
	u16 unused;
};

/* Allocators on GPUs and on the host have separate maps: each worker of a data loader has a host
 * allocator, and one training process may have hundreds of workers. Numbers of GPU allocators
 * are below MAX_GPU_ALLOCATORS, numbers of host allocators begin there. */
enum allocator_number {
	MAX_GPU_ALLOCATORS = 2048,
	MAX_HOST_ALLOCATORS = 8192,
	NO_NUMBER = 0xffffffff, /* the entry was just created */
};
#define FREE_NUMBERS(name, entries)                                                                                    \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_STACK);                                                                      \
		__type(value, u32);                                                                                    \
		__uint(max_entries, entries);                                                                          \
	} name SEC(".maps")
GROWING_MAP(tensor_devices, struct tensor_key, struct tensor_device, MAX_GPU_ALLOCATORS);
GROWING_MAP(host_tensor_devices, struct tensor_key, struct tensor_device, MAX_HOST_ALLOCATORS);
FREE_NUMBERS(gpu_numbers, MAX_GPU_ALLOCATORS); /* lowest on top: the lowest have near tables */
FREE_NUMBERS(host_numbers, MAX_HOST_ALLOCATORS);
MAP(blank_tensor_device, BPF_MAP_TYPE_ARRAY, u32, struct tensor_device, 1);

// Only GPU allocators report totals, and report while they hold a lock.
static EBPF_INLINE bool on_gpu(u16 device) { return (device & 0xff) == DEVICE_CUDA; }

static EBPF_INLINE struct tensor_device *find_allocator(struct tensor_key *key)
{
	if (on_gpu(key->device))
		return bpf_map_lookup_elem(&tensor_devices, key);
	return bpf_map_lookup_elem(&host_tensor_devices, key);
}

// Creates an allocator's entry with a number of its own. Otherwise it counts the report as lost and
// returns NULL, also if another thread was faster.
static EBPF_INLINE struct tensor_device *enter_allocator(void *devices, void *numbers, struct tensor_key *key, u64 id)
{
	u32 zero = 0, number;
	long error = -E2BIG;
	struct tensor_device *blank = bpf_map_lookup_elem(&blank_tensor_device, &zero), *d = NULL;
	struct share *share = share_of(id, &error);
	if (blank && share && share->allocators < MAX_ALLOCATORS_OF_PROCESS && !bpf_map_pop_elem(numbers, &number)) {
		error = bpf_map_update_elem(devices, key, blank, BPF_NOEXIST);
		if (!error)
			d = bpf_map_lookup_elem(devices, key);
		if (d) {
			d->number = number;
			__sync_fetch_and_add(&share->allocators, 1);
			return d;
		}
		bpf_map_push_elem(numbers, &number, 0);
	}
	lose_entry(error, id);
	return NULL;
}

#endif
