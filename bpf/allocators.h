/* SPDX-License-Identifier: GPL-2.0-only */
/* PyTorch's allocators, one per process and device. */
#ifndef VRAMPROF_ALLOCATORS_H
#define VRAMPROF_ALLOCATORS_H

#include "losses.h"
#include "processes.h"
#include "size_classes.h"
#include "threads.h"

enum device_type { DEVICE_CPU, DEVICE_CUDA }; /* c10::DeviceType */

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

/* Allocators on GPUs, and all others: each worker of a data loader has one for the host, and there may be hundreds for a
 * GPU's process. Numbers of the former are below MAX_GPU_ALLOCATORS, those of the latter from there on. */
enum allocator_number {
	MAX_GPU_ALLOCATORS = 2048,
	MAX_HOST_ALLOCATORS = 8192,
	NO_NUMBER = 0xffffffff, /* the allocator is just begun */
};
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

// Only allocators on GPUs have totals that are told, and report holding a lock.
static EBPF_INLINE bool on_gpu(u16 device) { return (device & 0xff) == DEVICE_CUDA; }

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

#endif
